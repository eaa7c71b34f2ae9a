//go:build linux && cgo

package nvml

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unsafe"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// instanceIDs is the distance between the entity IDs of instances of neighboring GPUs. An entity ID is instanceIDs ×
// GPU index + NVML's ID, which is below 16.
const instanceIDs = 100

// A slot holds a MIG device of a GPU.
type slot struct {
	handle gonvml.Device
	gi, ci int
	uuid   string
}

// A device is a GPU of the machine with its rows.
type device struct {
	index  int
	handle gonvml.Device
	// dead is why the GPU could not be queried when the session was opened: it is lost or access is denied. It has a
	// row nevertheless, so that the page shows it.
	dead error
	// canMIG means that the GPU has a MIG mode, and mig that it is enabled.
	canMIG, mig bool
	slots       []slot
	changed     bool // its instances differ from those of the topology
	alive       bool // the current Read could read it
	peers       backoff
	links       []int // NVLinks that readLinks queries
	rows        []*row
	events      *eventQueue
}

// start finds the GPUs and instances to read.
func (s *Session) start() error {
	count, ret := s.api.DeviceGetCount()
	if ret != gonvml.SUCCESS {
		return &driverError{"nvmlDeviceGetCount_v2", ret}
	}
	if count == 0 {
		return fmt.Errorf("%w: the driver finds no GPU", gpu.ErrUnavailable)
	}
	s.count = count
	var dead error
	isDead := true
	for index := range count {
		d, err := s.discover(index)
		if err != nil {
			return err
		}
		if len(d.rows) == 0 {
			continue
		}
		dead, isDead = cmp.Or(dead, d.dead), isDead && d.dead != nil
		s.devices = append(s.devices, d)
	}
	switch {
	case len(s.devices) == 0:
		return fmt.Errorf("%w: --devices selects none of %d GPUs or their instances", gpu.ErrUnavailable, count)
	case isDead:
		return dead
	}
	for i := range s.plan.Fields {
		f := &s.plan.Fields[i]
		if f.Levels != 0 && !f.Levels.Has(gpu.KindGPU) && !f.Levels.Has(gpu.KindGPUInstance) && !byLink(f) {
			s.elsewhere = append(s.elsewhere, i)
		}
	}
	s.topology = gpu.NewTopology(s.list)
	s.topology.Source = "nvml"
	s.topology.Driver = s.version("nvmlSystemGetDriverVersion", s.api.SystemGetDriverVersion)
	s.topology.Library = s.version("nvmlSystemGetNVMLVersion", s.api.SystemGetNVMLVersion)
	if s.plan.Placement {
		s.topology.Pairs = s.pairs()
	}
	for _, d := range s.devices {
		for _, r := range d.rows {
			if d.dead == nil {
				_ = s.readProfiling(r, &gpu.Batch{}) // takes a first sample; the next Read reports the error
			}
		}
	}
	return nil
}

func (s *Session) version(symbol string, get func() (string, gonvml.Return)) string {
	if s.symbols.has(symbol) {
		if v, ret := get(); ret == gonvml.SUCCESS {
			return v
		}
	}
	return ""
}

// discover returns the GPU at index with rows for its selected entities. An error concerns the whole driver.
func (s *Session) discover(index int) (*device, error) {
	d := &device{index: index}
	own := gpu.Device{
		Entity: gpu.Entity{Kind: gpu.KindGPU, ID: uint32(index)},
		GPU:    uint32(index), NVMLIndex: uint32(index), Minor: uint32(index),
	}
	if err := s.identify(d, &own); err != nil {
		if driverGone(codeOf(err)) {
			return nil, err
		}
		d.dead = fmt.Errorf("GPU %d: %w", index, err)
	}
	if s.plan.Selects(own.Entity) {
		whole := own
		if s.plan.Placement && d.dead == nil {
			whole.Place = s.place(d.handle)
		}
		s.addRow(d, whole, d.handle, -1)
	}
	if d.dead != nil {
		return d, nil
	}
	for i, sl := range d.slots {
		if i > 0 && d.slots[i-1].gi == sl.gi {
			continue // another compute instance of the same GPU instance
		}
		if sl.gi < 0 || sl.gi >= instanceIDs {
			const most = instanceIDs - 1
			return nil, fmt.Errorf("GPU %d has a GPU instance %d, which is not in 0-%d", index, sl.gi, most)
		}
		if err := s.addInstance(d, own, d.slots[i:]); err != nil {
			return nil, err
		}
	}
	s.discoverLinks(d, own)
	for _, r := range d.rows {
		s.compile(d, r)
	}
	s.listen(d, own.UUID)
	return d, nil
}

