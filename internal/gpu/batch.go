package gpu

import (
	"slices"
	"time"
)

// A Sample is one value of one field of one entity.
type Sample struct {
	Row   int // the row of the entity in the session's Topology
	Field int // the index of the field in the Plan
	Value Value
	Time  int64 // when the engine took the sample: Unix nanoseconds of this machine's clock
}

// A Process is the activity of one process on one entity since the previous Read. Memory is absent if the process
// has ended.
type Process struct {
	Row    int    // the GPU or GPU instance
	PID    uint32 // process ID in the host's PID namespace
	Busy   Value  // fraction of the interval, 0 to 1; absent if the driver does not report it (MIG)
	Memory Value  // device memory in bytes; absent if the driver does not report it
	Time   int64  // time of the sample in Unix nanoseconds
}

// A Utilization is how busy an entity was over the interval of its Processes. DCGM's utilization field, in contrast,
// describes a single moment.
type Utilization struct {
	Row  int   // the GPU or GPU instance
	Busy Value // fraction of the interval, 0 to 1
}

// A HealthCheck is the result of one of the engine's health watches for one entity (dcgmHealthResponse_v5).
type HealthCheck struct {
	Row    int
	Watch  string // health_watch label: "PCIE", or the engine's number in hexadecimal
	Code   string // health_error_code label: a name or the engine's number; empty if there is no error
	Result int64  // DCGM's result: 0 pass, 10 warn, 20 fail
	NoLink bool   // the finding is a link that is down, on a GPU that has no active link at all
}

// A PeerState is the state of the peer-to-peer connection of two GPUs over NVLink.
type PeerState struct {
	Row, Peer int    // rows of GPUs
	Status    string // link_status label
}

// LinkState is whether a GPU with NVLinks has an active one.
type LinkState struct {
	Row int // row of a GPU
	Up  bool
}

// peerStatuses lists the values of PeerState.Status by the numbers that DCGM and NVML share
// (dcgmNvLinkGpuP2PStatus_t, nvmlGpuP2PStatus_t). Numbers that only later engines know map to the last one.
var peerStatuses = [...]string{
	"OK", "ChipsetNotSupported", "GPUNotSupported", "TopologyNotSupported", "DisabledByRegKey", "NotSupported",
	"Unknown",
}

// PeerStatus returns the status for the number that an engine reports.
func PeerStatus(number uint32) string {
	return peerStatuses[min(number, uint32(len(peerStatuses)-1))]
}

// Number returns the engine's number for the status. For an unknown status it returns the number of "Unknown".
func (p *PeerState) Number() int64 {
	if i := slices.Index(peerStatuses[:], p.Status); i >= 0 {
		return int64(i)
	}
	return int64(len(peerStatuses) - 1)
}

// A Fault says that something could not be read in this cycle, and why.
type Fault struct {
	Row   int   // the entity, or AllRows
	Part  Part  // what is missing
	Field int   // index of the field in the Plan, if Part is PartField
	Err   error // wraps one of this package's errors
}

// AllRows makes a Fault apply to every entity.
const AllRows = -1

// A Part is what a Fault says about an entity: one of its fields, the whole entity, or a part of the Batch that is not
// a field.
type Part uint8

// The parts of a Batch.
const (
	PartField        Part = iota
	PartEntity            // everything
	PartProcesses         // Processes
	PartProcessBusy       // Process.Busy
	PartHealthChecks      // Health
	PartPeerStates        // Peers
)

// A ReadRequest is the input of a Read in addition to the plan.
type ReadRequest struct {
	// Processes selects the rows whose processes are reported. Rows beyond its end are not selected.
	Processes []bool
	// Contradicted lists the rows whose profiling fields read 0 although the GPU was busy in the previous Read. A
	// source may restart the sampling of these rows from time to time.
	Contradicted []int
}

// WantsProcesses reports whether the processes of a row are requested.
func (r *ReadRequest) WantsProcesses(row int) bool {
	return row >= 0 && row < len(r.Processes) && r.Processes[row]
}

// A Batch is the result of one Read. The collector owns it, and resets and reuses it for every Read.
type Batch struct {
	Samples []Sample // the newest sample of each field and row
	// Trails holds every sample since the previous Read of the session, for fields with Field.AllSamples. Samples of
	// one field and row are in the order of their times. The first Read also reports older samples that the engine
	// still has.
	Trails []Sample
	// XIDs holds the XIDs since the previous Read of the session. XIDs of one entity are in the order in which the
	// engine received them. The first Read may repeat XIDs of earlier sessions.
	XIDs       []XID
	XIDsRepeat bool  // XIDs may repeat ones that earlier Reads of this session returned
	WithoutXID []int // rows for which the engine explicitly reports that no XID has occurred

	Faults    []Fault
	Processes []Process
	// Utilizations holds the utilization of entities whose Processes have Busy. A source that does not know it leaves
	// it out.
	Utilizations []Utilization
	// Health and Peers are set if the plan requests them (Plan.Health, Plan.Peers). If one cannot be read, a Fault
	// says why.
	Health []HealthCheck
	Peers  []PeerState
	// Links is set if the plan requests it (Plan.Links), but only by sources without a health watch of NVLinks. It
	// omits GPUs without NVLinks, GPUs whose links cannot be read, and GPUs in MIG mode: the driver reports their links
	// as down.
	Links []LinkState
}

