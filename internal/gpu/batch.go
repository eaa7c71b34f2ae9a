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
	// Time is when the engine took the sample, in this machine's clock as Unix nanoseconds: a source
	// whose engine has another clock translates it.
	Time int64
}

// A Process is what one process did on one entity since the previous Read. One that ended meanwhile
// is reported for what it did, with no bytes of memory.
type Process struct {
	Row int    // the GPU or GPU instance
	PID uint32 // in the host's namespace
	// Busy is the part of the interval in which the process ran on the entity, 0 to 1; absent where
	// the driver does not report it (MIG).
	Busy Value
	// Memory is the device memory that it uses, in bytes; absent where the driver does not report it.
	Memory Value
	Time   int64 // of the sample, in Unix nanoseconds
}

// A Utilization is how busy an entity was over the very interval of its Processes. A value of its
// utilization field is of one moment, and can be anything that a mean over the interval is not.
type Utilization struct {
	Row  int   // the GPU or GPU instance
	Busy Value // the part of the interval in which anything ran on the entity, 0 to 1
}

// A HealthCheck is the result of one of the engine's health watches for one entity
// (dcgmHealthResponse_v5).
type HealthCheck struct {
	Row   int
	Watch string // what is watched, as the health_watch label names it: "PCIE"
	// Code is the error that was found, as the health_error_code label names it; empty where there is
	// none.
	Code string
	// Result is DCGM's: 0 pass, 10 warn, 20 fail.
	Result int64
	Time   int64 // of the check, in Unix nanoseconds
}

// A PeerState is the state of the peer-to-peer connection of one GPU to another over NVLink, as
// DCGM and NVML report it.
type PeerState struct {
	Row, Peer int    // rows of GPUs
	Status    string // as the link_status label names it
}

// peerStatuses are the words of PeerState.Status, by the numbers that DCGM and NVML share
// (dcgmNvLinkGpuP2PStatus_t, nvmlGpuP2PStatus_t). The last also stands for what later engines add.
var peerStatuses = [...]string{
	"OK", "ChipsetNotSupported", "GPUNotSupported", "TopologyNotSupported", "DisabledByRegKey", "NotSupported", "Unknown",
}

// PeerStatus returns the word of an engine's number.
func PeerStatus(number uint32) string {
	return peerStatuses[min(number, uint32(len(peerStatuses)-1))]
}

// Number returns the number of the status; that of "Unknown" for any word that is not an engine's.
func (p *PeerState) Number() int64 {
	for i, known := range peerStatuses {
		if known == p.Status {
			return int64(i)
		}
	}
	return int64(len(peerStatuses) - 1)
}

// A Fault says that something could not be read in this cycle, and why.
type Fault struct {
	Row   int   // the entity, or AllRows
	Field int   // the field, or AllFields
	Err   error // wraps one of this package's errors
}

// AllRows and AllFields make a Fault speak of every entity or every field; FieldProcesses of an
// entity's processes, and FieldProcessBusy of how busy they keep it while their memory is known.
const (
	AllRows        = -1
	AllFields      = -1
	FieldProcesses = -2

	FieldProcessBusy = -3

	// FieldHealthChecks and FieldPeerStates speak of the Health and Peers of a Batch.
	FieldHealthChecks = -4
	FieldPeerStates   = -5
)

// A Batch is what one Read found. The collector owns it and hands the same one to every Read,
// reset, so that steady state needs no memory.
type Batch struct {
	// Samples has the newest sample of each cell, a field of a row: one at most, with its own time
	// also where the field is sampled less often than Read is called. The collector remembers nothing
	// from one Read to the next.
	Samples []Sample
	// Trails has every sample since the previous Read of the session, the newest included, of the
	// fields with Field.Every: each once, those of a cell in the order of their times. The first Read
	// also reports those that the engine still has of before.
	Trails []Sample
	// XIDs are those since the previous Read of the session, of each entity in the order in which the
	// witness got them; the first Read may report what earlier sessions did. Within a session each is
	// reported once, however its time compares with others': a clock that is set neither repeats nor
	// hides one. They are no Samples.
	XIDs []XID
	// XIDsRepeat is set by a Read that reports again what earlier ones of the session may have
	// reported, as the first Read of a session does.
	XIDsRepeat bool
	// WithoutXID are the rows for which the engine reports itself that there was no XID yet. An engine may also have no
	// sample at all before the first.
	WithoutXID []int

	Faults    []Fault
	Processes []Process
	// Utilizations has an element for each entity whose Processes have Busy, as far as the source
	// knows it of their interval.
	Utilizations []Utilization
	// Health and Peers are there if the plan requests them (Plan.Health, Plan.Peers). A source that
	// does not know them adds a Fault with FieldHealthChecks or FieldPeerStates for the row, or for
	// AllRows.
	Health []HealthCheck
	Peers  []PeerState

	// RequestProcesses says, per row, for which entities the Read is to report processes. The collector
	// sets it for a session; rows beyond its end are not requested. A source that does not know them
	// adds a Fault for the row with FieldProcesses, or with FieldProcessBusy if it lacks that alone.
	RequestProcesses []bool
}

// Reset empties the batch and keeps its memory. RequestProcesses stays.
func (b *Batch) Reset() {
	clear(b.Samples)
	clear(b.Trails)
	clear(b.XIDs)
	clear(b.Faults)
	clear(b.Processes)
	clear(b.Utilizations)
	clear(b.Health)
	clear(b.Peers)
	b.Samples, b.Trails = b.Samples[:0], b.Trails[:0]
	b.XIDs, b.XIDsRepeat = b.XIDs[:0], false
	b.WithoutXID = b.WithoutXID[:0]
	b.Faults = b.Faults[:0]
	b.Processes = b.Processes[:0]
	b.Utilizations = b.Utilizations[:0]
	b.Health = b.Health[:0]
	b.Peers = b.Peers[:0]
}

// Add appends a sample. An absent value is not a sample and is left out.
func (b *Batch) Add(row, field int, v Value, at time.Time) {
	b.AddAt(row, field, v, at.UnixNano())
}

// AddAt is Add with the time as Unix nanoseconds.
func (b *Batch) AddAt(row, field int, v Value, at int64) {
	if v.IsAbsent() {
		return
	}
	b.Samples = append(b.Samples, Sample{Row: row, Field: field, Value: v, Time: at})
}

// TrailAt appends a sample to the Trails. An absent value is left out.
func (b *Batch) TrailAt(row, field int, v Value, at int64) {
	if v.IsAbsent() {
		return
	}
	b.Trails = append(b.Trails, Sample{Row: row, Field: field, Value: v, Time: at})
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

// Fail appends a fault: field of row could not be read because of err. Use AllRows and AllFields
// for larger failures. The rest of the batch stays.
func (b *Batch) Fail(row, field int, err error) {
	b.Faults = append(b.Faults, Fault{Row: row, Field: field, Err: err})
}
