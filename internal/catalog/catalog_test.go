package catalog

import (
	"bytes"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// moduleDir returns the folder of go-dcgm in the module cache.
func moduleDir(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/NVIDIA/go-dcgm").Output()
	dir := strings.TrimSpace(string(out))
	if err != nil || dir == "" {
		t.Skipf("SKIP module-absent: go-dcgm is not in the module cache: %v", err)
	}
	return dir
}

// Every name in go-dcgm is in the catalog with the same ID. A base-unit name refers to the older ID, which is read
// instead.
func TestCatalogHasNamesOfGoDCGM(t *testing.T) {
	source, err := os.ReadFile(filepath.Join(moduleDir(t), "pkg", "dcgm", "const_fields.go"))
	if err != nil {
		t.Fatal(err)
	}
	pairs := regexp.MustCompile(`(?m)^\t"(\w+)":\s+(\d+),$`).FindAllStringSubmatch(string(source), -1)
	if len(pairs) < 1000 {
		t.Fatalf("names in go-dcgm = %d, want at least 1000", len(pairs))
	}
	for _, pair := range pairs {
		id, err := strconv.Atoi(pair[2])
		if err != nil {
			t.Fatal(err)
		}
		entry, ok := ByID(gpu.FieldID(id))
		if !ok {
			t.Errorf("ByID(%d): not found, want %s", id, pair[1])
			continue
		}
		named, ok := Lookup(pair[1])
		if want := entry; !ok || named.Entry.ID != want.ID && named.Entry.ID != want.BaseOf {
			t.Errorf("%s has ID %d (found: %t), want %d as in go-dcgm", pair[1], named.Entry.ID, ok, id)
		}
	}
}

// The generated files match the module and the facts.
func TestCatalogIsCurrent(t *testing.T) {
	moduleDir(t)
	dir := t.TempDir()
	files := []string{"entries_gen.go", "ids_gen.go"}
	entries, ids := filepath.Join(dir, files[0]), filepath.Join(dir, files[1])
	cmd := exec.Command("go", "run", "../../tools/cataloggen", "-o", entries, "-ids", ids)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("generate: %v\n%s", err, out)
	}
	for _, name := range files {
		want, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		have, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(want, have) {
			t.Errorf("%s is stale: run go generate ./internal/catalog", name)
		}
	}
}

func TestCatalogIsConsistent(t *testing.T) {
	// blanks are values that engines return instead of "no value", and other invalid values.
	blanks := []float64{math.MaxInt64 - 15, math.MaxInt64, 140737488355328, math.NaN(), math.Inf(1)}
	owner := make(map[string]gpu.FieldID)
	last := -1
	for e := range All() {
		if int(e.ID) <= last {
			t.Fatalf("ID %d follows %d, want ascending IDs", e.ID, last)
		}
		last = int(e.ID)
		for _, name := range append([]string{e.Name, e.Classic, e.Current}, e.Aliases...) {
			if other, taken := owner[name]; taken && other != e.ID && e.BaseOf != other {
				t.Errorf("name %s is used by fields %d and %d, want one field", name, other, e.ID)
			}
			owner[name] = e.ID
			if name == "" || len(name) > 100 {
				t.Errorf("ID %d: invalid name %q", e.ID, name)
			}
			checkUnit(t, e, name)
		}
		isNumber := e.Type == Integer || e.Type == Float
		if !isNumber && (e.Unit != "" || e.Range != nil || e.Monotonic) || e.Unit != "" && e.Range == nil {
			t.Errorf("%v of type %v: unit %q, range %v, monotonic %t; want none, or a range with the unit",
				e.Name, e.Type, e.Unit, e.Range, e.Monotonic)
		}
		if e.Help == "" || strings.ContainsAny(e.Help, "\n\"|") || strings.HasSuffix(e.Help, ".") {
			t.Errorf("%s: invalid help %q", e.Name, e.Help)
		}
		if e.Profiling != (strings.HasPrefix(e.Name, "DCGM_FI_PROF_")) {
			t.Errorf("%s: profiling = %t, want true only for DCGM_FI_PROF_ names", e.Name, e.Profiling)
		}
		for _, v := range blanks {
			// Only a counter may be close to the largest integer.
			isCount := e.Monotonic && v == 140737488355328 && e.Unit != Percent
			if e.Range != nil && e.Range.Contains(v) && !isCount && !math.IsNaN(v) {
				t.Errorf("%s: range %g to %g contains the blank %g", e.Name, e.Range.Min, e.Range.Max, v)
			}
		}
		if e.Unit == Percent && e.Range.Max > 250 {
			t.Errorf("%s: maximum = %g percent, want at most 250", e.Name, e.Range.Max)
		}
		// The catalog has the engine's own interval of a field (DCGM 4.6, DcgmCacheManager.cpp).
		want := map[gpu.FieldID]time.Duration{83: 30 * time.Second, 84: 30 * time.Second}[e.ID]
		if got := e.Field().MinInterval; got != want {
			t.Errorf("%s: MinInterval = %v, want %v", e.Name, got, want)
		}
	}
}

