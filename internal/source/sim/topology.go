package sim

import (
	"fmt"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// instancesPerGPU is the distance of the ids that DCGM gives to the instances of neighboring GPUs
// (7, 8 on GPU 0, 21, 22 on GPU 1).
const instancesPerGPU = 14

// survey returns the topology that the plan selects of the world as it is.
func (w *world) survey(plan *gpu.Plan) *gpu.Topology {
	var devices []gpu.Device
	for i := range w.gpus {
		devices = w.gpus[i].survey(devices, plan)
	}
	for i := range w.gpus {
		devices = w.gpus[i].surveyLinks(devices, plan)
	}
	devices = w.surveySwitches(devices, plan)
	devices = w.surveyCPUs(devices, plan)
	for id := range w.node.cards {
		// Cards sit beside the GPUs: 1A, 2B, 3C …
		bus := 0x1a + 0x11*id
		devices = appendSelected(devices, plan, gpu.Device{
			Entity:   gpu.Entity{Kind: gpu.KindConnectX, ID: uint32(id)},
			PCIBusID: fmt.Sprintf("%08X:%02X:00.0", bus>>8, bus&0xff),
		})
	}
	devices = appendSelected(devices, plan, gpu.Device{Entity: gpu.Entity{Kind: gpu.KindNode}})
	t := gpu.NewTopology(devices)
	t.Source, t.Driver = "sim", w.node.spec.Driver
	if plan.Placement {
		w.locate(t)
	}
	return t
}

func appendSelected(devices []gpu.Device, plan *gpu.Plan, d gpu.Device) []gpu.Device {
	if !plan.Selects(d.Entity) {
		return devices
	}
	return append(devices, d)
}

// identity is what all devices of a GPU share.
func (g *worldGPU) identity() gpu.Device {
	return gpu.Device{
		GPU: g.index, NVMLIndex: g.index, Minor: g.index,
		UUID:     uuid("GPU-", g.key),
		PCIBusID: busOf(g.index),
		Model:    g.spec.board.Model,
	}
}

func (g *worldGPU) survey(devices []gpu.Device, plan *gpu.Plan) []gpu.Device {
	if g.gone {
		return devices
	}
	whole := g.identity()
	whole.Entity = gpu.Entity{Kind: gpu.KindGPU, ID: g.index}
	devices = appendSelected(devices, plan, whole)
	if !g.partitioned {
		return devices
	}
	for i := range g.slots {
		instance := g.spec.board.MIG.instanceID(g.slots[i].place)
		d := g.identity()
		d.Entity = gpu.Entity{Kind: gpu.KindGPUInstance, ID: g.index*instancesPerGPU + instance, ParentKind: gpu.KindGPU, Parent: g.index}
		d.InstanceID = instance
		d.Profile = g.slots[i].place.profile.Name
		d.MIGUUID = uuid("MIG-", g.slots[i].key)
		devices = appendSelected(devices, plan, d)
	}
	return devices
}

func (g *worldGPU) surveyLinks(devices []gpu.Device, plan *gpu.Plan) []gpu.Device {
	if g.gone {
		return devices
	}
	for link := range uint32(g.spec.board.NVLink.Links) {
		d := g.identity()
		d.Entity = gpu.Entity{Kind: gpu.KindNVLink, ID: link, ParentKind: gpu.KindGPU, Parent: g.index}
		d.Link = link
		devices = appendSelected(devices, plan, d)
	}
	return devices
}

func (w *world) surveySwitches(devices []gpu.Device, plan *gpu.Plan) []gpu.Device {
	for id := range w.node.switches {
		devices = appendSelected(devices, plan, gpu.Device{Entity: gpu.Entity{Kind: gpu.KindNVSwitch, ID: uint32(id)}})
	}
	for id, spec := range w.node.switches {
		for link := range uint32(spec.Links) {
			devices = appendSelected(devices, plan, gpu.Device{
				Entity: gpu.Entity{Kind: gpu.KindNVLink, ID: link, ParentKind: gpu.KindNVSwitch, Parent: uint32(id)},
				Link:   link,
			})
		}
	}
	return devices
}

func (w *world) surveyCPUs(devices []gpu.Device, plan *gpu.Plan) []gpu.Device {
	serial := func(id int) string { return fmt.Sprintf("%016X", keyOf(w.seed, fmt.Sprint("cpu ", id))) }
	for id := range w.node.cpus {
		devices = appendSelected(devices, plan, gpu.Device{Entity: gpu.Entity{Kind: gpu.KindCPU, ID: uint32(id)}, Serial: serial(id)})
	}
	core := uint32(0)
	for id, spec := range w.node.cpus {
		for range spec.Cores {
			devices = appendSelected(devices, plan, gpu.Device{
				Entity: gpu.Entity{Kind: gpu.KindCPUCore, ID: core, ParentKind: gpu.KindCPU, Parent: uint32(id)},
				Serial: serial(id),
			})
			core++
		}
	}
	return devices
}

// view returns what the generators need to know of a device of the survey.
func (w *world) view(d *gpu.Device) view {
	v := view{dev: d, spec: &w.node.spec, world: w, part: 1}
	e := d.Entity
	switch {
	case e.Kind == gpu.KindGPU || e.ParentKind == gpu.KindGPU:
		g := &w.gpus[d.GPU]
		v.gpu, v.board, v.track, v.key = g, g.spec.board, &g.track, g.key
		v.total, v.reserved = v.board.Memory, v.board.Reserved
		switch e.Kind {
		case gpu.KindGPUInstance:
			s := g.slotOf(deviceRef{kind: e.Kind, of: gpu.KindGPU, id: d.GPU, sub: d.InstanceID})
			v.slot, v.track, v.key = s, &s.track, s.key
			v.total, v.reserved = s.total, s.reserved
		case gpu.KindNVLink:
			v.part = 1 / float64(g.spec.board.NVLink.Links)
			v.key = mix(g.key ^ uint64(d.Link+1)<<40)
		}
	case e.Kind == gpu.KindNVSwitch || e.ParentKind == gpu.KindNVSwitch:
		id := e.ID
		if e.Kind == gpu.KindNVLink {
			id = e.Parent
		}
		v.key = keyOf(w.seed, fmt.Sprint("nvswitch ", id, "/", e.Kind, d.Link))
		v.track = &w.fabric
		v.part = 1 / float64(len(w.node.switches))
		if e.Kind == gpu.KindNVLink {
			v.part /= float64(w.node.switches[id].Links)
		}
	case e.Kind == gpu.KindCPU || e.Kind == gpu.KindCPUCore:
		id := e.ID
		if e.Kind == gpu.KindCPUCore {
			id = e.Parent
		}
		v.cpu = &w.node.cpus[id]
		// The upper half is the CPU's, the lower the core's.
		v.key = keyOf(w.seed, fmt.Sprint("cpu ", id))>>32<<32 | mix(uint64(e.ID))>>32
		if int(id) < len(w.gpus) {
			v.gpu = &w.gpus[id]
		}
	case e.Kind == gpu.KindConnectX:
		v.card = &w.node.cards[e.ID]
		v.key = keyOf(w.seed, fmt.Sprint("connectx ", e.ID))
	default:
		v.key = keyOf(w.seed, w.node.spec.Name)
	}
	return v
}

// uuid returns an id in the form of RFC 9562 (version 8: of our own making).
func uuid(prefix string, key uint64) string {
	a, b := mix(key^0x5bd1e995), mix(key^0x9747b28c)
	return fmt.Sprintf("%s%08x-%04x-8%03x-%04x-%012x", strings.TrimSpace(prefix),
		a>>32, a>>16&0xffff, a&0xfff, b>>48&0x3fff|0x8000, b&0xffffffffffff)
}
