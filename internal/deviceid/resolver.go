package deviceid

import (
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Resolver finds the entities of one topology by device id. It is immutable.
type Resolver struct {
	topology *gpu.Topology
	byIndex  bool // minor numbers are unknown, so the N of nvidiaN is NVML's index
}

// NewResolver returns the Resolver of t.
func NewResolver(t *gpu.Topology) *Resolver {
	minors, gpus := map[uint32]bool{}, 0
	for row := range t.Devices {
		if d := &t.Devices[row]; d.Entity.Kind == gpu.KindGPU {
			minors[d.Minor] = true
			gpus++
		}
	}
	return &Resolver{topology: t, byIndex: len(minors) < gpus}
}

// Topology returns the Resolver's topology.
func (r *Resolver) Topology() *gpu.Topology { return r.topology }

// Rows returns the rows that match id. If several match, for example because two GPUs share a UUID, it returns nil,
// except for FormAll. A path of a compute instance matches its GPU instance.
//
// Two forms match nothing on a GPU with MIG: a device file does not show which instance was assigned, and the driver
// chooses the order of MIG device indexes.
func (r *Resolver) Rows(id ID) []int {
	rows := r.matches(id)
	if len(rows) > 1 && id.Form != FormAll {
		return nil
	}
	return rows
}

func (r *Resolver) matches(id ID) (rows []int) {
	for row := range r.topology.Devices {
		switch d := &r.topology.Devices[row]; d.Entity.Kind {
		case gpu.KindGPU:
			if r.namesGPU(id, row, d) {
				rows = append(rows, row)
			}
		case gpu.KindGPUInstance:
			if r.namesInstance(id, row, d) {
				rows = append(rows, row)
			}
		}
	}
	return rows
}

func (r *Resolver) namesGPU(id ID, row int, d *gpu.Device) bool {
	switch id.Form {
	case FormAll:
		return true
	case FormGPU:
		return strings.EqualFold(d.UUID, id.UUID)
	case FormBare:
		return strings.EqualFold(d.UUID, "GPU-"+id.UUID)
	case FormIndex:
		return r.number(d) == id.Index
	case FormNode:
		return r.number(d) == id.Index && !r.isPartitioned(row)
	case FormNVMLIndex:
		return d.NVMLIndex == id.Index
	case FormBusID:
		address, ok := gpu.ParseBusID(d.PCIBusID)
		return ok && address == id.BusID
	default:
		return false
	}
}

func (r *Resolver) namesInstance(id ID, row int, d *gpu.Device) bool {
	switch id.Form {
	case FormAll:
		return true
	case FormMIG:
		return strings.EqualFold(d.MIGUUID, id.UUID)
	case FormBare:
		return strings.EqualFold(d.MIGUUID, "MIG-"+id.UUID)
	case FormPlaced:
		return strings.EqualFold(d.UUID, id.UUID) && d.Profile == id.Profile && d.Start != nil && *d.Start == id.Start
	case FormMIGPath:
		return strings.EqualFold(d.UUID, id.UUID) && d.InstanceID == id.Instance
	case FormInstance:
		n := d.NVMLIndex // the GPU itself is not watched
		if parent := r.topology.ParentRow(row); parent >= 0 {
			n = r.number(&r.topology.Devices[parent])
		}
		return n == id.Index && d.InstanceID == id.Instance
	default:
		return false
	}
}

// number returns the N of a GPU's nvidiaN.
func (r *Resolver) number(d *gpu.Device) uint32 {
	if r.byIndex {
		return d.NVMLIndex
	}
	return d.Minor
}

// isPartitioned reports whether the GPU of a row has instances.
func (r *Resolver) isPartitioned(row int) bool {
	for i := range r.topology.Devices {
		if r.topology.Devices[i].Entity.Kind == gpu.KindGPUInstance && r.topology.ParentRow(i) == row {
			return true
		}
	}
	return false
}
