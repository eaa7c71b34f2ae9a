package podmapper

import (
	"fmt"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A Resolver finds the entities of one topology by device ids. It is immutable.
type Resolver struct {
	topology *gpu.Topology
	uuids    map[string]int // of GPUs and MIG devices, in lower case → row
	bare     map[string]int // the same without prefix; -1 where two share one
	numbers  map[uint32]int // N of nvidiaN → row of a GPU
	byIndex  bool           // numbers are NVML's indices, since the minors are not known
	inner    map[innerKey]int
	children map[int][]int        // row of an instance → rows of its compute instances
	parts    map[innerKey]float64 // compute instance → which part of its GPU instance it is
	partIDs  map[string]innerKey  // UUID of a compute instance in lower case
}

// innerKey names an instance of the GPU of a row.
type innerKey struct {
	kind              gpu.Kind
	parent            int
	instance, compute uint32
}

// NewResolver returns the Resolver of t.
func NewResolver(t *gpu.Topology) *Resolver {
	r := &Resolver{
		topology: t,
		uuids:    map[string]int{}, bare: map[string]int{}, numbers: map[uint32]int{},
		inner: map[innerKey]int{}, children: map[int][]int{}, parts: map[innerKey]float64{}, partIDs: map[string]innerKey{},
	}
	gpus := map[uint32]int{} // the value of the gpu label → row
	minors, distinct := map[uint32]bool{}, true
	for row := range t.Devices {
		if d := &t.Devices[row]; d.Entity.Kind == gpu.KindGPU {
			gpus[d.GPU] = row
			distinct = distinct && !minors[d.Minor]
			minors[d.Minor] = true
		}
	}
	r.byIndex = !distinct
	for row := range t.Devices {
		d := &t.Devices[row]
		parent, ok := gpus[d.GPU]
		if !ok {
			parent = -1 - int(d.GPU) // the GPU itself is not watched
		}
		switch d.Entity.Kind {
		case gpu.KindGPU:
			r.name(d.UUID, row)
			n := d.Minor
			if r.byIndex {
				n = d.NVMLIndex
			}
			r.numbers[n] = row
		case gpu.KindGPUInstance:
			r.name(d.MIGUUID, row)
			r.inner[innerKey{d.Entity.Kind, parent, d.InstanceID, 0}] = row
		case gpu.KindComputeInstance:
			r.inner[innerKey{d.Entity.Kind, parent, d.InstanceID, d.ComputeID}] = row
			if _, ok := r.uuids[strings.ToLower(d.MIGUUID)]; !ok {
				r.name(d.MIGUUID, row)
			}
			if up := t.InstanceRow(row); up >= 0 {
				r.children[up] = append(r.children[up], row)
			}
		}
	}
	r.divide(gpus)
	return r
}

// divide learns the compute instances of divided GPU instances: who holds one
// of them holds a part of the GPU instance, whether or not it has a row itself.
func (r *Resolver) divide(gpus map[uint32]int) {
	for i := range r.topology.Divided {
		c := &r.topology.Divided[i]
		d := &r.topology.Devices[c.Instance]
		parent, ok := gpus[d.GPU]
		if !ok {
			parent = -1 - int(d.GPU)
		}
		key := innerKey{gpu.KindComputeInstance, parent, d.InstanceID, c.ID}
		r.parts[key] = r.topology.Part(i)
		if c.UUID == "" {
			continue
		}
		r.partIDs[strings.ToLower(c.UUID)] = key
		if _, ok := r.uuids[strings.ToLower(c.UUID)]; !ok {
			r.name(c.UUID, c.Instance)
		}
	}
}

// Part returns which part of a divided GPU instance id names, 0 where it names
// something else.
func (r *Resolver) Part(id ID) float64 {
	switch id.Form {
	case FormMIG:
		return r.parts[r.partIDs[strings.ToLower(id.UUID)]]
	case FormBare:
		return r.parts[r.partIDs["mig-"+id.UUID]]
	case FormMIGPath:
		if parent, ok := r.parent(id.UUID); ok {
			return r.parts[innerKey{gpu.KindComputeInstance, parent, id.Instance, id.Compute}]
		}
	}
	return 0
}

func (r *Resolver) name(uuid string, row int) {
	if uuid == "" {
		return
	}
	uuid = strings.ToLower(uuid)
	r.uuids[uuid] = row
	short := strings.TrimPrefix(strings.TrimPrefix(uuid, "gpu-"), "mig-")
	if _, twice := r.bare[short]; twice {
		row = -1
	}
	r.bare[short] = row
}

// Rows returns the rows that id names, the entity itself first; with it come
// the entities that are given out together with it: a GPU instance with its
// compute instances, and a compute instance with the GPU instance that it is a
// part of. Nil means that the topology has none.
func (r *Resolver) Rows(id ID) []int {
	row, ok := r.row(id)
	if !ok {
		return nil
	}
	switch d := &r.topology.Devices[row]; d.Entity.Kind {
	case gpu.KindGPUInstance:
		if id.Form != FormMIG || len(r.children[row]) == 1 {
			return append([]int{row}, r.children[row]...)
		}
	case gpu.KindComputeInstance:
		if up := r.topology.InstanceRow(row); up >= 0 {
			return []int{row, up}
		}
	}
	return []int{row}
}

func (r *Resolver) row(id ID) (int, bool) {
	row, ok := -1, false
	switch id.Form {
	case FormGPU, FormMIG:
		row, ok = r.uuids[strings.ToLower(id.UUID)]
	case FormBare:
		row, ok = r.bare[id.UUID]
		ok = ok && row >= 0
	case FormMIGPath:
		if parent, found := r.parent(id.UUID); found {
			if row, ok = r.inner[innerKey{gpu.KindComputeInstance, parent, id.Instance, id.Compute}]; !ok {
				row, ok = r.inner[innerKey{gpu.KindGPUInstance, parent, id.Instance, 0}]
			}
		}
	case FormIndex:
		row, ok = r.numbers[id.Index]
	case FormInstance:
		if parent, found := r.numbers[id.Index]; found {
			row, ok = r.inner[innerKey{gpu.KindGPUInstance, parent, id.Instance, 0}]
		} else {
			row, ok = r.orphan(func(d *gpu.Device) bool { return d.NVMLIndex == id.Index && d.InstanceID == id.Instance })
		}
	}
	return row, ok
}

// parent finds the GPU by its UUID: its row, or the negative key of one that is
// not watched itself.
func (r *Resolver) parent(uuid string) (int, bool) {
	if row, ok := r.uuids[strings.ToLower(uuid)]; ok {
		return row, true
	}
	row, ok := r.orphan(func(d *gpu.Device) bool { return strings.EqualFold(d.UUID, uuid) })
	if !ok {
		return 0, false
	}
	return -1 - int(r.topology.Devices[row].GPU), true
}

// orphan finds an instance whose GPU is not watched itself.
func (r *Resolver) orphan(is func(*gpu.Device) bool) (int, bool) {
	for row := range r.topology.Devices {
		d := &r.topology.Devices[row]
		if d.Entity.Kind == gpu.KindGPUInstance && r.topology.ParentRow(row) < 0 && is(d) {
			return row, true
		}
	}
	return -1, false
}

// Describe names the entity of a row for people.
func (r *Resolver) Describe(row int) string {
	d := &r.topology.Devices[row]
	switch d.Entity.Kind {
	case gpu.KindGPU:
		return fmt.Sprintf("GPU %d (%s, %s)", d.GPU, d.Model, d.UUID)
	case gpu.KindGPUInstance:
		return fmt.Sprintf("GPU instance %d (%s) of GPU %d (%s)", d.InstanceID, d.Profile, d.GPU, d.UUID)
	default:
		return fmt.Sprintf("compute instance %d (%s) of GPU instance %d of GPU %d", d.ComputeID, d.Profile, d.InstanceID, d.GPU)
	}
}

// Explain returns, step by step and in sentences, how id finds its entity in
// the topology, or why it does not.
func (r *Resolver) Explain(id ID) []string {
	steps := []string{id.describe()}
	say := func(format string, args ...any) { steps = append(steps, fmt.Sprintf(format, args...)) }
	if id.Form == FormUnknown {
		return append(steps, "No rule reads it: expected GPU-UUID, MIG-UUID, either with ::REPLICA, MIG-GPU-UUID/GI/CI, nvidiaN, nvidiaN/giN, either with /vgpuN, a bare UUID, or DRIVER/POOL/DEVICE of a dynamic claim.")
	}
	if rows := r.Rows(id); rows != nil {
		if id.Form == FormIndex || id.Form == FormInstance {
			if r.byIndex {
				say("The GPUs' minor numbers are not known, so N of nvidiaN is taken for NVML's index.")
			} else {
				say("N of nvidiaN is the minor number of the device file /dev/nvidiaN.")
			}
		}
		for _, row := range rows {
			say("The source has it: %s.", r.Describe(row))
		}
		if r.Part(id) > 0 && r.topology.Devices[rows[0]].Entity.Kind == gpu.KindGPUInstance {
			say("It is a compute instance, one of the parts of that GPU instance; with +c in --devices it has series of its own.")
		}
		return steps
	}
	say("The source has no such entity among %s.", r.inventory())
	switch id.Form {
	case FormGPU, FormIndex:
		say("A GPU that --devices leaves out, that is lost, or that was handed to a virtual machine is not there.")
	case FormBare:
		if row, ok := r.bare[id.UUID]; ok && row < 0 {
			say("Two entities have this UUID behind different prefixes, and the id says none.")
		}
	case FormMIG:
		if !r.knowsMIGUUIDs() {
			say("The source tells no UUID of a MIG device: the driver or engine does not give them, or no GPU is cut by MIG.")
		} else {
			say("The instance may have been destroyed: MIG UUIDs change with every repartition.")
		}
	case FormMIGPath, FormInstance:
		if id.Form == FormMIGPath {
			if _, ok := r.parent(id.UUID); !ok {
				say("Not even its GPU %s is there.", id.UUID)
				break
			}
		}
		say("The GPU has no GPU instance %d now.", id.Instance)
	}
	return steps
}

func (r *Resolver) knowsMIGUUIDs() bool {
	if len(r.partIDs) > 0 {
		return true
	}
	for i := range r.topology.Devices {
		if r.topology.Devices[i].MIGUUID != "" {
			return true
		}
	}
	return false
}

func (r *Resolver) inventory() string {
	var count [gpu.KindNode + 1]int
	for i := range r.topology.Devices {
		count[r.topology.Devices[i].Entity.Kind]++
	}
	s := fmt.Sprintf("%d GPUs and %d GPU instances", count[gpu.KindGPU], count[gpu.KindGPUInstance])
	if n := count[gpu.KindComputeInstance]; n > 0 {
		s += fmt.Sprintf(" with %d compute instances", n)
	}
	return s
}

// describe says in a sentence what the id is.
func (id ID) describe() string {
	var s string
	switch id.Form {
	case FormGPU:
		s = "the UUID of a GPU, " + id.UUID
	case FormMIG:
		s = "the UUID of a MIG device, " + id.UUID
	case FormMIGPath:
		s = fmt.Sprintf("the name that drivers before R470 give a MIG device: GPU %s, GPU instance %d, compute instance %d", id.UUID, id.Instance, id.Compute)
	case FormIndex:
		s = fmt.Sprintf("a GPU by its device file, nvidia%d (GKE)", id.Index)
	case FormInstance:
		s = fmt.Sprintf("GPU instance %d of the GPU with device file nvidia%d (GKE)", id.Instance, id.Index)
	case FormBare:
		s = "a UUID without prefix, of a GPU or a MIG device"
	case FormClaim:
		s = fmt.Sprintf("device %s of pool %s of the driver %s, which a dynamic claim holds", id.Device, id.Pool, id.Driver)
	default:
		return fmt.Sprintf("%q is no id that the exporter knows.", id.Text)
	}
	if id.Replica != "" {
		s += fmt.Sprintf("; replica %s of it, so it is shared by time-slicing or MPS", id.Replica)
	}
	return "It is " + s + "."
}
