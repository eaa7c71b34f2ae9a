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

// String returns the kind in the words that logs, checks and documents use.
func (k Kind) String() string {
	switch k {
	case KindGPU:
		return "GPU"
	case KindGPUInstance:
		return "GPU instance"
	case KindNVLink:
		return "NVLink"
	case KindNVSwitch:
		return "NVSwitch"
	case KindCPU:
		return "CPU"
	case KindCPUCore:
		return "CPU core"
	case KindConnectX:
		return "ConnectX"
	case KindNode:
		return "node"
	default:
		return "none"
	}
}

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

// An Entity names one monitored thing of a node for the life of a session. It is comparable and the
// only key under which things are looked up.
//
// ID is the engine's own number: DCGM's entity id, or the NVML index where NVML is the source. For
// links and cores, Parent and ParentKind say whose they are; for MIG instances Parent is the ID of
// the GPU. Both are zero for the other kinds.
type Entity struct {
	Kind       Kind
	ParentKind Kind
	Parent     uint32
	ID         uint32
}

// String returns a short form for logs: "GPU 3", "GPU instance 7 of GPU 0".
func (e Entity) String() string {
	s := e.Kind.String() + " " + strconv.FormatUint(uint64(e.ID), 10)
	if e.ParentKind != KindNone {
		s += " of " + e.ParentKind.String() + " " + strconv.FormatUint(uint64(e.Parent), 10)
	}
	return s
}

// A Device is what is known of one entity for the life of a session: its identity, never its
// measurements. Fields that do not apply to the kind, or that the engine does not report, are
// empty. A Device does not change once it is part of a Topology.
type Device struct {
	Entity Entity

	// GPU is the value of the "gpu" label: DCGM's GPU id, or NVML's index under the NVML source. For
	// an instance or a link of a GPU it is the parent's.
	GPU uint32
	// UUID is the UUID of the GPU ("GPU-…"), for an instance that of its parent, as the reference
	// labels it.
	UUID string
	// PCIBusID has the form 00000000:1B:00.0.
	PCIBusID string
	// NVMLIndex is the N of "nvidiaN" in the device label.
	NVMLIndex uint32
	// Minor is the N of the device file /dev/nvidiaN; GKE's device ids use it.
	Minor uint32
	// Model is the product name, for instance "NVIDIA H100 80GB HBM3".
	Model string

	// InstanceID is NVML's GPU-instance id, the GPU_I_ID label; DCGM's entity id differs from it. Only
	// for GPU instances.
	InstanceID uint32
	// Profile is the MIG profile of the GPU instance as NVML names it, for instance "3g.20gb".
	Profile string
	// MIGUUID is the UUID of the MIG device ("MIG-…"), where known. A GPU instance with several
	// compute instances has none.
	MIGUUID string

	// Link is the number of the link at its parent. Only for links.
	Link uint32
	// Serial is the serial number of a Grace CPU, where known.
	Serial string

	// Place says where the device sits in the machine; nil where it was not requested (Plan.Placement)
	// or the engine does not report it. Only for GPUs.
	Place *Place
}

// An Identity names an entity beyond the life of a session: row numbers and entity ids change with
// the topology, these do not.
type Identity struct {
	UUID     string // of the GPU
	Kind     Kind
	Instance uint32 // NVML's GPU-instance id
}

// Identity returns the device's.
func (d *Device) Identity() Identity {
	return Identity{UUID: d.UUID, Kind: d.Entity.Kind, Instance: d.InstanceID}
}

// InstanceProfile returns the profile of the GPU instance of a MIG device's: a device that is a
// part of its GPU instance is named "1c.3g.20gb".
func InstanceProfile(profile string) string {
	if own, rest, ok := strings.Cut(profile, "."); ok && strings.HasSuffix(own, "c") {
		return rest
	}
	return profile
}

// A Topology is the set of entities of one session. It never changes: when the hardware does, the
// session ends and the next one has a new Topology. A row is an index into Devices; samples, faults
// and columns use rows.
type Topology struct {
	// Devices has parents before their children, and no entity twice.
	Devices []Device
	// Pairs says how the GPUs of Devices are connected, a pair once, in the order of A and then B; nil
	// where they were not requested (Plan.Placement) or the engine does not report them.
	Pairs []Pair

	// Source is "dcgm", "nvml" or "sim".
	Source string
	// Driver is the version of the NVIDIA driver, empty where unknown.
	Driver string
	// Library is the version of libdcgm or libnvidia-ml, empty where unknown.
	Library string
	// Engine is the version of the host engine where it can differ from the library's (DCGM, remote);
	// empty otherwise.
	Engine string
	// Host is the host that the engine runs on if that is not this machine; empty otherwise. It
	// decides the hostname label.
	Host string

	rows        map[Entity]int
	partitioned []bool // per row: a GPU that has instances with rows of their own
}

// NewTopology returns a Topology over devices, which it takes over. Its other fields may be set
// until it is passed on.
func NewTopology(devices []Device) *Topology {
	t := &Topology{Devices: devices, rows: make(map[Entity]int, len(devices)), partitioned: make([]bool, len(devices))}
	for i := range devices {
		e := devices[i].Entity
		t.rows[e] = i
		if e.Kind != KindGPUInstance {
			continue
		}
		if whole := t.ParentRow(i); whole >= 0 {
			t.partitioned[whole] = true
		}
	}
	return t
}

// Serves reports whether a field is served for the entity of a row. A field that exists per GPU
// instance is not served for a partitioned GPU, so that a sum over a node counts nothing twice;
// texts are labels and may stand on both.
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

// ProcessRows reports, per row, whether processes are read of it: of GPU instances, and of GPUs
// that have none.
func (t *Topology) ProcessRows() []bool {
	rows := make([]bool, len(t.Devices))
	for row := range t.Devices { // parents come first
		switch t.Devices[row].Entity.Kind {
		case KindGPU:
			rows[row] = true
		case KindGPUInstance:
			rows[row] = true
			if parent := t.ParentRow(row); parent >= 0 {
				rows[parent] = false
			}
		}
	}
	return rows
}

// ParentRow returns the row of the parent of row: the GPU of an instance or link, the CPU of a
// core. It is -1 where there is none.
func (t *Topology) ParentRow(row int) int {
	e := t.Devices[row].Entity
	if e.ParentKind == KindNone {
		return -1
	}
	if p, ok := t.rows[Entity{Kind: e.ParentKind, ID: e.Parent}]; ok {
		return p
	}
	return -1
}
