package catalog_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
)

// Every finding is complete, and the fields and families that it names exist.
func TestFindingsAreComplete(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range catalog.Findings() {
		if seen[f.Code] {
			t.Errorf("%s is listed twice, want once", f.Code)
		}
		seen[f.Code] = true
		if f.Severity == "" || f.Category == "" || f.Why == "" {
			t.Errorf("%s = %+v, want a severity, a category and a reason", f.Code, f)
		}
		superseded := f.Treatment == catalog.ByXID || f.Treatment == catalog.BySeries
		if superseded != (f.By != "") {
			t.Errorf("%s: treatment = %s, by = %q; want by only if it is superseded", f.Code, f.Treatment, f.By)
		}
		if _, field := catalog.Lookup(f.By); superseded && !field && catalog.FamilyNamed(f.By) == nil {
			t.Errorf("%s is superseded by %q, which is neither a field nor a family", f.Code, f.By)
		}
		ofSwitch := strings.Contains(f.Category, "NVSWITCH")
		if f.Severity == catalog.SeverityMonitor && f.Treatment == catalog.Active && !ofSwitch {
			t.Errorf("%s is active, but according to DCGM the GPU remains usable", f.Code)
		}
	}
}

func TestFindingOf(t *testing.T) {
	const active, ignored = catalog.Active, catalog.Informational
	for _, tt := range []struct {
		code, want string
		severity   catalog.Severity
		category   string
		treatment  catalog.Treatment
	}{
		{"", "DCGM_FR_OK", "NONE", "NONE", active},
		{"DCGM_FR_XID_ERROR", "DCGM_FR_XID_ERROR", "TRIAGE", "SOFTWARE_XID", catalog.ByXID},
		{"DCGM_FR_CLOCK_THROTTLE_POWER", "DCGM_FR_CLOCK_THROTTLE_POWER", "MONITOR", "HARDWARE_POWER", ignored},
		{"DCGM_FR_CLOCKS_EVENT_POWER", "DCGM_FR_CLOCK_THROTTLE_POWER", "MONITOR", "HARDWARE_POWER", ignored},
		{"DCGM_FR_PENDING_ROW_REMAP", "DCGM_FR_PENDING_ROW_REMAP", "RESET", "HARDWARE_MEMORY", catalog.BySeries},
		{"4000", "4000", "UNKNOWN", "UNKNOWN", active},
		{"DCGM_FR_OF_THE_FUTURE", "DCGM_FR_OF_THE_FUTURE", "UNKNOWN", "UNKNOWN", active},
	} {
		got := catalog.FindingOf(tt.code)
		want := catalog.Finding{Code: tt.want, Severity: tt.severity, Category: tt.category}
		want.Treatment, got.By, got.Why = tt.treatment, "", ""
		if got != want {
			t.Errorf("FindingOf(%q) = %+v, want %+v", tt.code, got, want)
		}
	}
}

func TestParseFinding(t *testing.T) {
	for word, want := range map[string]string{
		"DCGM_FR_NVLINK_DOWN": "DCGM_FR_NVLINK_DOWN", "nvlink_down": "DCGM_FR_NVLINK_DOWN", "14": "DCGM_FR_NVLINK_DOWN",
		"CLOCKS_EVENT_THERMAL": "DCGM_FR_CLOCK_THROTTLE_THERMAL", "4000": "4000",
		"DCGM_FR_NVLINK_DWN": "", "": "", "DCGM_FR_OK": "", "0": "", "-1": "",
	} {
		if got, ok := catalog.ParseFinding(word); ok != (want != "") || ok && got != want {
			t.Errorf("ParseFinding(%q) = %q, %v, want %q", word, got, ok, want)
		}
	}
	codes := catalog.FindingCodes()
	if slices.Contains(codes, "DCGM_FR_OK") || !slices.Contains(codes, "DCGM_FR_XID_ERROR") {
		t.Errorf("codes = %v, want DCGM_FR_XID_ERROR and not DCGM_FR_OK", codes)
	}
}
