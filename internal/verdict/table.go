package verdict

import (
	"slices"
	"strconv"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// The verdicts, from the mildest to the most severe.
const (
	OK      = "ok"
	Watch   = "watch"   // work may continue; the GPU needs attention
	Unknown = "unknown" // the GPU cannot be read, or the counters file lacks what the verdict needs
	Drain   = "drain"   // no new work until a reset or a restart
	Replace = "replace" // no work until a repair
)

var verdicts = [...]string{OK, Watch, Unknown, Drain, Replace}

// Severity returns the severity of a verdict as a number. A word that is not a verdict is as severe as Replace.
func Severity(verdict string) int {
	if i := slices.Index(verdicts[:], verdict); i >= 0 {
		return i
	}
	return len(verdicts) - 1
}

// A Rule is a line of the table. The most severe rule in effect sets the verdict; ties go to the first one.
type Rule struct {
	Reason  string
	Verdict string
	Signal  Signal
	After   time.Duration // how long the signal must hold before the rule becomes active
	Memory  time.Duration // how long the rule stays in effect after the signal clears
	Meaning string
}

// A Signal is a condition on one GPU.
type Signal struct {
	Test   Test
	Fields []gpu.FieldID // fields to test: Within tests their sum, Grows tests each field
	Count  gpu.FieldID   // a field that must be at least 1; 0 for none

	Family    string   // family whose series are tested
	Label     string   // label of the family that selects series; "" for all series
	Values    []string // values of the label that are selected
	Except    bool     // select all values except these
	Untreated bool     // ignore series with a treatment label

	Least float64 // lower bound of the test Within
	Exact bool    // Least is the upper bound too
	Kept  bool    // the driver or board keeps the state, so the rule can be active at the first reading, before After
}

// A Test says when a signal holds.
type Test uint8

// The tests.
const (
	Within Test = iota // the number lies within the bounds
	Grows              // a counter is above its previous value
	Recent             // a time is within the rule's memory
	Lost               // the GPU is lost
)

// kept returns a signal that holds if the sum of the fields is at least least, a state that the driver or board keeps.
func kept(least float64, fields ...gpu.FieldID) Signal {
	return Signal{Fields: fields, Least: least, Kept: true}
}

// growing returns a signal that holds if one of the fields is above its previous value.
func growing(fields ...gpu.FieldID) Signal { return Signal{Fields: fields, Test: Grows} }

func fabric(conditions ...string) Signal {
	return Signal{Family: catalog.FabricState, Label: "condition", Values: conditions, Least: 1, Exact: true}
}

func health(result float64) Signal {
	return Signal{Family: catalog.GPUHealthStatus, Untreated: true, Least: result, Exact: true}
}

// xids returns a rule for some classes of XIDs. The classes must share a severity and a memory. The rule for XIDs
// without a class includes codes that the catalog does not list.
func xids(reason, meaning string, classes ...catalog.XIDClass) Rule {
	r := Rule{reason, OfXID(classes[0]), Signal{}, 0, classes[0].Memory, meaning}
	r.Signal = Signal{Family: catalog.XIDLastSeen, Label: "xid", Test: Recent}
	if r.Signal.Except = classes[0] == catalog.XIDUnclassified; r.Signal.Except {
		classes = slices.DeleteFunc(catalog.XIDClasses(), func(c catalog.XIDClass) bool { return c == classes[0] })
	}
	for _, code := range catalog.XIDsOf(classes...) {
		r.Signal.Values = append(r.Signal.Values, strconv.FormatInt(code, 10))
	}
	return r
}

// OfXID returns the verdict on a GPU after an XID of a class. It returns OK if the table has no rule for the
// class. XIDAction has none because the recovery action itself has a rule.
func OfXID(c catalog.XIDClass) string {
	switch severity := c.Severity; {
	case c == catalog.XIDAction:
		return OK
	case severity == catalog.AlertCritical:
		return Drain
	case severity == catalog.AlertWarning:
		return Watch
	default:
		return OK
	}
}

const day = 24 * time.Hour

// table lists all rules. A false drain costs the work of a node, while alerts still cover a missed one. So errors that
// the driver repairs, and errors that one process may have caused, lead only to Watch.
var table = [...]Rule{
	{"row_remap_failed", Replace, kept(1, catalog.RowRemapFailure), time.Minute, 0,
		"No spare row is left for a faulty one"},
	{"retired_pages", Replace, kept(60, catalog.RetiredSBE, catalog.RetiredDBE), 5 * time.Minute, 0,
		"Nearly all of the 64 pages that can be retired are used up"},
	{"lost", Drain, Signal{Test: Lost}, time.Minute, time.Hour,
		"The GPU has fallen off the bus, or does not answer"},
	{"was_lost", Watch, Signal{Test: Lost}, 0, time.Hour,
		"The GPU was briefly lost"},
	{"recovery_action", Drain, kept(1, catalog.GetGPURecoveryAction), 5 * time.Minute, 0,
		"The driver requests a reset, a reboot or a drain"},
	xids("xid_hardware", "NVIDIA's catalog asks for a reset or a restart of the node",
		catalog.XIDHardware, catalog.XIDMemory),
	xids("xid_repair_failed", "A page could not be retired, or a row could not be remapped", catalog.XIDRepairFailed),
	xids("xid_gsp", "The GPU system processor does not answer", catalog.XIDFirmware),
	{"health_failed", Drain, health(20), 5 * time.Minute, 0,
		"A health watch of DCGM fails with an active finding"},
	{"fabric_failed", Drain, fabric("failed", "route_unhealthy"), 5 * time.Minute, 0,
		"The GPU is not in the NVLink fabric, or has no route there"},
	{"c2c_down", Drain, Signal{
		Fields: []gpu.FieldID{catalog.C2CLinkStatus}, Count: catalog.C2CLinkCount, Exact: true,
	}, 5 * time.Minute, 0,
		"The CPU and the GPU of a superchip do not share memory"},
	{"ecc_uncorrected", Watch, growing(catalog.ECCDBEVolTotal), 0, day,
		"A process lost its data; the driver repairs the memory"},
	{"rows_remapped", Watch, growing(catalog.UncorrectableRemappedRows), 0, day,
		"A row was remapped after an uncorrected error"},
	{"row_remap_pending", Watch, kept(1, catalog.RowRemapPending), 15 * time.Minute, 0,
		"The next reset remaps a row"},
	{"page_pending", Watch, kept(1, catalog.RetiredPending), 15 * time.Minute, 0,
		"The next reset retires a page"},
	xids("xid_memory", "An error was contained, or the memory is being repaired", catalog.XIDContained),
	xids("xid_nvlink", "An NVLink or C2C error", catalog.XIDLink, catalog.XIDC2C),
	xids("xid_driver", "The driver or its firmware failed", catalog.XIDDriver),
	xids("xid_unclassified", "The meaning of the XID is not known", catalog.XIDUnclassified),
	{"health_warning", Watch, health(10), 15 * time.Minute, 0,
		"A health watch of DCGM warns with an active finding"},
	{"fabric_degraded", Watch,
		fabric("degraded_bandwidth", "route_recovery", "access_timeout_recovery"), 5 * time.Minute, 0,
		"The NVLink fabric is slower than it should be"},
	{"fabric_misconfigured", Watch, fabric("not_completed", "no_cluster", "no_clique", "incorrect_system_guid",
		"incorrect_chassis_serial", "no_partition", "insufficient_nvlinks", "incompatible_firmware", "invalid_location",
		"invalid_gpu_state", "partition_unassigned", "manager_disconnected"), 15 * time.Minute, 0,
		"The GPU has not joined the NVLink fabric, or is misconfigured there"},
	{"links_down", Watch, fabric("links_down"), 15 * time.Minute, 0,
		"All NVLinks of the GPU are down while another GPU has an active one"},
	{"nvlink_recovery", Watch, growing(catalog.NVLinkRecoveryErrorCountTotal), 0, day,
		"An NVLink recovered from errors"},
	{"nvlink5_recovery", Watch,
		growing(catalog.NVLinkCountLinkRecoveryFailedEvents, catalog.NVLinkCountLinkRecoverySuccessfulEvents), 0, day,
		"An NVLink 5 link recovered from errors, or failed to recover"},
	{"slowed", Watch, Signal{
		Family: catalog.ClockEventSeconds, Label: "clock_event", Test: Grows,
		Values: []string{"hw_thermal", "hw_power_brake", "hw_slowdown"},
	}, 10 * time.Minute, 0,
		"Heat or power reduces the clocks in every interval"},
}

// Rules returns the rules in the order of the table. They must not be changed.
func Rules() []Rule { return table[:] }

// Reasons returns the meaning of each reason of a verdict other than ok.
func Reasons() map[string]string {
	all := map[string]string{NoCounters: "the counters file lacks lines that the verdict needs"}
	for i := range table {
		all[table[i].Reason] = table[i].Meaning
	}
	return all
}

// Families returns the names of the families that the rules need, without duplicates.
func Families() (names []string) {
	for i := range table {
		if name := table[i].Signal.Family; name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}