// addRow adds an entity of a GPU to the topology. gi is its GPU instance, or -1.
func (s *Session) addRow(d *device, entity gpu.Device, handle gonvml.Device, gi int) {
	d.rows = append(d.rows, &row{
		index: len(s.list), kind: entity.Entity.Kind, gi: gi, link: entity.Link,
		target: target{
			api: s.api, device: handle, parent: d.handle,
			pastReserved: s.symbols.has("nvmlDeviceGetMemoryInfo_v2"),
		},
	})
	s.list = append(s.list, entity)
}

// discoverLinks adds rows for the NVLinks of a GPU, up or down, if the plan has fields of links.
func (s *Session) discoverLinks(d *device, own gpu.Device) {
	byLink := slices.ContainsFunc(s.plan.Fields, func(f gpu.Field) bool { return byLink(&f) })
	if !byLink && !s.plan.Links || !s.symbols.has(linkState) {
		return
	}
	for link := range gonvml.NVLINK_MAX_LINKS {
		if _, ret := d.handle.GetNvLinkState(link); ret != gonvml.SUCCESS {
			continue
		}
		if s.plan.Links && !d.mig {
			d.links = append(d.links, link)
		}
		device := own
		device.Entity = gpu.Entity{Kind: gpu.KindNVLink, ID: uint32(link), ParentKind: gpu.KindGPU, Parent: own.GPU}
		device.Link = uint32(link)
		if byLink && s.plan.Selects(device.Entity) {
			s.addRow(d, device, d.handle, -1)
		}
	}
}

// addInstance adds a row for a GPU instance if it is selected. slots begins with its slots and may contain those of
// later instances.
func (s *Session) addInstance(d *device, instance gpu.Device, slots []slot) error {
	first := &slots[0]
	id := instance.GPU*instanceIDs + uint32(first.gi)
	instance.Entity = gpu.Entity{Kind: gpu.KindGPUInstance, ID: id, ParentKind: gpu.KindGPU, Parent: instance.GPU}
	if !s.plan.Selects(instance.Entity) {
		return nil
	}
	name, ret := first.handle.GetName()
	if ret != gonvml.SUCCESS {
		err := &driverError{"nvmlDeviceGetName", ret}
		return fmt.Errorf("GPU instance %d of GPU %d: %w", first.gi, instance.GPU, err)
	}
	instance.InstanceID = uint32(first.gi)
	if strings.Contains(name, "MIG ") {
		instance.Profile = gpu.InstanceProfile(name)
	}
	if len(slots) == 1 || slots[1].gi != first.gi {
		instance.MIGUUID = first.uuid // with several MIG devices, no UUID is the instance's own
	}
	instance.Start = s.startOf(d.handle, first.gi)
	s.addRow(d, instance, first.handle, first.gi)
	return nil
}

// startOf returns the first memory slice of a GPU instance. It returns nil if the driver does not report it, which it
// only does for root.
func (s *Session) startOf(whole gonvml.Device, gi int) *uint32 {
	if s.symbols.missing("nvmlDeviceGetGpuInstanceById", "nvmlGpuInstanceGetInfo") != "" {
		return nil
	}
	if instance, ret := whole.GetGpuInstanceById(gi); ret == gonvml.SUCCESS {
		if info, ret := instance.GetInfo(); ret == gonvml.SUCCESS {
			return &info.Placement.Start
		}
	}
	return nil
}

var (
	pciSymbols = []string{"nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetPciInfo"}
	migSymbols = []string{
		"nvmlDeviceGetMigMode", "nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex",
		"nvmlDeviceGetGpuInstanceId", "nvmlDeviceGetComputeInstanceId",
	}
)

