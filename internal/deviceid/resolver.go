package deviceid

import (
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A Resolver finds the entities of one topology by device ids. It is immutable.
type Resolver struct {
	topology *gpu.Topology
	gpus     map[uint32]int // value of the gpu label → row of a GPU
	uuids    map[string]int // of GPUs and MIG devices, in lower case → row
	bare     map[string]int // the same without prefix; ambiguous where two share one
	numbers  map[uint32]int // N of nvidiaN → row of a GPU
	byIndex  bool           // numbers are NVML's indices, since the minors are not known
	inner    map[innerKey]int
}

// ambiguous stands for a row where two entities share what is looked up.
const ambiguous = -1

// innerKey names a GPU instance of the GPU of a row.
type innerKey struct {
	parent   int
	instance uint32
}

// NewResolver returns the Resolver of t.
func NewResolver(t *gpu.Topology) *Resolver {
	r := &Resolver{
		topology: t, gpus: map[uint32]int{},
		uuids: map[string]int{}, bare: map[string]int{}, numbers: map[uint32]int{},
		inner: map[innerKey]int{},
	}
	r.addGPUs()
	for row := range t.Devices {
		r.addInstance(row)
	}
	return r
}

// Topology returns the topology whose entities are found.
func (r *Resolver) Topology() *gpu.Topology { return r.topology }

func (r *Resolver) addGPUs() {
	minors := map[uint32]bool{}
	for row := range r.topology.Devices {
		if d := &r.topology.Devices[row]; d.Entity.Kind == gpu.KindGPU {
			r.gpus[d.GPU] = row
			minors[d.Minor] = true
		}
	}
	r.byIndex = len(minors) < len(r.gpus)
	for row := range r.topology.Devices {
		d := &r.topology.Devices[row]
		if d.Entity.Kind != gpu.KindGPU {
			continue
		}
		r.name(d.UUID, row)
		n := d.Minor
		if r.byIndex {
			n = d.NVMLIndex
		}
		r.numbers[n] = row
	}
}

func (r *Resolver) addInstance(row int) {
	d := &r.topology.Devices[row]
	if d.Entity.Kind == gpu.KindGPUInstance {
		r.name(d.MIGUUID, row)
		r.inner[innerKey{r.keyOf(d), d.InstanceID}] = row
	}
}

// keyOf returns the row of the GPU of an instance, or a negative number of its own for a GPU that
// is not watched itself.
func (r *Resolver) keyOf(d *gpu.Device) int {
	if row, ok := r.gpus[d.GPU]; ok {
		return row
	}
	return -1 - int(d.GPU)
}

func (r *Resolver) name(uuid string, row int) {
	if uuid == "" {
		return
	}
	uuid = strings.ToLower(uuid)
	r.uuids[uuid] = row
	short := strings.TrimPrefix(strings.TrimPrefix(uuid, "gpu-"), "mig-")
	if _, twice := r.bare[short]; twice {
		row = ambiguous
	}
	r.bare[short] = row
}

// Rows returns the rows that id names; nil means that the topology has none. A compute instance is
// named by its path alone, and stands for the GPU instance that it is in.
//
// A device file of a GPU that is partitioned by MIG does not say which of its instances came with
// it, and the order of MIG devices by index is the driver's own: both name nothing.
func (r *Resolver) Rows(id ID) []int {
	if id.Form == FormAll {
		return r.all()
	}
	row, ok := r.row(id)
	if !ok {
		return nil
	}
	return []int{row}
}

// all returns the rows of every GPU and instance.
func (r *Resolver) all() []int {
	var rows []int
	for row := range r.topology.Devices {
		switch r.topology.Devices[row].Entity.Kind {
		case gpu.KindGPU, gpu.KindGPUInstance:
			rows = append(rows, row)
		}
	}
	return rows
}

func (r *Resolver) row(id ID) (row int, ok bool) {
	switch id.Form {
	case FormGPU, FormMIG:
		row, ok = r.uuids[strings.ToLower(id.UUID)]
	case FormBare:
		row, ok = r.bare[id.UUID]
		ok = ok && row != ambiguous
	case FormMIGPath:
		row, ok = r.byPath(id)
	case FormIndex:
		row, ok = r.numbers[id.Index]
	case FormInstance:
		if parent, found := r.numbers[id.Index]; found {
			row, ok = r.inner[innerKey{parent, id.Instance}]
		} else {
			row, ok = r.orphan(func(d *gpu.Device) bool { return d.NVMLIndex == id.Index && d.InstanceID == id.Instance })
		}
	case FormNode:
		row, ok = r.numbers[id.Index]
		ok = ok && !r.isPartitioned(row)
	case FormNVMLIndex:
		row, ok = r.findGPU(func(d *gpu.Device) bool { return d.NVMLIndex == id.Index })
	case FormBusID:
		row, ok = r.findGPU(func(d *gpu.Device) bool { return sameBusID(d.PCIBusID, id.BusID) })
	}
	return row, ok
}

func (r *Resolver) byPath(id ID) (row int, ok bool) {
	parent, ok := r.parent(id.UUID)
	if !ok {
		return 0, false
	}
	row, ok = r.inner[innerKey{parent, id.Instance}]
	return row, ok
}

// parent finds the GPU by its UUID: its row, or what keyOf returns for one that is not watched
// itself.
func (r *Resolver) parent(uuid string) (int, bool) {
	if row, ok := r.uuids[strings.ToLower(uuid)]; ok {
		return row, true
	}
	row, ok := r.orphan(func(d *gpu.Device) bool { return strings.EqualFold(d.UUID, uuid) })
	if !ok {
		return 0, false
	}
	return r.keyOf(&r.topology.Devices[row]), true
}

// orphan finds an instance whose GPU is not watched itself.
func (r *Resolver) orphan(is func(*gpu.Device) bool) (row int, ok bool) {
	for row := range r.topology.Devices {
		d := &r.topology.Devices[row]
		if d.Entity.Kind == gpu.KindGPUInstance && r.topology.ParentRow(row) < 0 && is(d) {
			return row, true
		}
	}
	return 0, false
}

func (r *Resolver) findGPU(is func(*gpu.Device) bool) (row int, ok bool) {
	row = slices.IndexFunc(r.topology.Devices, func(d gpu.Device) bool { return d.Entity.Kind == gpu.KindGPU && is(&d) })
	return row, row >= 0
}

// isPartitioned reports whether the GPU of a row has instances.
func (r *Resolver) isPartitioned(row int) bool {
	e := r.topology.Devices[row].Entity
	return slices.ContainsFunc(r.topology.Devices, func(d gpu.Device) bool {
		return d.Entity.Kind == gpu.KindGPUInstance && d.Entity.Parent == e.ID
	})
}

// sameBusID compares PCI addresses, whose domain has four digits or eight.
func sameBusID(a, b string) bool {
	a, b = strings.TrimLeft(strings.ToLower(a), "0"), strings.TrimLeft(b, "0")
	return a != "" && a == b
}
