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
	Watch   = "watch"   // work continues, and somebody looks at the GPU
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

// A rule is a line of the table. The most severe rule in effect sets the verdict; ties go to the first one.
type rule struct {
	reason  string
	verdict string
	signal  signal
	after   time.Duration // how long the signal must hold before the rule becomes active
	memory  time.Duration // how long the rule stays in effect after the signal clears
	what    string
}

// A signal is a condition on one GPU.
type signal struct {
	lost   bool          // the signal is that the entity is lost
	fields []gpu.FieldID // fields to test: within tests their sum, grows tests each field
	count  gpu.FieldID   // a field that must be at least 1; 0 for none
	family string        // family whose series are compared
	label  string        // label of the family that selects series; "" for all series
	values []string      // values of the label that are selected
	except bool          // select all values except these
	active bool          // ignore series with a treatment label
	kept   bool          // the driver or board keeps the state, so it may be old at the first reading

	test        test
	least, most float64 // bounds of the test within
}

// A test says when a signal holds.
type test uint8

const (
	within test = iota // the number lies between least and most, both included
	grows              // a counter is above its previous value
	recent             // a time is within the rule's memory
)

func atLeast(least float64, fields ...gpu.FieldID) signal {
	return signal{fields: fields, least: least, most: 1e300}
}

// kept marks a signal whose state the driver or board keeps. At the first reading of a GPU, its rule is active
// at once.
func kept(s signal) signal {
	s.kept = true
	return s
}

func growing(fields ...gpu.FieldID) signal { return signal{fields: fields, test: grows} }

// xids returns a rule for some classes of XIDs. The classes must share a severity and a memory.
func xids(reason, what string, classes ...catalog.XIDClass) rule {
	s := signal{family: catalog.XIDLastSeen, label: "xid", test: recent}
	for _, code := range catalog.XIDsOf(classes...) {
		s.values = append(s.values, strconv.FormatInt(code, 10))
	}
	return rule{reason: reason, verdict: OfXID(classes[0]), signal: s, memory: classes[0].Memory(), what: what}
}

// unclassifiedXIDs returns the rule for all XIDs without a class, including codes that the catalog does not
// list.
func unclassifiedXIDs(reason, what string) rule {
	r := xids(reason, what, catalog.XIDUnclassified)
	isUnclassified := func(c catalog.XIDClass) bool { return c == catalog.XIDUnclassified }
	classes := slices.DeleteFunc(catalog.XIDClasses(), isUnclassified)
	r.signal.values, r.signal.except = xids("", "", classes...).signal.values, true
	return r
}

// OfXID returns the verdict on a GPU after an XID of a class. It returns OK if the table has no rule for the
// class. XIDAction has none because the recovery action itself has a rule.
func OfXID(c catalog.XIDClass) string {
	switch {
	case c == catalog.XIDAction:
		return OK
	case c.Severity() == catalog.AlertCritical:
		return Drain
	case c.Severity() == catalog.AlertWarning:
		return Watch
	default:
		return OK
	}
}

func fabric(conditions ...string) signal {
	return signal{family: catalog.FabricState, label: "condition", values: conditions, least: 1, most: 1}
}

func health(result float64) signal {
	return signal{family: catalog.GPUHealthStatus, active: true, least: result, most: result}
}

func slowed(events ...string) signal {
	return signal{family: catalog.ClockEventSeconds, label: "clock_event", values: events, test: grows}
}

const (
	hour = time.Hour
	day  = 24 * time.Hour
)

// table lists all rules. A false drain costs the work of a node, while alerts still cover a missed one. So
// errors that the driver repairs, and errors that one process may have caused, lead only to Watch.
var table = [...]rule{
	{"row_remap_failed", Replace, kept(atLeast(1, catalog.RowRemapFailure)), time.Minute, 0,
		"No spare row is left for a faulty one"},
	{"retired_pages", Replace, kept(atLeast(60, catalog.RetiredSBE, catalog.RetiredDBE)), 5 * time.Minute, 0,
		"Nearly all of the 64 pages that can be retired are used up"},
	{"lost", Drain, signal{lost: true}, time.Minute, hour,
		"The GPU has fallen off the bus, or does not answer"},
	{"was_lost", Watch, signal{lost: true}, 0, hour,
		"The GPU was briefly lost"},
	{"recovery_action", Drain, kept(atLeast(1, catalog.GetGPURecoveryAction)), 5 * time.Minute, 0,
		"The driver requests a reset, a reboot or a drain"},
	xids("xid_hardware", "NVIDIA's catalog asks for a reset or a restart of the node",
		catalog.XIDHardware, catalog.XIDMemory),
	xids("xid_repair_failed", "A page could not be retired, or a row could not be remapped", catalog.XIDRepairFailed),
	xids("xid_gsp", "The GPU system processor does not answer", catalog.XIDFirmware),
	{"health_failed", Drain, health(20), 5 * time.Minute, 0,
		"A health watch of DCGM fails with an active finding"},
	{"fabric_failed", Drain, fabric("failed", "route_unhealthy"), 5 * time.Minute, 0,
		"The GPU is not in the NVLink fabric, or has no route there"},
	{"c2c_down", Drain,
		signal{fields: []gpu.FieldID{catalog.C2CLinkStatus}, count: catalog.C2CLinkCount}, 5 * time.Minute, 0,
		"The CPU and the GPU of a superchip do not share memory"},
	{"ecc_uncorrected", Watch, growing(catalog.ECCDBEVolTotal), 0, day,
		"A process lost its data; the driver repairs the memory"},
	{"rows_remapped", Watch, growing(catalog.UncorrectableRemappedRows), 0, day,
		"A row was remapped after an uncorrected error"},
	{"row_remap_pending", Watch, kept(atLeast(1, catalog.RowRemapPending)), 15 * time.Minute, 0,
		"The next reset remaps a row"},
	{"page_pending", Watch, kept(atLeast(1, catalog.RetiredPending)), 15 * time.Minute, 0,
		"The next reset retires a page"},
	xids("xid_memory", "An error was contained, or the memory is being repaired", catalog.XIDContained),
	xids("xid_nvlink", "An NVLink or C2C error", catalog.XIDLink, catalog.XIDC2C),
	xids("xid_driver", "The driver or its firmware failed", catalog.XIDDriver),
	unclassifiedXIDs("xid_unclassified", "The meaning of the XID is not known"),
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
	{"nvlink5_recovery", Watch, growing(
		catalog.NVLinkCountLinkRecoveryFailedEvents, catalog.NVLinkCountLinkRecoverySuccessfulEvents,
	), 0, day,
		"An NVLink 5 link recovered from errors, or failed to recover"},
	{"slowed", Watch, slowed("hw_thermal", "hw_power_brake", "hw_slowdown"), 10 * time.Minute, 0,
		"Heat or power reduces the clocks in every interval"},
}

// Families returns the names of the families that the rules need, without duplicates.
func Families() (names []string) {
	for i := range table {
		if name := table[i].signal.family; name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}