// identify sets the identity of the GPU and its MIG devices.
func (s *Session) identify(d *device, own *gpu.Device) error {
	handle, ret := s.api.DeviceGetHandleByIndex(d.index)
	if ret != gonvml.SUCCESS {
		return &driverError{"nvmlDeviceGetHandleByIndex_v2", ret}
	}
	d.handle = handle
	if own.UUID, ret = handle.GetUUID(); ret != gonvml.SUCCESS {
		return &driverError{"nvmlDeviceGetUUID", ret}
	}
	if own.Model, ret = handle.GetName(); ret != gonvml.SUCCESS {
		return &driverError{"nvmlDeviceGetName", ret}
	}
	if s.symbols.any(pciSymbols) {
		pci, ret := handle.GetPciInfo()
		if ret != gonvml.SUCCESS {
			return &driverError{"nvmlDeviceGetPciInfo_v3", ret}
		}
		own.PCIBusID = busID(&pci)
	}
	if s.symbols.has("nvmlDeviceGetMinorNumber") {
		if minor, ret := handle.GetMinorNumber(); ret == gonvml.SUCCESS {
			own.Minor = uint32(minor)
		}
	}
	if s.symbols.missing(migSymbols...) == "" {
		var ret gonvml.Return
		d.mig, d.slots, ret = readSlots(handle, nil, nil)
		if gone(ret) {
			return &driverError{"nvmlDeviceGetMigMode", ret}
		}
		d.canMIG = !lasting(ret) // other failures may pass, and verify queries it again
	}
	return nil
}

// readSlots appends the MIG devices to slots, in the order of GPU instances and compute instances, and reports whether
// MIG is enabled. It does not query the IDs of MIG devices in known again.
func readSlots(handle gonvml.Device, known, slots []slot) (bool, []slot, gonvml.Return) {
	mode, _, ret := handle.GetMigMode()
	if ret != gonvml.SUCCESS || mode != gonvml.DEVICE_MIG_ENABLE {
		return false, slots, ret
	}
	most, ret := handle.GetMaxMigDeviceCount()
	if ret != gonvml.SUCCESS {
		return true, slots, ret
	}
	for i := range most {
		var sl slot
		if sl.handle, ret = handle.GetMigDeviceHandleByIndex(i); ret != gonvml.SUCCESS {
			if gone(ret) {
				return true, slots, ret
			}
			continue // no MIG device at this index
		}
		if sl.uuid, ret = sl.handle.GetUUID(); ret != gonvml.SUCCESS {
			continue // the MIG device has just been deleted
		}
		if at := slices.IndexFunc(known, func(k slot) bool { return k.uuid == sl.uuid }); at >= 0 {
			sl.gi, sl.ci = known[at].gi, known[at].ci
		} else if sl.gi, ret = sl.handle.GetGpuInstanceId(); ret == gonvml.SUCCESS {
			sl.ci, ret = sl.handle.GetComputeInstanceId()
		}
		if ret == gonvml.SUCCESS {
			slots = append(slots, sl)
		}
	}
	slices.SortFunc(slots, func(a, b slot) int { return cmp.Or(cmp.Compare(a.gi, b.gi), cmp.Compare(a.ci, b.ci)) })
	return true, slots, gonvml.SUCCESS
}

func sameSlot(a, b slot) bool { return a.gi == b.gi && a.ci == b.ci && a.uuid == b.uuid }

// busID returns the bus ID in the form of gpu.Device.PCIBusID. Only the text has the function of a virtual GPU.
func busID(p *gonvml.PciInfo) string {
	text, _, _ := bytes.Cut(unsafe.Slice((*byte)(unsafe.Pointer(&p.BusId[0])), len(p.BusId)), []byte{0})
	if id, ok := gpu.ParseBusID(string(text)); ok {
		return id
	}
	return gpu.BusID(p.Domain, p.Bus, p.Device, 0)
}