// checkUnit checks that the unit of a name is known, and the one that the name states, if it states one.
func checkUnit(t *testing.T, e Entry, name string) {
	t.Helper()
	got, _ := Lookup(name)
	others := []gpu.Unit{"", Celsius, MilliwattsPerSecond, Millivolts} // without a conversion
	if _, known := quantities[got.Unit]; !known && !slices.Contains(others, got.Unit) {
		t.Errorf("%s: unknown unit %q", name, got.Unit)
	}
	for suffix, unit := range map[string]gpu.Unit{
		"_RATIO": Ratio, "_HERTZ": Hertz, "_JOULES": Joules, "_BYTES": Bytes,
		"_WATTS": Watts, "_CELSIUS": Celsius, "_SECONDS": Seconds,
		"_BYTES_PER_SECOND": BytesPerSecond,
	} {
		states := strings.HasSuffix(strings.TrimSuffix(strings.ToUpper(name), "_TOTAL"), suffix) && e.Levels != 0
		// Profiling fields in bytes have always been rates, with this name in both vocabularies.
		if states && got.Unit != unit && !(e.Profiling && e.Unit == BytesPerSecond) {
			t.Errorf("%s: unit = %q, want %q", name, got.Unit, unit)
		}
	}
}

func TestLevels(t *testing.T) {
	for want, names := range map[gpu.Kinds]string{
		gpu.KindsOf(gpu.KindGPU): "DCGM_FI_DEV_GPU_TEMP DCGM_FI_DEV_XID_ERRORS DCGM_FI_DEV_GPU_UTIL " +
			"DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL DCGM_FI_PROF_PCIE_TX_BYTES",
		gpu.KindsOf(gpu.KindGPU, gpu.KindGPUInstance): "DCGM_FI_DEV_FB_USED DCGM_FI_PROF_GR_ENGINE_ACTIVE " +
			"DCGM_FI_DEV_CUDA_VISIBLE_DEVICES_STR",
		gpu.KindsOf(gpu.KindNode):                 "DCGM_FI_DRIVER_VERSION",
		gpu.KindsOf(gpu.KindNVLink):               "DCGM_FI_DEV_NVLINK_GET_STATE DCGM_FI_DEV_NVSWITCH_LINK_FLIT_ERRORS",
		gpu.KindsOf(gpu.KindNVSwitch):             "DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT",
		gpu.KindsOf(gpu.KindCPU, gpu.KindCPUCore): "DCGM_FI_DEV_CPU_UTIL_TOTAL",
		gpu.KindsOf(gpu.KindCPU):                  "DCGM_FI_DEV_CPU_TEMP_CURRENT",
		gpu.KindsOf(gpu.KindCPUCore):              "DCGM_FI_DEV_CPU_CLOCK_CURRENT",
		gpu.KindsOf(gpu.KindConnectX):             "DCGM_FI_DEV_CONNECTX_HEALTH",
		0:                                         "DCGM_FI_DEV_VGPU_VM_ID",
	} {
		for name := range strings.FieldsSeq(names) {
			named, ok := Lookup(name)
			if !ok || named.Entry.Levels != want {
				t.Errorf("%s: levels = %v, want %v", name, named.Entry.Levels.List(), want.List())
			}
		}
	}
}

