package sim

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

const (
	// instancesPerGPU is the difference of DCGM's instance IDs between neighboring GPUs. For example, GPU 0 has 7 and
	// 8, and GPU 1 has 21 and 22.
	instancesPerGPU = 14
	// socketCPUs is the number of CPUs on each of two sockets if the node does not define CPUs.
	socketCPUs = 64
)

// topology returns the topology of the devices that the plan selects.
func (w *world) topology(plan *gpu.Plan) *gpu.Topology {
	t := gpu.NewTopology(slices.DeleteFunc(w.devices(), func(d gpu.Device) bool { return !plan.Selects(d.Entity) }))
	t.Source, t.Driver = "sim", w.node.Driver
	if plan.Placement {
		w.locate(t)
	}
	return t
}

// devices returns all devices that are bound to the driver.
func (w *world) devices() (list []gpu.Device) {
	var parts []gpu.Device // devices of one kind, which follow their parents
	partOf := func(d gpu.Device, kind gpu.Kind, id uint32) gpu.Device {
		d.Entity = gpu.Entity{Kind: kind, ID: id, ParentKind: d.Entity.Kind, Parent: d.Entity.ID}
		return d
	}
	linksOf := func(d gpu.Device, count int64) {
		for link := range uint32(count) {
			l := partOf(d, gpu.KindNVLink, link)
			l.Link = link
			parts = append(parts, l)
		}
	}
	for i := range w.gpus {
		g := &w.gpus[i]
		if g.gone {
			continue
		}
		whole := gpu.Device{
			Entity: gpu.Entity{Kind: gpu.KindGPU, ID: g.index},
			GPU:    g.index, NVMLIndex: g.index, Minor: g.index,
			UUID: uuid("GPU-", g.key), PCIBusID: busID(0x1b, g.index), Model: g.spec.board.Model,
		}
		list = append(list, whole)
		for j := range g.slots {
			if s := &g.slots[j]; g.partitioned {
				d := partOf(whole, gpu.KindGPUInstance, g.index*instancesPerGPU+s.id())
				d.InstanceID, d.Profile, d.MIGUUID = s.id(), s.Name, uuid("MIG-", s.key)
				d.Start = new(uint32(s.start))
				list = append(list, d)
			}
		}
		linksOf(whole, g.spec.board.NVLink.Links)
	}
	list, parts = append(list, parts...), nil
	for id, spec := range w.node.Switches {
		d := gpu.Device{Entity: gpu.Entity{Kind: gpu.KindNVSwitch, ID: uint32(id)}}
		list = append(list, d)
		linksOf(d, spec.Links)
	}
	list, parts = append(list, parts...), nil
	for id, spec := range w.node.CPUs {
		d := gpu.Device{Entity: gpu.Entity{Kind: gpu.KindCPU, ID: uint32(id)}}
		d.Serial = fmt.Sprintf("%016X", keyOf(w.seed, fmt.Sprint("cpu ", id)))
		list = append(list, d)
		for range spec.Cores {
			parts = append(parts, partOf(d, gpu.KindCPUCore, uint32(len(parts))))
		}
	}
	list = append(list, parts...)
	for id := range uint32(len(w.node.ConnectX)) {
		list = append(list, gpu.Device{Entity: gpu.Entity{Kind: gpu.KindConnectX, ID: id}, PCIBusID: busID(0x1a, id)})
	}
	return append(list, gpu.Device{Entity: gpu.Entity{Kind: gpu.KindNode}})
}

// busID returns the PCI bus ID of the n-th device of a kind. first is the bus of the first device. Buses are numbered
// as on real boards with eight GPUs: 1B, 2C, 3D and so on, with network cards on the buses in between.
func busID(first, n uint32) string {
	bus := first + 0x11*n
	return gpu.BusID(bus>>8, bus&0xff, 0, 0)
}

// A deviceRef identifies a device of a node in node and scenario files, in one of the forms that parseDevice
// reads. Instances have the
// IDs of NVML.
type deviceRef struct {
	kind gpu.Kind
	of   gpu.Kind // the parent's kind, for links and instances
	id   uint32   // the ID; for instances and links, the ID of the parent
	sub  uint32   // the ID of the instance or link
}

// deviceKinds maps the first word of a deviceRef to the kind of device, and to the kind of its parts, which have a
// second number.
var deviceKinds = map[string]struct{ one, part gpu.Kind }{
	"":         {gpu.KindGPU, gpu.KindGPUInstance},
	"nvlink":   {gpu.KindNone, gpu.KindNVLink},
	"nvswitch": {gpu.KindNVSwitch, gpu.KindNVLink},
	"cpu":      {one: gpu.KindCPU},
	"core":     {one: gpu.KindCPUCore},
	"connectx": {one: gpu.KindConnectX},
}

