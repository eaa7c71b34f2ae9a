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
	Time  int64 // of the engine's sample, in Unix nanoseconds of this machine's clock
}

// A Process is the activity of one process on one entity since the previous Read. A process that ended meanwhile has
// no Memory.
type Process struct {
	Row    int    // the GPU or GPU instance
	PID    uint32 // in the host's namespace
	Busy   Value  // part of the interval, 0 to 1; absent where the driver does not report it (MIG)
	Memory Value  // of the device, in bytes; absent where the driver does not report it
	Time   int64  // of the sample, in Unix nanoseconds
}

// A Utilization is how busy an entity was over the interval of its Processes. The utilization field is of one moment.
type Utilization struct {
	Row  int   // the GPU or GPU instance
	Busy Value // part of the interval, 0 to 1
}

// A HealthCheck is the result of one of the engine's health watches for one entity (dcgmHealthResponse_v5).
type HealthCheck struct {
	Row    int
	Watch  string // as the health_watch label has it: "PCIE", or the engine's number in hexadecimal
	Code   string // of the error, as the health_error_code label has it: a name or the engine's number; empty for none
	Result int64  // DCGM's: 0 pass, 10 warn, 20 fail
	NoLink bool   // of a link that is down: the engine says that no link of the GPU is up
}

// A PeerState is the state of the peer-to-peer connection of two GPUs over NVLink.
type PeerState struct {
	Row, Peer int    // rows of GPUs
	Status    string // as the link_status label has it
}

// peerStatuses are the words of PeerState.Status, by the numbers that DCGM and NVML share
// (dcgmNvLinkGpuP2PStatus_t, nvmlGpuP2PStatus_t). The last also stands for numbers of later engines.
var peerStatuses = [...]string{
	"OK", "ChipsetNotSupported", "GPUNotSupported", "TopologyNotSupported", "DisabledByRegKey", "NotSupported", "Unknown",
}

// PeerStatus returns the word of an engine's number.
func PeerStatus(number uint32) string {
	return peerStatuses[min(number, uint32(len(peerStatuses)-1))]
}

// Number returns the engine's number of the status; that of "Unknown" for any other word.
func (p *PeerState) Number() int64 {
	if i := slices.Index(peerStatuses[:], p.Status); i >= 0 {
		return int64(i)
	}
	return int64(len(peerStatuses) - 1)
}

// A Fault says that something could not be read in this cycle, and why.
type Fault struct {
	Row   int   // the entity, or AllRows
	Field int   // the field, or one of the constants below
	Err   error // wraps one of this package's errors
}

// A Fault of AllRows or AllFields speaks of every entity or every field. The others speak of parts of a Batch:
// FieldProcessBusy of Process.Busy alone.
const (
	AllRows           = -1
	AllFields         = -1
	FieldProcesses    = -2
	FieldProcessBusy  = -3
	FieldHealthChecks = -4
	FieldPeerStates   = -5
)

// A Batch is the result of one Read. The collector owns it and hands the same one to every Read, reset.
type Batch struct {
	// Samples has at most one sample per field and row: the newest, with its own time.
	Samples []Sample
	// Trails has every sample since the previous Read of the session, once, of the fields with Field.Every, in the order
	// of time per field and row. The first Read also reports earlier ones that the engine still has.
	Trails []Sample
	// XIDs are those since the previous Read of the session, once, per entity in the order in which the engine got them.
	// The first Read may report those of earlier sessions.
	XIDs []XID
	// XIDsRepeat is set by a later Read whose XIDs earlier ones of the session may have reported.
	XIDsRepeat bool
	// WithoutXID are the rows for which the engine reports itself that there was no XID yet.
	WithoutXID []int

	Faults    []Fault
	Processes []Process
	// Utilizations has an element for each entity whose Processes have Busy, where the source knows it.
	Utilizations []Utilization
	// Health and Peers are there if the plan requests them (Plan.Health, Plan.Peers); else a Fault says why not.
	Health []HealthCheck
	Peers  []PeerState

	// RequestProcesses says, per row, whether the Read reports processes; rows beyond its end are not requested. The
	// collector sets it for a session.
	RequestProcesses []bool
	// Contradicted are the rows whose profiling fields read 0 while the GPU works: a source that can starts to sample them
	// anew, now and then. The collector sets it from the previous Read of the session.
	Contradicted []int
}

// Reset empties the batch and keeps its memory. RequestProcesses and Contradicted stay.
func (b *Batch) Reset() {
	*b = Batch{
		Samples: b.Samples[:0], Trails: b.Trails[:0], XIDs: b.XIDs[:0], WithoutXID: b.WithoutXID[:0], Faults: b.Faults[:0],
		Processes: b.Processes[:0], Utilizations: b.Utilizations[:0], Health: b.Health[:0], Peers: b.Peers[:0],
		RequestProcesses: b.RequestProcesses, Contradicted: b.Contradicted,
	}
}

// Add appends a sample. An absent value is left out.
func (b *Batch) Add(row, field int, v Value, at time.Time) {
	b.AddAt(row, field, v, at.UnixNano())
}

// AddAt is Add with the time in Unix nanoseconds.
func (b *Batch) AddAt(row, field int, v Value, at int64) {
	if !v.IsAbsent() {
		b.Samples = append(b.Samples, Sample{Row: row, Field: field, Value: v, Time: at})
	}
}

// TrailAt appends a sample to the Trails. An absent value is left out.
func (b *Batch) TrailAt(row, field int, v Value, at int64) {
	if !v.IsAbsent() {
		b.Trails = append(b.Trails, Sample{Row: row, Field: field, Value: v, Time: at})
	}
}

// DropSamples removes the samples and the trails of the rows for which lost is set.
func (b *Batch) DropSamples(lost []bool) {
	if !slices.Contains(lost, true) {
		return
	}
	of := func(s Sample) bool { return lost[s.Row] }
	b.Samples = slices.DeleteFunc(b.Samples, of)
	b.Trails = slices.DeleteFunc(b.Trails, of)
}

// Fail appends a fault; row can be AllRows, field AllFields.
func (b *Batch) Fail(row, field int, err error) {
	b.Faults = append(b.Faults, Fault{Row: row, Field: field, Err: err})
}
