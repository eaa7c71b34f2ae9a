package catalog

import (
	"cmp"
	_ "embed" // the table of XIDs
	"slices"
	"strconv"
	"time"
)

// An AlertSeverity is the severity label of an alert. An XID has the severity of its class.
type AlertSeverity string

// The severities. A critical XID drains the GPU, a warning puts it under watch, and the others do not affect the
// verdict.
const (
	AlertNone     AlertSeverity = ""
	AlertInfo     AlertSeverity = "info"
	AlertWarning  AlertSeverity = "warning"
	AlertCritical AlertSeverity = "critical"
)

// An XIDClass is a group of XIDs that share a rule of the verdict. It must not be changed.
type XIDClass struct {
	Name     string // in words
	Severity AlertSeverity
	Memory   time.Duration // how long an XID affects the verdict after it was last seen
	Alert    string        // name of the alert; empty for none
}

const (
	hour = time.Hour
	day  = 24 * time.Hour
)

// The classes of XIDs. XIDs of hardware or memory faults are remembered for a day. XIDs that a reset cures, or that
// only end one job, are remembered for an hour.
var (
	XIDUnclassified = XIDClass{"unclassified", AlertWarning, hour, "GPUXIDUnclassified"} // unlisted, from later drivers
	XIDTest         = XIDClass{"test", AlertNone, 0, ""}                                 // test of the management bus
	XIDApplication  = XIDClass{"application", AlertInfo, hour / 4, "GPUXIDApplication"}  // a program failed
	XIDDriver       = XIDClass{"driver", AlertWarning, hour, "GPUXIDDriver"}             // driver, firmware or display
	XIDFirmware     = XIDClass{"firmware", AlertCritical, hour, "GPUXIDFirmware"}        // GPU system processor (GSP)
	XIDHardware     = XIDClass{"hardware", AlertCritical, day, "GPUXIDHardware"}         // not caused by software
	XIDMemory       = XIDClass{"memory", AlertCritical, day, "GPUXIDMemoryFault"}        // uncorrected, not contained
	XIDRepairFailed = XIDClass{"repair failed", AlertCritical, day, "GPUXIDMemoryFault"} // memory repair failed
	XIDContained    = XIDClass{"contained", AlertWarning, day, "GPUXIDMemoryRepair"}     // contained or repaired
	XIDLink         = XIDClass{"link", AlertWarning, hour, "GPUXIDNVLink"}               // NVLink
	XIDC2C          = XIDClass{"c2c", AlertWarning, hour, "GPUXIDMemoryRepair"}          // link between GPU and CPU
	XIDAction       = XIDClass{"action", AlertCritical, hour, "GPUXIDHardware"}          // recovery action requested
)

// XIDClasses returns all classes.
func XIDClasses() []XIDClass {
	return []XIDClass{
		XIDUnclassified, XIDTest, XIDApplication, XIDDriver, XIDFirmware, XIDHardware, XIDMemory, XIDRepairFailed,
		XIDContained, XIDLink, XIDC2C, XIDAction,
	}
}

// An XID is a row of the table of XIDs.
type XID struct {
	text   string
	Class  XIDClass
	First  string // the action to take at once
	Then   string // the action if First does not help or the XID recurs; empty if there is none
	Source string // source of First and Then, with its date
	Why    string // why the class differs from what the actions suggest; empty if it does not
}

// XIDMessage returns the meaning of an XID for the err_msg label: "No Error" for 0, "Unknown Error" for a code without
// a published meaning. The meanings are NVIDIA's (docs.nvidia.com/deploy/xid-errors), whose catalog ends at 172.
func XIDMessage(code int64) string { return cmp.Or(XIDOf(code).text, "Unknown Error") }

// XIDOf returns the row of an XID. For an unlisted code it returns the zero XID, whose class is XIDUnclassified.
func XIDOf(code int64) XID {
	if code < 0 || code >= int64(len(xids)) || xids[code].text == "" {
		return XID{Class: XIDUnclassified}
	}
	return xids[code]
}

// XIDsOf returns the codes of some classes in ascending order. Unlisted codes are omitted.
func XIDsOf(classes ...XIDClass) (codes []int64) {
	for code := int64(1); code < int64(len(xids)); code++ {
		if xids[code].text != "" && slices.Contains(classes, xids[code].Class) {
			codes = append(codes, code)
		}
	}
	return codes
}

// AlertXIDs returns the XIDs whose counters start at zero, so that increase() sees the first one. They are the most
// frequent XIDs that cost a GPU, its data or a node.
func AlertXIDs() []int64 { return []int64{48, 63, 64, 74, 79, 92, 94, 95, 119, 120} }

// The actions are those of the resolution buckets of NVIDIA's catalog. It covers Ampere and later, and lists codes that
// only older GPUs report as unused.
const xidCatalog = "[catalog](https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html) of 2026-09-09"

// xidSources maps the words of the table to sources.
var xidSources = map[string]string{
	"":          "",
	"catalog":   xidCatalog,
	"unused":    xidCatalog + ": unused",
	"no action": xidCatalog + ", which names no action",
}

//go:embed xids.csv
var xidTable []byte

// xids is indexed by XID. Codes without a row have the zero XID.
var xids = func() (xids []XID) {
	classes := map[string]XIDClass{}
	for _, c := range XIDClasses() {
		classes[c.Name] = c
	}
	for _, row := range readTable(xidTable) {
		code, _ := strconv.Atoi(row[0])
		xids = append(xids, make([]XID, code+1-len(xids))...)
		xids[code] = XID{row[1], classes[row[2]], row[3], row[4], xidSources[row[5]], row[6]}
	}
	return xids
}()
