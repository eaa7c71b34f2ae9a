package catalog

import "time"

// An AlertSeverity is the severity label of an alert. An XID has the severity of its class.
type AlertSeverity string

// The severities. A critical XID drains the GPU, a warning puts it under watch, and the others leave the verdict alone.
const (
	AlertNone     AlertSeverity = ""
	AlertInfo     AlertSeverity = "info"
	AlertWarning  AlertSeverity = "warning"
	AlertCritical AlertSeverity = "critical"
)

// An XIDClass is a group of XIDs that share a severity, a memory, an alert and a rule of the verdict.
type XIDClass uint8

// The classes of XIDs.
const (
	XIDUnclassified XIDClass = iota // unknown class, for example of codes of later drivers
	XIDTest                         // a test message of the management bus
	XIDApplication                  // a program made an error or was terminated
	XIDDriver                       // the driver, its firmware or the display failed
	XIDFirmware                     // the GPU system processor (GSP) failed
	XIDHardware                     // a fault that software can neither cause nor cure
	XIDMemory                       // an uncorrected memory error that was not contained
	XIDRepairFailed                 // a faulty part of the memory that could not be replaced
	XIDContained                    // an error that was contained, corrected or repaired
	XIDLink                         // an error of NVLink
	XIDC2C                          // corrected errors of the link between GPU and CPU
	XIDAction                       // the requested recovery action changed

	xidClassCount
)

const (
	hour = time.Hour
	day  = 24 * time.Hour
)

// xidClasses is indexed by class. XIDs of hardware or memory faults are remembered for a day. XIDs that a reset
// cures, or that only end one job, are remembered for an hour.
var xidClasses = [xidClassCount]struct {
	name     string
	severity AlertSeverity
	memory   time.Duration
	alert    string
}{
	XIDUnclassified: {"unclassified", AlertWarning, hour, "GPUXIDUnclassified"},
	XIDTest:         {"test", AlertNone, 0, ""},
	XIDApplication:  {"application", AlertInfo, hour / 4, "GPUXIDApplication"},
	XIDDriver:       {"driver", AlertWarning, hour, "GPUXIDDriver"},
	XIDFirmware:     {"firmware", AlertCritical, hour, "GPUXIDFirmware"},
	XIDHardware:     {"hardware", AlertCritical, day, "GPUXIDHardware"},
	XIDMemory:       {"memory", AlertCritical, day, "GPUXIDMemoryFault"},
	XIDRepairFailed: {"repair failed", AlertCritical, day, "GPUXIDMemoryFault"},
	XIDContained:    {"contained", AlertWarning, day, "GPUXIDMemoryRepair"},
	XIDLink:         {"link", AlertWarning, hour, "GPUXIDNVLink"},
	XIDC2C:          {"c2c", AlertWarning, hour, "GPUXIDMemoryRepair"},
	XIDAction:       {"action", AlertCritical, hour, "GPUXIDHardware"},
}

// XIDClasses returns all classes.
func XIDClasses() []XIDClass {
	all := make([]XIDClass, xidClassCount)
	for i := range all {
		all[i] = XIDClass(i)
	}
	return all
}

// String returns the class in words.
func (c XIDClass) String() string { return xidClasses[c].name }

// Severity returns the severity of the XIDs of the class.
func (c XIDClass) Severity() AlertSeverity { return xidClasses[c].severity }

// Memory returns how long after it was last seen an XID of the class affects the verdict.
func (c XIDClass) Memory() time.Duration { return xidClasses[c].memory }

// Alert returns the name of the class's alert, or "" if there is none.
func (c XIDClass) Alert() string { return xidClasses[c].alert }
