package deviceid

import (
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A Resolver finds the entities of one topology by device ids. It is immutable.
type Resolver struct {
	topology *gpu.Topology
	byIndex  bool // the N of nvidiaN is NVML's index, since the minor numbers are not known
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

// Topology returns the topology whose entities are found.
func (r *Resolver) Topology() *gpu.Topology { return r.topology }

// Rows returns the rows that id names; nil means that the topology has none, or that two entities
// share the UUID. A compute instance is named by its path alone, and stands for the GPU instance that
// it is in.
//
// A device file of a GPU that is partitioned by MIG does not say which of its instances came with
// it, and the order of MIG devices by index is the driver's own: both name nothing.
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
		return sameBusID(d.PCIBusID, id.BusID)
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
		n := d.NVMLIndex // of a GPU that is not watched itself
		if parent := r.topology.ParentRow(row); parent >= 0 {
			n = r.number(&r.topology.Devices[parent])
		}
		return n == id.Index && d.InstanceID == id.Instance
	default:
		return false
	}
}

// number returns the N of nvidiaN of a GPU.
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

// sameBusID compares PCI addresses, whose domain has four digits or eight.
func sameBusID(a, b string) bool {
	a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	return a != "" && strings.EqualFold(a, b)
}