// verify compares the hardware with the topology. A difference ends the session. It returns an error if the driver is
// gone.
func (s *Session) verify() error {
	count, ret := s.api.DeviceGetCount()
	switch {
	case ret != gonvml.SUCCESS:
		return &driverError{"nvmlDeviceGetCount_v2", ret}
	case count != s.count:
		_ = s.end(fmt.Errorf("%w: number of GPUs changed from %d to %d", gpu.ErrTopology, s.count, count))
	}
	for _, d := range s.devices {
		switch {
		case d.dead != nil:
			if h, ret := s.api.DeviceGetHandleByIndex(d.index); ret == gonvml.SUCCESS {
				if _, ret := h.GetUUID(); ret == gonvml.SUCCESS {
					_ = s.end(fmt.Errorf("%w: GPU %d can be read again", gpu.ErrTopology, d.index))
				}
			}
		case d.canMIG:
			mig, slots, ret := readSlots(d.handle, d.slots, s.slots[:0])
			s.slots = slots[:0]
			if ret != gonvml.SUCCESS {
				continue // the GPU is lost, which Read reports
			}
			if mig != d.mig || !slices.EqualFunc(slots, d.slots, sameSlot) {
				d.changed = true
				_ = s.end(fmt.Errorf("%w: MIG instances of GPU %d changed", gpu.ErrTopology, d.index))
			}
		}
	}
	return nil
}

// maxCPUs and maxNodes are the limits of Linux.
const (
	maxCPUs  = 8192
	maxNodes = 1024
)

// place returns the place of a GPU. It has no NUMA node if several are near. nvmlDeviceGetNumaNodeId is not used, since
// it returns the node of the GPU's own memory.
func (s *Session) place(handle gonvml.Device) *gpu.Place {
	var nodes, cpus []uint // nil if a call fails
	if s.symbols.has("nvmlDeviceGetMemoryAffinity") {
		if mask, ret := handle.GetMemoryAffinity(maxNodes, gonvml.AFFINITY_SCOPE_NODE); ret == gonvml.SUCCESS {
			nodes = mask
		}
	}
	if s.symbols.has("nvmlDeviceGetCpuAffinity") {
		if mask, ret := handle.GetCpuAffinity(maxCPUs); ret == gonvml.SUCCESS {
			cpus = mask
		}
	}
	p := gpu.PlaceOf(nodes, cpus)
	return &p
}

// linkEnds counts the active links of a GPU by the device at the other end.
type linkEnds struct {
	gpus     map[string]int // by PCI bus ID
	switches int
}

// ends returns where the links of a GPU end.
func (s *Session) ends(d *device) linkEnds {
	e := linkEnds{gpus: map[string]int{}}
	if !s.symbols.has(linkState) {
		return e
	}
	for link := range gonvml.NVLINK_MAX_LINKS {
		if up, ret := d.handle.GetNvLinkState(link); ret != gonvml.SUCCESS || up != gonvml.FEATURE_ENABLED {
			continue
		}
		if s.symbols.has("nvmlDeviceGetNvLinkRemoteDeviceType") {
			kind, ret := d.handle.GetNvLinkRemoteDeviceType(link)
			if ret == gonvml.SUCCESS && kind == gonvml.NVLINK_DEVICE_TYPE_SWITCH {
				e.switches++
				continue
			}
		}
		if s.symbols.any(remotePCISymbols) {
			if pci, ret := d.handle.GetNvLinkRemotePciInfo(link); ret == gonvml.SUCCESS {
				e.gpus[busID(&pci)]++
			}
		}
	}
	return e
}

var remotePCISymbols = []string{"nvmlDeviceGetNvLinkRemotePciInfo_v2", "nvmlDeviceGetNvLinkRemotePciInfo"}

// pairs returns how the GPUs are connected. Pairs with a GPU that is lost or denies access are left out.
func (s *Session) pairs() []gpu.Pair {
	gpus := slices.DeleteFunc(slices.Clone(s.devices), func(d *device) bool { return d.gpuRow() < 0 || d.dead != nil })
	ends := make([]linkEnds, len(gpus))
	for i, d := range gpus {
		ends[i] = s.ends(d)
	}
	var pairs []gpu.Pair
	for i, a := range gpus {
		for j := i + 1; j < len(gpus); j++ {
			b := gpus[j]
			p := gpu.Pair{A: a.gpuRow(), B: b.gpuRow(), Path: s.path(a, b)}
			p.NVLinks = ends[i].gpus[s.list[p.B].PCIBusID]
			if through := min(ends[i].switches, ends[j].switches); p.NVLinks == 0 && through > 0 {
				if status, ret := s.peerStatus(a, b); ret == gonvml.SUCCESS && status == gonvml.P2P_STATUS_OK {
					p.NVLinks = through
				}
			}
			pairs = append(pairs, p)
		}
	}
	return pairs
}

