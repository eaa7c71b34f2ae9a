// Package gpu defines the types that all packages share: entities, devices and topologies, fields and values, the
// plan of a session, the request and the batch of a read, owners, snapshots, and the typed errors. It imports no other
// package of this module.
//
// A source fills a Batch with samples. Each sample names a row of the session's Topology and a field of its Plan.
// Package snapshot turns the Batch into a Snapshot, and package exposition renders that as a page.
//
// The zero Value means "no value". Only the packages that talk to a driver know its sentinels and blank codes.
package gpu

import (
	"fmt"
	"strconv"
	"strings"
)

// Kind is the kind of a monitored entity. The zero Kind means no entity.
type Kind uint8

// The kinds of entities, in page order.
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

var kindNames = [kindCount]string{
	"none", "GPU", "GPU instance", "NVLink", "NVSwitch", "CPU", "CPU core", "ConnectX", "node",
}

// String returns the kind in words, such as "GPU instance".
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

// An Entity identifies anything that DCGM gives an ID: a GPU, an instance, a link, a switch and so on. It is valid for
// the life of a session.
type Entity struct {
	Kind Kind
	// ParentKind and Parent identify the parent: the GPU of an instance, the GPU or switch of a link, or the CPU of a
	// core. They are zero for other kinds.
	ParentKind Kind
	Parent     uint32
	ID         uint32 // DCGM's entity ID, or NVML's index
}

// String returns a short form for logs: "GPU 3", "GPU instance 7 of GPU 0".
func (e Entity) String() string {
	s := e.Kind.String() + " " + strconv.FormatUint(uint64(e.ID), 10)
	if e.ParentKind != KindNone {
		s += " of " + e.ParentKind.String() + " " + strconv.FormatUint(uint64(e.Parent), 10)
	}
	return s
}

// InstanceLabel is the name of the label for the GPU instance.
const InstanceLabel = "GPU_I_ID"

// A Device describes one entity for the life of a session. Fields are empty if they do not apply to the kind or if the
// engine does not report them. A Device does not change once it is part of a Topology.
type Device struct {
	Entity Entity

	// Fields of a GPU. Instances and links have those of their GPU.

	GPU       uint32 // "gpu" label: DCGM's GPU ID, or NVML's index
	UUID      string // "GPU-…"
	PCIBusID  string // in the form 00000000:1B:00.0
	NVMLIndex uint32 // N of "nvidiaN" in the device label
	Minor     uint32 // N of the device file /dev/nvidiaN, as in GKE's device IDs
	Model     string // "NVIDIA H100 80GB HBM3"

	// Fields of a GPU instance.

	InstanceID uint32  // NVML's ID and the value of InstanceLabel; it differs from DCGM's entity ID
	Profile    string  // "3g.20gb"
	MIGUUID    string  // "MIG-…"; empty for an instance with several compute instances
	Start      *uint32 // first memory slice within the GPU, from 0; nil if NVML does not report it

	Link   uint32 // number of a link at its parent
	Serial string // serial number of a Grace CPU

	// Place locates a GPU in its machine. It is nil if Plan.Placement is not set or if the engine does not report it.
	Place *Place
}

// BusID returns a PCI address in the form of Device.PCIBusID: 00000000:1B:00.0.
func BusID(domain, bus, device, function uint32) string {
	return fmt.Sprintf("%08X:%02X:%02X.%X", domain, bus, device, function)
}

// ParseBusID converts a PCI address of domain, bus, device and function to the form of Device.PCIBusID. The domain has
// at most eight hexadecimal digits, often four.
func ParseBusID(address string) (id string, ok bool) {
	slot, function, _ := strings.Cut(address, ".")
	parts := append(strings.Split(slot, ":"), function)
	if len(parts) != 4 {
		return "", false
	}
	var numbers [4]uint32
	for i, bits := range [...]int{32, 8, 5, 3} {
		n, err := strconv.ParseUint(parts[i], 16, bits)
		if err != nil {
			return "", false
		}
		numbers[i] = uint32(n)
	}
	return BusID(numbers[0], numbers[1], numbers[2], numbers[3]), true
}

// An Identity identifies an entity across sessions. Rows and entity IDs, in contrast, change with the topology.
type Identity struct {
	UUID     string // UUID of the GPU
	Kind     Kind
	Instance uint32 // NVML's GPU instance ID
}

// Identity returns the identity of the device.
func (d *Device) Identity() Identity {
	return Identity{UUID: d.UUID, Kind: d.Entity.Kind, Instance: d.InstanceID}
}

// InstanceProfile returns the GPU instance profile in the name or the profile of a MIG device: "3g.20gb" for
// "NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb" and for "1c.3g.20gb".
func InstanceProfile(name string) string {
	profile := name
	if i := strings.LastIndex(name, "MIG "); i >= 0 {
		profile = name[i+len("MIG "):]
	}
	profile = strings.TrimSpace(profile)
	if own, rest, ok := strings.Cut(profile, "."); ok && strings.HasSuffix(own, "c") {
		return rest
	}
	return profile
}