// A name refers to a field that every engine can read, with the factor to the unit that the name states.
func TestLookup(t *testing.T) {
	for name, want := range map[string]struct {
		id    gpu.FieldID
		unit  gpu.Unit
		scale float64
	}{
		// A base-unit ID exists in addition to the old one; the old one is read.
		"DCGM_FI_DEV_SM_CLOCK":                 {100, Megahertz, 1},
		"DCGM_FI_DEV_SM_CLOCK_HERTZ":           {100, Hertz, 1e6},
		"dcgm_sm_clock":                        {100, Megahertz, 1},
		"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": {156, Millijoules, 1},
		"DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL":  {156, Joules, 1e-3},
		"DCGM_FI_DEV_FAN_SPEED_RATIO":          {191, Ratio, 1e-2},
		"DCGM_FI_DEV_BAR1_CAPACITY_BYTES":      {90, Bytes, 1 << 20},
		// A new name of an old ID that keeps the old unit.
		"DCGM_FI_DEV_GPU_UTIL":       {203, Percent, 1},
		"DCGM_FI_DEV_GPU_UTIL_RATIO": {203, Ratio, 1e-2},
		"dcgm_gpu_utilization":       {203, Percent, 1},
		// Names that only a newer DCGM has.
		"DCGM_FI_DEV_MEMORY_UTIL_RATIO":                  {204, Ratio, 1e-2},
		"DCGM_FI_DEV_FB_CAPACITY_BYTES":                  {250, Bytes, 1 << 20},
		"DCGM_FI_DEV_GPU_POWER_THROTTLE_SECONDS_TOTAL":   {240, Seconds, 1e-9},
		"DCGM_FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND": {449, BytesPerSecond, 1024000},
		// Renames that only change the spelling.
		"DCGM_FI_DEV_BOARD_POWER_WATTS":     {155, Watts, 1},
		"DCGM_FI_DEV_XID_ERROR":             {230, "", 1},
		"DCGM_FI_PROF_TENSOR_UTIL_RATIO":    {1004, Ratio, 1},
		"DCGM_FI_DEV_FB_USED_PERCENT":       {254, Ratio, 1},
		"DCGM_FI_DEV_FB_USED_RATIO":         {254, Ratio, 1},
		"DCGM_FI_DEV_NVLINK_TX_BYTES_TOTAL": {1201, Bytes, 1},
		// A name that says bytes although it has always been a rate.
		"DCGM_FI_PROF_PCIE_TX_BYTES": {1009, BytesPerSecond, 1},
		// Older names.
		"DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": {112, "", 1},
	} {
		got, ok := Lookup(name)
		if !ok || got.Entry.ID != want.id || got.Unit != want.unit || got.Scale != want.scale || got.Name != name {
			t.Errorf("%s: ID = %d, unit = %q, scale = %v (found: %t); want %+v",
				name, got.Entry.ID, got.Unit, got.Scale, ok, want)
		}
	}
	if _, ok := Lookup("DCGM_FI_DEV_GPU_TEMPERATURE"); ok {
		t.Error("Lookup of an unknown name: found = true, want false")
	}
}