// path returns the PCIe path between two GPUs.
func (s *Session) path(a, b *device) gpu.Path {
	if s.symbols.has("nvmlDeviceGetTopologyCommonAncestor") {
		if level, ret := a.handle.GetTopologyCommonAncestor(b.handle); ret == gonvml.SUCCESS {
			return paths[level]
		}
	}
	return gpu.PathUnknown
}

// paths maps the levels of NVML. Others are unknown.
var paths = map[gonvml.GpuTopologyLevel]gpu.Path{
	gonvml.TOPOLOGY_INTERNAL: gpu.PathBoard, gonvml.TOPOLOGY_SINGLE: gpu.PathSwitch,
	gonvml.TOPOLOGY_MULTIPLE: gpu.PathSwitches, gonvml.TOPOLOGY_HOSTBRIDGE: gpu.PathHostBridge,
	gonvml.TOPOLOGY_NODE: gpu.PathNode, gonvml.TOPOLOGY_SYSTEM: gpu.PathSystem,
}

const p2pStatus = "nvmlDeviceGetP2PStatus"

// errNoWatches is the fault of health checks, which only DCGM has.
var errNoWatches = fmt.Errorf("%w: NVML has no health watches", gpu.ErrNotSupported)

// gpuRow returns the row of the GPU, or -1 if only its instances are selected.
func (d *device) gpuRow() int {
	if len(d.rows) == 0 || d.rows[0].kind != gpu.KindGPU {
		return -1
	}
	return d.rows[0].index
}

func (s *Session) peerStatus(a, b *device) (gonvml.GpuP2PStatus, gonvml.Return) {
	if !s.symbols.has(p2pStatus) {
		return gonvml.P2P_STATUS_UNKNOWN, gonvml.ERROR_FUNCTION_NOT_FOUND
	}
	return a.handle.GetP2PStatus(b.handle, gonvml.P2P_CAPS_INDEX_NVLINK)
}

// readPeers appends the states of the connections between all readable GPUs. It returns an error only if the driver is
// gone.
func (s *Session) readPeers(b *gpu.Batch) error {
	now := time.Now()
	for _, d := range s.devices {
		if d.gpuRow() < 0 || !d.alive {
			continue
		}
		if d.peers.active(now) {
			b.FailPart(d.gpuRow(), gpu.PartPeerStates, d.peers.err)
			continue
		}
		for _, peer := range s.devices {
			if peer == d || peer.gpuRow() < 0 || !peer.alive {
				continue
			}
			status, ret := s.peerStatus(d, peer)
			switch {
			case ret == gonvml.SUCCESS:
				word := gpu.PeerStatus(uint32(status))
				b.Peers = append(b.Peers, gpu.PeerState{Row: d.gpuRow(), Peer: peer.gpuRow(), Status: word})
				continue
			case driverGone(ret):
				return &driverError{p2pStatus, ret}
			case gone(ret):
				continue // one of the two GPUs is lost, which the next Read reports
			}
			b.FailPart(d.gpuRow(), gpu.PartPeerStates, d.peers.record(p2pStatus, ret, now))
			break
		}
	}
	return nil
}

const linkState = "nvmlDeviceGetNvLinkState"

// readLinks reports whether an NVLink of the GPU is active. The state is unknown if the GPU has no links to query, or
// if one cannot be read and no other is active. An error means that the GPU or the driver is gone.
func (s *Session) readLinks(d *device) (up, known bool, err error) {
	known = len(d.links) > 0 && d.gpuRow() >= 0
	for _, link := range d.links {
		switch state, ret := d.handle.GetNvLinkState(link); {
		case gone(ret):
			return false, false, &driverError{linkState, ret}
		case ret != gonvml.SUCCESS:
			known = false
		case state == gonvml.FEATURE_ENABLED:
			return true, d.gpuRow() >= 0, nil
		}
	}
	return false, known, nil
}