// Reset empties the batch and keeps its memory.
func (b *Batch) Reset() {
	*b = Batch{
		Samples: b.Samples[:0], Trails: b.Trails[:0], XIDs: b.XIDs[:0], WithoutXID: b.WithoutXID[:0],
		Faults: b.Faults[:0], Processes: b.Processes[:0], Utilizations: b.Utilizations[:0],
		Health: b.Health[:0], Peers: b.Peers[:0], Links: b.Links[:0],
	}
}

// Add appends a sample unless v is absent.
func (b *Batch) Add(row, field int, v Value, at time.Time) { b.AddAt(row, field, v, at.UnixNano()) }

// AddAt is Add with the time in Unix nanoseconds.
func (b *Batch) AddAt(row, field int, v Value, at int64) {
	if !v.IsAbsent() {
		b.Samples = append(b.Samples, Sample{Row: row, Field: field, Value: v, Time: at})
	}
}

// TrailAt appends a sample to Trails unless v is absent.
func (b *Batch) TrailAt(row, field int, v Value, at int64) {
	if !v.IsAbsent() {
		b.Trails = append(b.Trails, Sample{Row: row, Field: field, Value: v, Time: at})
	}
}

// DropSamples removes the samples and trails of the rows for which lost is true.
func (b *Batch) DropSamples(lost []bool) {
	if !slices.Contains(lost, true) {
		return
	}
	isLost := func(s Sample) bool { return lost[s.Row] }
	b.Samples = slices.DeleteFunc(b.Samples, isLost)
	b.Trails = slices.DeleteFunc(b.Trails, isLost)
}

// Fail appends a fault of a field. Row may be AllRows.
func (b *Batch) Fail(row, field int, err error) {
	b.Faults = append(b.Faults, Fault{Row: row, Field: field, Err: err})
}

// FailPart appends a fault of a part that is not a field. Row may be AllRows.
func (b *Batch) FailPart(row int, part Part, err error) {
	b.Faults = append(b.Faults, Fault{Row: row, Part: part, Err: err})
}

// An XID is one report of an error of a GPU, or an SXID: an error of an NVSwitch in the kernel log.
type XID struct {
	// Row is the GPU or GPU instance in the session's Topology. XIDs of the kernel log have PCIBusID instead, in the
	// form of Device.PCIBusID.
	Row      int
	PCIBusID string
	// InstanceID is the GPU instance that reported the XID (Device.InstanceID). It is valid only if OnInstance is set.
	InstanceID uint32
	OnInstance bool
	// Switch is the number of an NVSwitch: 3 for nvidia-nvswitch3. It is valid only if OnSwitch is set. An SXID
	// has no Row and no PCIBusID, and its Detail has only the severity and the link.
	Switch   uint32
	OnSwitch bool

	Code int64 // 1 to MaxXID; SXIDs have up to five digits
	// ID is the same in every session: the engine's own time of the error, or its place in the driver's queue. It is
	// not unique: several errors may have the same ID. XIDs of the kernel log have none.
	ID int64
	// Time is when the error happened, in Unix nanoseconds of this machine's clock. If Since is set, the error
	// happened between Since and Time.
	Time, Since int64

	// Detail is decoded from the kernel log for SXIDs, NVLink 5 XIDs and XID 154. It is zero for other XIDs and for
	// lines in an unknown form.
	Detail XIDDetail
	// Past means that the line was logged before this process started to read the kernel log. It updates the
	// last-seen time and no counter.
	Past bool

	PID uint32 // the affected process in the host's PID namespace; 0 if unknown
	// PodUIDs lists the UIDs of the process's pods, outermost first. It is empty if they were unknown at the time of
	// the error.
	PodUIDs []string
}

// MaxXID is the largest plausible XID. NVIDIA's have three digits today.
const MaxXID = 10000

// An XIDDetail is the decoded rest of a kernel log line about an XID. Its fields are label values. A field is empty if
// the line does not have it.
type XIDDetail struct {
	Unit     string // unit of the GPU in NVIDIA's words: "NETIR_LINK_EVT"
	SubCode  string // cause within the unit: a number from 0 to 63
	Link     string // number of the NVLink; empty if the error concerns no particular link
	Severity string // "fatal" or "nonfatal"
	Action   string // recovery action that XID 154 requests: "gpu_reset"
}