func TestNearest(t *testing.T) {
	for name, want := range map[string]string{
		"DCGM_FI_DEV_GPU_UTL": "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_TMEP": "DCGM_FI_DEV_GPU_TEMP",
		"dcgm_fi_dev_fb_used": "DCGM_FI_DEV_FB_USED", " DCGM_FI_DEV_FB_USD ": "DCGM_FI_DEV_FB_USED",
		"dcgm_gpu_tmp": "dcgm_gpu_temp", "DCGM_EXP_CLOCK_EVENT_COUNT": "DCGM_EXP_CLOCK_EVENTS_COUNT",
		"DCGM_FI_DEV_POWER": "DCGM_FI_DEV_POWER_USAGE", // truncated name
		"DCGM_FI_GPU_TEMP":  "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_FAN": "DCGM_FI_DEV_FAN_SPEED",
		"DCGM_FI_DEV_LATENCY":    "", // too general: all names start with DCGM_FI_DEV
		"node_cpu_seconds_total": "", "": "", strings.Repeat("DCGM_FI_", 40): "",
	} {
		if got := Nearest(name); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestSearch(t *testing.T) {
	for words, want := range map[string][]gpu.FieldID{
		"DCGM_FI_DEV_SM_CLOCK_HERTZ": {100}, "fan speed": {191}, "speed FAN": {191}, "xid": {230, 856, 857},
		"mJ": {156}, "no such thing at all": nil,
	} {
		var got []gpu.FieldID
		for _, e := range Search(strings.Fields(words)...) {
			got = append(got, e.ID)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("Search(%q) (-want +got)\n%s", words, diff)
		}
	}
	if n := len(Search()); n < 600 {
		t.Errorf("fields found by Search without words = %d, want at least 600", n)
	}
}

// Invalid values seen in practice are outside the ranges. Possible values of current and next boards are inside.
func TestRanges(t *testing.T) {
	const garbage, blank = 808334905, 140737488355328
	for id, tt := range map[gpu.FieldID]struct{ in, out []float64 }{
		202:  {[]float64{0, 1e7}, []float64{-1, garbage}},                // PCIe replays
		390:  {[]float64{0, 64}, []float64{garbage}},                     // retired pages
		391:  {[]float64{0, 64}, []float64{garbage}},                     // retired pages
		393:  {[]float64{0, 512}, []float64{garbage}},                    // remapped rows
		1009: {[]float64{0, 2.6e11}, []float64{-1, blank, 1.8446744e19}}, // PCIe generation 7 with 16 lanes
		1010: {[]float64{0, 2.6e11}, []float64{-1, blank}},
		200:  {[]float64{0, 2.6e8}, []float64{blank}},
		203:  {[]float64{0, 100}, []float64{garbage}},
		1503: {[]float64{-3, 0, 6}, []float64{garbage}}, // IMEX; negative without a daemon
	} {
		e, _ := ByID(id)
		for _, v := range append(tt.in, tt.out...) {
			if got := e.Range.Contains(v); got != slices.Contains(tt.in, v) {
				t.Errorf("%s: the range contains %v: %t, want %t", e.Name, v, got, !got)
			}
		}
	}
}

func TestConversion(t *testing.T) {
	for _, tt := range []struct {
		from, to gpu.Unit
		factor   float64 // 0 for none
	}{
		{Megahertz, Hertz, 1e6}, {Percent, Ratio, 0.01},
		{Mebibytes, Bytes, 1048576}, {MegabytesPerSecond, BytesPerSecond, 1024000},
		{Nanoseconds, Milliseconds, 1e-6}, {Milliwatts, Watts, 1e-3},
		{Celsius, Celsius, 1}, {"", "", 1}, {Celsius, Watts, 0},
		{Bytes, BytesPerSecond, 0}, {"", Bytes, 0},
	} {
		got, ok := Conversion(tt.from, tt.to)
		back, also := Conversion(tt.to, tt.from)
		isInverse := !ok || math.Abs(got*back-1) <= 1e-12
		if math.Abs(got-tt.factor) > tt.factor*1e-12 || ok != (tt.factor > 0) || also != ok || !isInverse {
			t.Errorf("%q to %q: factor = %v (%t), back = %v (%t); want %v",
				tt.from, tt.to, got, ok, back, also, tt.factor)
		}
	}
}

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