// A Topology is the immutable set of entities of one session. When the hardware changes, a new session with a new
// Topology begins. A row of a sample, a fault or a column is an index into Devices.
type Topology struct {
	// Devices lists each entity once, parents before their children.
	Devices []Device
	// Pairs lists the connections of GPUs, sorted by A and then B. It is nil if Plan.Placement is not set or if the
	// engine does not report them.
	Pairs []Pair

	Source string // "dcgm", "nvml" or "sim"
	// Driver, Library (libdcgm or libnvidia-ml) and Engine (a remote host engine) are versions, or empty if unknown.
	Driver, Library, Engine string
	// Host is the hostname label of a remote engine, or empty for this machine.
	Host string

	rows        map[Entity]int
	partitioned []bool // by row: the GPU has instances in this topology
}

// NewTopology returns a Topology of the devices and takes ownership of the slice. The caller may set the other fields
// until it passes the Topology on.
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

// Serves reports whether a field is served for the entity of a row. Numbers that exist for GPU instances are not
// served for a partitioned GPU, so that a sum over a node counts nothing twice.
func (t *Topology) Serves(f *Field, row int) bool {
	if t.partitioned[row] && !f.Text && f.Levels.Has(KindGPUInstance) {
		return false
	}
	return f.Levels.Has(t.Devices[row].Entity.Kind)
}

// Row returns the row of e and whether the topology contains e.
func (t *Topology) Row(e Entity) (int, bool) {
	row, ok := t.rows[e]
	return row, ok
}

// RowsOf returns the rows of all entities of the given kinds, in ascending order.
func (t *Topology) RowsOf(kinds Kinds) (rows []int) {
	for row := range t.Devices {
		if kinds.Has(t.Devices[row].Entity.Kind) {
			rows = append(rows, row)
		}
	}
	return rows
}

// ProcessRows reports for each row whether its processes are read. They are read for GPU instances and for GPUs
// without instances.
func (t *Topology) ProcessRows() []bool {
	rows := make([]bool, len(t.Devices))
	for row := range t.Devices {
		kind := t.Devices[row].Entity.Kind
		rows[row] = kind == KindGPUInstance || kind == KindGPU && !t.partitioned[row]
	}
	return rows
}

// ParentRow returns the row of the parent: the GPU of an instance, the GPU or switch of a link, or the CPU of a core.
// It returns -1 if there is none.
func (t *Topology) ParentRow(row int) int {
	e := t.Devices[row].Entity
	if p, ok := t.rows[Entity{Kind: e.ParentKind, ID: e.Parent}]; ok && e.ParentKind != KindNone {
		return p
	}
	return -1
}

// A Place is where a GPU sits in its machine.
type Place struct {
	NUMANode int    // nearest memory node; negative if unknown
	CPUs     string // nearest CPUs in Linux's list format, "0-31,64-95"; empty if unknown
}

// PlaceOf returns the place of a GPU from the bit masks of its nearest memory nodes and CPUs, lowest bit first. The
// NUMA node is unknown if the mask has several.
func PlaceOf[W uint | uint64](nodes, cpus []W) Place {
	p := Place{NUMANode: -1, CPUs: listOf(cpus)}
	if n, err := strconv.Atoi(listOf(nodes)); err == nil {
		p.NUMANode = n
	}
	return p
}

// listOf returns the bits of a mask of 64-bit words in Linux's list format: "0-31,64-95".
func listOf[W uint | uint64](mask []W) string {
	var ranges []string
	has := func(i int) bool { return i < len(mask)*64 && mask[i/64]>>(i%64)&1 != 0 }
	for i := 0; i < len(mask)*64; i++ {
		if !has(i) {
			continue
		}
		first := strconv.Itoa(i)
		last := i
		for has(last + 1) {
			last++
		}
		if last > i {
			first += "-" + strconv.Itoa(last)
		}
		ranges = append(ranges, first)
		i = last
	}
	return strings.Join(ranges, ",")
}

// A Path is the PCIe path between two GPUs, from near to far (nvmlGpuTopologyLevel_t).
type Path uint8

// The paths. String returns the abbreviation that "nvidia-smi topo -m" uses.
const (
	PathUnknown    Path = iota
	PathBoard           // "PSB": two GPUs of one board
	PathSwitch          // "PIX": at most one PCIe switch
	PathSwitches        // "PXB": several PCIe switches, no host bridge
	PathHostBridge      // "PHB": a PCIe host bridge
	PathNode            // "NODE": between the host bridges of one NUMA node
	PathSystem          // "SYS": between NUMA nodes
)

// String returns the abbreviation of "nvidia-smi topo -m", or "" for PathUnknown.
func (p Path) String() string { return [...]string{"", "PSB", "PIX", "PXB", "PHB", "NODE", "SYS"}[p] }

// A Pair is the connection of two GPUs.
type Pair struct {
	A, B    int // rows of the GPUs, with A < B
	Path    Path
	NVLinks int // number of NVLinks between them, directly or through switches
}
