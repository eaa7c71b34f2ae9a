package deviceid

import (
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Resolver finds the entities of one topology by device id. It is immutable.
type Resolver struct {
	topology *gpu.Topology
	rows     map[ID][]int
}

// NewResolver returns the Resolver of t.
func NewResolver(t *gpu.Topology) *Resolver {
	r := &Resolver{topology: t, rows: map[ID][]int{}}
	gpus, minors := t.RowsOf(gpu.KindsOf(gpu.KindGPU)), map[uint32]bool{}
	for _, row := range gpus {
		minors[t.Devices[row].Minor] = true
	}
	index := func(d *gpu.Device) uint32 { // the N of nvidiaN
		if len(minors) < len(gpus) { // minor numbers are unknown
			return d.NVMLIndex
		}
		return d.Minor
	}
	undivided := t.ProcessRows()
	for row := range t.Devices {
		d := &t.Devices[row]
		uuid, mig := Parse(d.UUID).UUID, Parse(d.MIGUUID).UUID
		var ids []ID
		switch d.Entity.Kind {
		case gpu.KindGPU:
			address, _ := gpu.ParseBusID(d.PCIBusID)
			ids = []ID{
				{Form: FormAll}, {Form: FormGPU, UUID: uuid}, {Form: FormBare, UUID: strings.TrimPrefix(uuid, "GPU-")},
				{Form: FormIndex, Index: index(d)}, {Form: FormNVMLIndex, Index: d.NVMLIndex},
				{Form: FormBusID, BusID: address},
			}
			if undivided[row] {
				ids = append(ids, ID{Form: FormNode, Index: index(d)})
			}
		case gpu.KindGPUInstance:
			n := d.NVMLIndex // the GPU itself is not watched
			if parent := t.ParentRow(row); parent >= 0 {
				n = index(&t.Devices[parent])
			}
			ids = []ID{
				{Form: FormAll}, {Form: FormMIG, UUID: mig}, {Form: FormBare, UUID: strings.TrimPrefix(mig, "MIG-")},
				{Form: FormMIGPath, UUID: uuid, Instance: d.InstanceID},
				{Form: FormInstance, Index: n, Instance: d.InstanceID},
			}
			if d.Start != nil {
				ids = append(ids, Placed(d.UUID, d.Profile, *d.Start))
			}
		}
		for _, id := range ids {
			r.rows[id] = append(r.rows[id], row)
		}
	}
	return r
}

// Topology returns the Resolver's topology.
func (r *Resolver) Topology() *gpu.Topology { return r.topology }

// Rows returns the rows that match id. If several match, for example because two GPUs share a UUID, it returns nil,
// except for FormAll. A path of a compute instance matches its GPU instance.
//
// Two forms match nothing on a GPU with MIG: a device file does not show which instance was assigned, and the driver
// chooses the order of MIG device indexes.
func (r *Resolver) Rows(id ID) []int {
	id.Replica, id.Compute = "", 0
	rows := r.rows[id]
	if len(rows) > 1 && id.Form != FormAll {
		return nil
	}
	return rows
}
