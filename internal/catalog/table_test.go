package catalog

import (
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The tables have only known words, and their numbers are ascending; those of findings have no gap. Every finding is
// complete, and the fields and families that it names exist.
func TestTablesOfFaults(t *testing.T) {
	last := -1
	for _, row := range readTable(xidTable) {
		code, err := strconv.Atoi(row[0])
		isClass := slices.ContainsFunc(XIDClasses(), func(c XIDClass) bool { return c.Name == row[2] })
		if _, ok := xidSources[row[5]]; !ok || err != nil || code <= last || !isClass {
			t.Errorf("xids.csv: row %q after %d: want an ascending number, a class and a source", row, last)
		}
		last = code
	}
	for i, row := range readTable(findingTable) {
		f := FindingOf(row[0])
		if row[0] != strconv.Itoa(i) || f != findings[i] || f != FindingOf(row[1]) {
			t.Errorf("findings.csv: row %q: want number %d and a code that is listed once", row, i)
		}
		severities := []Severity{SeverityNone, "MONITOR", "ISOLATE", SeverityUnknown, "TRIAGE", "CONFIG", "RESET"}
		treatments := []Treatment{Active, ByXID, BySeries, Informational}
		if !slices.Contains(severities, f.Severity) || !slices.Contains(treatments, f.Treatment) ||
			f.Category == "" || f.Why == "" {
			t.Errorf("%s = %+v, want a severity, a category, a treatment and a reason", f.Code, f)
		}
		superseded := f.Treatment == ByXID || f.Treatment == BySeries
		_, isField := Lookup(f.By)
		if superseded != (f.By != "") || superseded && !isField && FamilyNamed(f.By) == nil {
			t.Errorf("%s: treatment %s, by %q; want a field or family only if superseded", f.Code, f.Treatment, f.By)
		}
		ofSwitch := strings.Contains(f.Category, "NVSWITCH")
		if f.Severity == "MONITOR" && f.Treatment == Active && !ofSwitch {
			t.Errorf("%s is active, but according to DCGM the GPU remains usable", f.Code)
		}
	}
}

func TestParseFinding(t *testing.T) {
	for word, want := range map[string]string{
		"DCGM_FR_NVLINK_DOWN": "DCGM_FR_NVLINK_DOWN", "nvlink_down": "DCGM_FR_NVLINK_DOWN", "14": "DCGM_FR_NVLINK_DOWN",
		"CLOCKS_EVENT_THERMAL": "DCGM_FR_CLOCK_THROTTLE_THERMAL", "4000": "4000",
		"DCGM_FR_NVLINK_DWN": "", "": "", "DCGM_FR_OK": "", "0": "", "-1": "",
	} {
		if got, ok := ParseFinding(word); ok != (want != "") || ok && got != want {
			t.Errorf("ParseFinding(%q) = %q, %v, want %q", word, got, ok, want)
		}
	}
	if codes := FindingCodes(); slices.Contains(codes, "DCGM_FR_OK") || !slices.Contains(codes, "DCGM_FR_XID_ERROR") {
		t.Errorf("codes = %v, want DCGM_FR_XID_ERROR and not DCGM_FR_OK", codes)
	}
	for code, want := range map[string]Finding{
		"":                          {"DCGM_FR_OK", "NONE", "NONE", Active, "", "", ""},
		"4000":                      {"4000", "UNKNOWN", "UNKNOWN", Active, "", "", ""},
		"DCGM_FR_OF_THE_FUTURE":     {"DCGM_FR_OF_THE_FUTURE", "UNKNOWN", "UNKNOWN", Active, "", "", ""},
		"DCGM_FR_XID_ERROR":         {"DCGM_FR_XID_ERROR", "TRIAGE", "SOFTWARE_XID", ByXID, "", "", ""},
		"DCGM_FR_PENDING_ROW_REMAP": {"DCGM_FR_PENDING_ROW_REMAP", "RESET", "HARDWARE_MEMORY", BySeries, "", "", ""},
		"DCGM_FR_CLOCKS_EVENT_POWER": {
			"DCGM_FR_CLOCK_THROTTLE_POWER", "MONITOR", "HARDWARE_POWER", Informational, "", "", "",
		},
	} {
		got := FindingOf(code)
		if got.By, got.Why = "", ""; got != want {
			t.Errorf("FindingOf(%q) = %+v, want %+v", code, got, want)
		}
	}
}

func TestXIDMessage(t *testing.T) {
	for code, want := range map[int64]string{
		-1: "Unknown Error", 0: "No Error", 5: "Unknown Error", 13: "Graphics Engine Exception",
		48: "Double Bit ECC Error", 79: "GPU has fallen off the bus", 94: "Contained ECC error", 119: "GSP RPC Timeout",
		172: "Uncorrectable SRAM Error", 173: "Unknown Error", 1 << 40: "Unknown Error",
	} {
		if got := XIDMessage(code); got != want {
			t.Errorf("XID %d: message = %q, want %q", code, got, want)
		}
	}
	for _, code := range AlertXIDs() {
		if XIDOf(code).text == "" {
			t.Errorf("XID %d is used by an alert but is not listed", code)
		}
	}
}

// Every clock event has a bit of its own and a name of its own.
func TestClockEvents(t *testing.T) {
	names := ""
	for i, e := range ClockEvents() {
		if names += " " + e.Name; e.Mask != 1<<i {
			t.Errorf("mask of %s = %#x, want %#x", e.Name, e.Mask, 1<<i)
		}
	}
	const want = " gpu_idle clocks_setting power_cap hw_slowdown sync_boost sw_thermal hw_thermal hw_power_brake" +
		" display_clocks"
	if names != want {
		t.Errorf("names =%s, want%s", names, want)
	}
}
