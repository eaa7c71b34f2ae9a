package gpu

import (
	"strconv"
	"strings"
)

// Kind is the kind of a monitored entity. The zero Kind is no entity.
type Kind uint8

// The kinds of entities, in the order in which a page lists them.
const (
	KindNone        Kind = iota
	KindGPU              // a whole GPU (DCGM_FE_GPU)
	KindGPUInstance      // a MIG GPU instance (DCGM_FE_GPU_I)
	KindNVLink           // a link of a GPU or of a switch (DCGM_FE_LINK)
	KindNVSwitch         // an NVSwitch (DCGM_FE_SWITCH)
	KindCPU              // a Grace CPU (DCGM_FE_CPU)
	KindCPUCore          // a core of a Grace CPU (DCGM_FE_CPU_CORE)
	KindConnectX         // a ConnectX network card (DCGM_FE_CONNECTX)
	KindNode             // the machine itself (DCGM_FE_NONE)

	kindCount
)

var kindNames = [kindCount]string{"none", "GPU", "GPU instance", "NVLink", "NVSwitch", "CPU", "CPU core", "ConnectX", "node"}

// String returns the kind in words.
func (k Kind) String() string { return kindNames[k] }

// Kinds is a set of kinds.
type Kinds uint16

// KindsOf returns the set that holds the given kinds.
func KindsOf(kinds ...Kind) Kinds {
	var s Kinds
	for _, k := range kinds {
		s |= 1 << k
	}
	return s
}

// Has reports whether the set holds k.
func (s Kinds) Has(k Kind) bool { return s&(1<<k) != 0 }

// List returns the kinds of the set in ascending order.
func (s Kinds) List() []Kind {
	var list []Kind
	for k := KindGPU; k < kindCount; k++ {
		if s.Has(k) {
			list = append(list, k)
		}
	}
	return list
}

// An Entity names one monitored thing of a node for the life of a session.
type Entity struct {
	Kind Kind
	// ParentKind and Parent (its ID) are those of the GPU of an instance, of the GPU or switch of a link, of the CPU of a
	// core; zero for the other kinds.
	ParentKind Kind
	Parent     uint32
	ID         uint32 // DCGM's entity id, or NVML's index
}

// String returns a short form for logs: "GPU 3", "GPU instance 7 of GPU 0".
func (e Entity) String() string {
	s := e.Kind.String() + " " + strconv.FormatUint(uint64(e.ID), 10)
	if e.ParentKind != KindNone {
		s += " of " + e.ParentKind.String() + " " + strconv.FormatUint(uint64(e.Parent), 10)
	}
	return s
}

// A Device is the identity of one entity for the life of a session. Fields that do not apply to the kind, or that the
// engine does not report, are empty. A Device does not change once it is part of a Topology.
type Device struct {
	Entity Entity

	// Of a GPU; those of an instance or a link are its GPU's.
	GPU       uint32 // the "gpu" label: DCGM's GPU id, or NVML's index
	UUID      string // "GPU-…"
	PCIBusID  string // in the form 00000000:1B:00.0
	NVMLIndex uint32 // N of "nvidiaN" in the device label
	Minor     uint32 // N of the device file /dev/nvidiaN, as in GKE's device ids
	Model     string // "NVIDIA H100 80GB HBM3"

	// Of a GPU instance.
	InstanceID uint32 // NVML's id, the GPU_I_ID label; DCGM's entity id differs
	Profile    string // "3g.20gb"
	MIGUUID    string // "MIG-…"; empty for an instance with several compute instances
	// Start is its first memory slice within the GPU, from 0; nil where NVML does not say it.
	Start *uint32

	Link   uint32 // the number of a link at its parent
	Serial string // of a Grace CPU

	// Place is of a GPU; nil where it was not requested (Plan.Placement) or the engine does not report it.
	Place *Place
}

// An Identity names an entity beyond the life of a session. Rows and entity ids change with the topology.
type Identity struct {
	UUID     string // of the GPU
	Kind     Kind
	Instance uint32 // NVML's GPU-instance id
}

// Identity returns the device's.
func (d *Device) Identity() Identity {
	return Identity{UUID: d.UUID, Kind: d.Entity.Kind, Instance: d.InstanceID}
}

// InstanceProfile returns the GPU instance's part of the profile of a MIG device: "3g.20gb" of "1c.3g.20gb".
func InstanceProfile(profile string) string {
	if own, rest, ok := strings.Cut(profile, "."); ok && strings.HasSuffix(own, "c") {
		return rest
	}
	return profile
}

// A Topology is the set of entities of one session. It never changes: when the hardware does, the next session has
// another one. A row of a sample, a fault or a column is an index into Devices.
type Topology struct {
	// Devices has parents before their children, and no entity twice.
	Devices []Device
	// Pairs are the connections of the GPUs, each once, in the order of A and then B; nil where they were not requested
	// (Plan.Placement) or the engine does not report them.
	Pairs []Pair

	Source string // "dcgm", "nvml" or "sim"
	// Driver, Library (libdcgm or libnvidia-ml) and Engine (of a remote host engine) are versions; empty where unknown.
	Driver, Library, Engine string
	// Host is the engine's for the hostname label; empty for this machine.
	Host string

	rows        map[Entity]int
	partitioned []bool // per row: a GPU with rows of its instances
}

// NewTopology returns a Topology over devices, which it owns from then on. Its other fields may be set until it is
// passed on.
func NewTopology(devices []Device) *Topology {
	t := &Topology{Devices: devices, rows: make(map[Entity]int, len(devices)), partitioned: make([]bool, len(devices))}
	for i := range devices {
		e := devices[i].Entity
		t.rows[e] = i
		if e.Kind != KindGPUInstance {
			continue
		}
		if parent := t.ParentRow(i); parent >= 0 {
			t.partitioned[parent] = true
		}
	}
	return t
}

// Serves reports whether a field is served for the entity of a row. A number that exists per GPU instance is not
// served for a partitioned GPU, so that a sum over a node counts nothing twice.
func (t *Topology) Serves(f *Field, row int) bool {
	if t.partitioned[row] && !f.Text && f.Levels.Has(KindGPUInstance) {
		return false
	}
	return f.Levels.Has(t.Devices[row].Entity.Kind)
}

// Row returns the row of e, and whether the topology has it.
func (t *Topology) Row(e Entity) (int, bool) {
	row, ok := t.rows[e]
	return row, ok
}

// RowsOf returns the rows of the entities of some kinds, in their order.
func (t *Topology) RowsOf(kinds Kinds) (rows []int) {
	for row := range t.Devices {
		if kinds.Has(t.Devices[row].Entity.Kind) {
			rows = append(rows, row)
		}
	}
	return rows
}

// ProcessRows reports, per row, whether processes are read of it: of GPU instances, and of GPUs without instances.
func (t *Topology) ProcessRows() []bool {
	rows := make([]bool, len(t.Devices))
	for row := range t.Devices {
		kind := t.Devices[row].Entity.Kind
		rows[row] = kind == KindGPUInstance || kind == KindGPU && !t.partitioned[row]
	}
	return rows
}

// ParentRow returns the row of the parent of row: the GPU of an instance, the GPU or switch of a link, the CPU of a
// core. It is -1 where there is none.
func (t *Topology) ParentRow(row int) int {
	e := t.Devices[row].Entity
	if p, ok := t.rows[Entity{Kind: e.ParentKind, ID: e.Parent}]; ok && e.ParentKind != KindNone {
		return p
	}
	return -1
}
