package sim

import (
	"fmt"
	"slices"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// instancesPerGPU is the difference of DCGM's instance IDs between neighboring GPUs. For example, GPU 0 has 7 and 8,
// and GPU 1 has 21 and 22.
const instancesPerGPU = 14

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
	for i := range w.gpus {
		g := &w.gpus[i]
		if g.gone {
			continue
		}
		whole := gpu.Device{
			Entity: gpu.Entity{Kind: gpu.KindGPU, ID: g.index},
			GPU:    g.index, NVMLIndex: g.index, Minor: g.index,
			UUID:     uuid("GPU-", g.key),
			PCIBusID: busID(0x1b, g.index),
			Model:    g.spec.board.Model,
		}
		list = append(list, whole)
		part := gpu.Entity{ParentKind: gpu.KindGPU, Parent: g.index}
		for j := range g.slots {
			if s := &g.slots[j]; g.partitioned {
				d := whole
				d.Entity, d.Entity.Kind, d.Entity.ID = part, gpu.KindGPUInstance, g.index*instancesPerGPU+s.id()
				d.InstanceID, d.Profile, d.MIGUUID = s.id(), s.Name, uuid("MIG-", s.key)
				start := uint32(s.start)
				d.Start = &start
				list = append(list, d)
			}
		}
		for link := range uint32(g.spec.board.NVLink.Links) {
			d := whole
			d.Entity, d.Entity.Kind, d.Entity.ID, d.Link = part, gpu.KindNVLink, link, link
			parts = append(parts, d)
		}
	}
	list, parts = append(list, parts...), nil
	for id, spec := range w.node.Switches {
		list = append(list, gpu.Device{Entity: gpu.Entity{Kind: gpu.KindNVSwitch, ID: uint32(id)}})
		for link := range uint32(spec.Links) {
			entity := gpu.Entity{Kind: gpu.KindNVLink, ID: link, ParentKind: gpu.KindNVSwitch, Parent: uint32(id)}
			parts = append(parts, gpu.Device{Entity: entity, Link: link})
		}
	}
	list, parts = append(list, parts...), nil
	for id, spec := range w.node.CPUs {
		serial := fmt.Sprintf("%016X", keyOf(w.seed, fmt.Sprint("cpu ", id)))
		list = append(list, gpu.Device{Entity: gpu.Entity{Kind: gpu.KindCPU, ID: uint32(id)}, Serial: serial})
		for range spec.Cores {
			core := gpu.Entity{Kind: gpu.KindCPUCore, ParentKind: gpu.KindCPU, Parent: uint32(id)}
			core.ID = uint32(len(parts))
			parts = append(parts, gpu.Device{Entity: core, Serial: serial})
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

// view returns the view of a device of the topology.
func (w *world) view(d *gpu.Device) view {
	v := view{dev: d, node: w.node, world: w, part: 1}
	e := d.Entity
	switch {
	case e.Kind == gpu.KindGPU || e.ParentKind == gpu.KindGPU:
		g := &w.gpus[d.GPU]
		v.gpu, v.board, v.track, v.key = g, g.spec.board, &g.track, g.key
		v.total, v.reserved = v.board.Memory, v.board.Reserved
		v.slot = g.slotOf(deviceRef{kind: e.Kind, id: d.GPU, sub: d.InstanceID})
		switch s := v.slot; e.Kind {
		case gpu.KindGPUInstance:
			v.track, v.key, v.total, v.reserved = &s.track, s.key, s.total, s.reserved
		case gpu.KindNVLink:
			v.part, v.key = 1/float64(v.board.NVLink.Links), mix(g.key^uint64(d.Link+1)<<40)
		}
	case e.Kind == gpu.KindNVSwitch || e.ParentKind == gpu.KindNVSwitch:
		id := e.ID
		v.track, v.part = &w.fabric, 1/float64(len(w.node.Switches))
		if e.Kind == gpu.KindNVLink {
			id = e.Parent
			v.part /= float64(w.node.Switches[id].Links)
		}
		v.key = keyOf(w.seed, fmt.Sprint("nvswitch ", id, "/", e.Kind, d.Link))
	case e.Kind == gpu.KindCPU || e.Kind == gpu.KindCPUCore:
		id := e.ID
		if e.Kind == gpu.KindCPUCore {
			id = e.Parent
		}
		v.cpu = &w.node.CPUs[id]
		// The upper half is the key of the CPU, the lower half that of the core.
		v.key = keyOf(w.seed, fmt.Sprint("cpu ", id))>>32<<32 | mix(uint64(e.ID))>>32
	case e.Kind == gpu.KindConnectX:
		v.card = &w.node.ConnectX[e.ID]
		v.key = keyOf(w.seed, fmt.Sprint("connectx ", e.ID))
	default:
		v.key = keyOf(w.seed, w.node.Name)
	}
	return v
}

// uuid returns a UUID of version 8 (RFC 9562).
func uuid(prefix string, key uint64) string {
	a, b := mix(key^0x5bd1e995), mix(key^0x9747b28c)
	return fmt.Sprintf("%s%08x-%04x-8%03x-%04x-%012x", prefix,
		a>>32, a>>16&0xffff, a&0xfff, b>>48&0x3fff|0x8000, b&0xffffffffffff)
}