func parseDevice(text string) (deviceRef, error) {
	word, numbers, found := strings.Cut(text, " ")
	if !found {
		word, numbers = "", text
	}
	first, second, isPart := strings.Cut(numbers, "/")
	kinds := deviceKinds[word]
	ref := deviceRef{kind: kinds.one}
	if isPart {
		ref = deviceRef{kind: kinds.part, of: cmp.Or(kinds.one, gpu.KindGPU)}
	} else {
		second = "0"
	}
	id, errID := strconv.ParseUint(first, 10, 16)
	sub, errSub := strconv.ParseUint(second, 10, 16)
	if errID != nil || errSub != nil || ref.kind == gpu.KindNone {
		const forms = `a GPU "3", an instance "6/9", "nvlink 0/4", "nvswitch 1", "nvswitch 1/7", "cpu 0", "core 12" ` +
			`or "connectx 2"`
		return deviceRef{}, fmt.Errorf("device %q, expected %s", text, forms)
	}
	ref.id, ref.sub = uint32(id), uint32(sub)
	return ref, nil
}

// refOf returns the reference that identifies d.
func refOf(d *gpu.Device) deviceRef {
	switch e := d.Entity; e.Kind {
	case gpu.KindGPUInstance:
		return deviceRef{e.Kind, e.ParentKind, e.Parent, d.InstanceID}
	case gpu.KindNVLink:
		return deviceRef{e.Kind, e.ParentKind, e.Parent, d.Link}
	default:
		return deviceRef{kind: e.Kind, id: e.ID}
	}
}

// home returns the socket of a GPU with its CPUs. All sockets have the same number of GPUs.
func (w *world) home(g *worldGPU) gpu.Place {
	sockets, cores := 2, socketCPUs
	if len(w.node.CPUs) > 0 {
		sockets, cores = len(w.node.CPUs), w.node.CPUs[0].Cores
	}
	socket := int(g.index) * sockets / len(w.gpus)
	return gpu.Place{NUMANode: socket, CPUs: fmt.Sprintf("%d-%d", socket*cores, (socket+1)*cores-1)}
}

// locate sets the place of each GPU and the connection of each pair of GPUs. Neighbors on one socket that no NVLink
// connects share a PCIe switch.
func (w *world) locate(t *gpu.Topology) {
	rows := t.RowsOf(gpu.KindsOf(gpu.KindGPU))
	for i, row := range rows {
		a := &w.gpus[t.Devices[row].GPU]
		place := w.home(a)
		t.Devices[row].Place = &place
		for _, peer := range rows[i+1:] {
			b := &w.gpus[t.Devices[peer].GPU]
			p := gpu.Pair{A: row, B: peer, Path: gpu.PathNode}
			if w.linked(a, b) {
				p.NVLinks = int(a.spec.board.NVLink.Links)
			}
			if w.home(b).NUMANode != place.NUMANode {
				p.Path = gpu.PathSystem
			} else if p.NVLinks == 0 && a.index/2 == b.index/2 {
				p.Path = gpu.PathSwitch
			}
			t.Pairs = append(t.Pairs, p)
		}
	}
}

// linked reports whether NVLink connects two GPUs. Bridges connect pairs; switches connect all GPUs.
func (w *world) linked(a, b *worldGPU) bool {
	links := a.spec.board.NVLink
	return a.spec.board == b.spec.board && links.Links > 0 && a.index != b.index &&
		(!links.Bridge || a.index/2 == b.index/2)
}

func (w *world) podUID(p *podSpec) string { return uuid("", w.podKey(p)) }

func (w *world) podKey(p *podSpec) uint64 { return keyOf(w.seed, p.Namespace+"/"+p.Pod) }

// uuid returns a UUID of version 8 (RFC 9562).
func uuid(prefix string, key uint64) string {
	a, b := mix(key^0x5bd1e995), mix(key^0x9747b28c)
	return fmt.Sprintf("%s%08x-%04x-8%03x-%04x-%012x", prefix,
		a>>32, a>>16&0xffff, a&0xfff, b>>48&0x3fff|0x8000, b&0xffffffffffff)
}

// keyOf hashes a name with a seed.
func keyOf(seed uint64, name string) uint64 {
	key := mix(seed)
	for i := range len(name) {
		key = mix(key ^ uint64(name[i]))
	}
	return key
}

// mix is a round of the splitmix64 generator, used as a 64-bit hash.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// uniform returns a number in [0, 1) that depends only on key and n.
func uniform(key, n uint64) float64 {
	return float64(mix(key^mix(n))>>11) / (1 << 53)
}

// smooth returns noise in [-1, 1]. It interpolates between random values that are `every` seconds apart.
func smooth(key uint64, t, every float64) float64 {
	at := math.Floor(t / every)
	x := t/every - at
	n := uint64(int64(at))
	a, b := uniform(key, n), uniform(key, n+1)
	return 2*(a+(b-a)*x) - 1
}
