package catalog_test

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

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
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

// Every name that go-dcgm knows is in the catalog with the same ID. A base-unit name refers to the older ID, which is
// read instead.
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
		entry, ok := catalog.ByID(gpu.FieldID(id))
		if !ok {
			t.Errorf("ByID(%d): not found, want %s", id, pair[1])
			continue
		}
		named, ok := catalog.Lookup(pair[1])
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
	units := []gpu.Unit{
		"", catalog.Megahertz, catalog.Kilohertz, catalog.Hertz, catalog.Millijoules, catalog.Joules, catalog.Watts,
		catalog.MilliwattsPerSecond, catalog.Percent, catalog.Ratio, catalog.Mebibytes, catalog.Bytes,
		catalog.BytesPerSecond, catalog.KilobytesPerSecond, catalog.MegabytesPerSecond, catalog.Celsius,
		catalog.Nanoseconds, catalog.Milliseconds, catalog.Seconds, catalog.Millivolts,
	}
	// blanks are values that engines return instead of "no value", and other invalid values.
	blanks := []float64{math.MaxInt64 - 15, math.MaxInt64, 140737488355328, math.NaN(), math.Inf(1)}
	owner := make(map[string]gpu.FieldID)
	last := -1
	for e := range catalog.All() {
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
		}
		if !slices.Contains(units, e.Unit) {
			t.Errorf("%s: unknown unit %q", e.Name, e.Unit)
		}
		if e.Type != catalog.Integer && e.Type != catalog.Float && (e.Unit != "" || e.Range != nil || e.Monotonic) {
			t.Errorf("%v of type %v has a unit, a range or is monotonic, want none of them", e.Name, e.Type)
		}
		if e.Help == "" || strings.ContainsAny(e.Help, "\n\"|") || strings.HasSuffix(e.Help, ".") {
			t.Errorf("%s: invalid help %q", e.Name, e.Help)
		}
		if e.Profiling != (strings.HasPrefix(e.Name, "DCGM_FI_PROF_")) {
			t.Errorf("%s: profiling = %t, want true only for DCGM_FI_PROF_ names", e.Name, e.Profiling)
		}
		if e.Unit != "" && e.Range == nil {
			t.Errorf("%s: unit = %s without a range, want a range", e.Name, e.Unit)
		}
		for _, v := range blanks {
			// Only a counter may be close to the largest integer.
			isCount := e.Monotonic && v == 140737488355328 && e.Unit != catalog.Percent
			if e.Range != nil && e.Range.Contains(v) && !isCount && !math.IsNaN(v) {
				t.Errorf("%s: range %g to %g contains the blank %g", e.Name, e.Range.Min, e.Range.Max, v)
			}
		}
		if e.Unit == catalog.Percent && e.Range.Max > 250 {
			t.Errorf("%s: maximum = %g percent, want at most 250", e.Name, e.Range.Max)
		}
	}
}

func TestLevels(t *testing.T) {
	for name, want := range map[string]gpu.Kinds{
		"DCGM_FI_DEV_GPU_TEMP": gpu.KindsOf(gpu.KindGPU), "DCGM_FI_DEV_XID_ERRORS": gpu.KindsOf(gpu.KindGPU),
		"DCGM_FI_DEV_GPU_UTIL":                     gpu.KindsOf(gpu.KindGPU),
		"DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL":       gpu.KindsOf(gpu.KindGPU),
		"DCGM_FI_PROF_PCIE_TX_BYTES":               gpu.KindsOf(gpu.KindGPU),
		"DCGM_FI_DEV_FB_USED":                      gpu.KindsOf(gpu.KindGPU, gpu.KindGPUInstance),
		"DCGM_FI_PROF_GR_ENGINE_ACTIVE":            gpu.KindsOf(gpu.KindGPU, gpu.KindGPUInstance),
		"DCGM_FI_DEV_CUDA_VISIBLE_DEVICES_STR":     gpu.KindsOf(gpu.KindGPU, gpu.KindGPUInstance),
		"DCGM_FI_DRIVER_VERSION":                   gpu.KindsOf(gpu.KindNode),
		"DCGM_FI_DEV_NVLINK_GET_STATE":             gpu.KindsOf(gpu.KindNVLink),
		"DCGM_FI_DEV_NVSWITCH_LINK_FLIT_ERRORS":    gpu.KindsOf(gpu.KindNVLink),
		"DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT": gpu.KindsOf(gpu.KindNVSwitch),
		"DCGM_FI_DEV_CPU_UTIL_TOTAL":               gpu.KindsOf(gpu.KindCPU, gpu.KindCPUCore),
		"DCGM_FI_DEV_CPU_TEMP_CURRENT":             gpu.KindsOf(gpu.KindCPU),
		"DCGM_FI_DEV_CPU_CLOCK_CURRENT":            gpu.KindsOf(gpu.KindCPUCore), "DCGM_FI_DEV_VGPU_VM_ID": 0,
		"DCGM_FI_DEV_CONNECTX_HEALTH": gpu.KindsOf(gpu.KindConnectX),
	} {
		named, ok := catalog.Lookup(name)
		if !ok || named.Entry.Levels != want {
			t.Errorf("%s: levels = %v, want %v", name, named.Entry.Levels.List(), want.List())
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
		"DCGM_FI_DEV_SM_CLOCK":                 {100, catalog.Megahertz, 1},
		"DCGM_FI_DEV_SM_CLOCK_HERTZ":           {100, catalog.Hertz, 1e6},
		"dcgm_sm_clock":                        {100, catalog.Megahertz, 1},
		"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": {156, catalog.Millijoules, 1},
		"DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL":  {156, catalog.Joules, 1e-3},
		"DCGM_FI_DEV_FAN_SPEED_RATIO":          {191, catalog.Ratio, 1e-2},
		"DCGM_FI_DEV_BAR1_CAPACITY_BYTES":      {90, catalog.Bytes, 1 << 20},
		// A new name of an old ID that keeps the old unit.
		"DCGM_FI_DEV_GPU_UTIL":       {203, catalog.Percent, 1},
		"DCGM_FI_DEV_GPU_UTIL_RATIO": {203, catalog.Ratio, 1e-2},
		"dcgm_gpu_utilization":       {203, catalog.Percent, 1},
		// Names that only a newer DCGM has.
		"DCGM_FI_DEV_MEMORY_UTIL_RATIO":                  {204, catalog.Ratio, 1e-2},
		"DCGM_FI_DEV_FB_CAPACITY_BYTES":                  {250, catalog.Bytes, 1 << 20},
		"DCGM_FI_DEV_GPU_POWER_THROTTLE_SECONDS_TOTAL":   {240, catalog.Seconds, 1e-9},
		"DCGM_FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND": {449, catalog.BytesPerSecond, 1024000},
		// Renames that only change the spelling.
		"DCGM_FI_DEV_BOARD_POWER_WATTS":     {155, catalog.Watts, 1},
		"DCGM_FI_DEV_XID_ERROR":             {230, "", 1},
		"DCGM_FI_PROF_TENSOR_UTIL_RATIO":    {1004, catalog.Ratio, 1},
		"DCGM_FI_DEV_FB_USED_PERCENT":       {254, catalog.Ratio, 1},
		"DCGM_FI_DEV_FB_USED_RATIO":         {254, catalog.Ratio, 1},
		"DCGM_FI_DEV_NVLINK_TX_BYTES_TOTAL": {1201, catalog.Bytes, 1},
		// A name that says bytes although it has always been a rate.
		"DCGM_FI_PROF_PCIE_TX_BYTES": {1009, catalog.BytesPerSecond, 1},
		// Older names.
		"DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": {112, "", 1},
	} {
		got, ok := catalog.Lookup(name)
		if !ok || got.Entry.ID != want.id || got.Unit != want.unit || got.Scale != want.scale || got.Name != name {
			t.Errorf("%s: ID = %d, unit = %q, scale = %v (found: %t); want %+v",
				name, got.Entry.ID, got.Unit, got.Scale, ok, want)
		}
	}
	if _, ok := catalog.Lookup("DCGM_FI_DEV_GPU_TEMPERATURE"); ok {
		t.Error("Lookup of an unknown name: found = true, want false")
	}
}

// Every name that states a unit has that unit, whatever its ID.
func TestNamesHaveTheirUnit(t *testing.T) {
	promises := map[string]gpu.Unit{
		"_RATIO": catalog.Ratio, "_HERTZ": catalog.Hertz, "_JOULES": catalog.Joules, "_BYTES": catalog.Bytes,
		"_WATTS": catalog.Watts, "_CELSIUS": catalog.Celsius, "_SECONDS": catalog.Seconds,
		"_BYTES_PER_SECOND": catalog.BytesPerSecond,
	}
	for e := range catalog.All() {
		for _, name := range append([]string{e.Name, e.Classic, e.Current}, e.Aliases...) {
			for suffix, unit := range promises {
				if !strings.HasSuffix(strings.TrimSuffix(strings.ToUpper(name), "_TOTAL"), suffix) || e.Levels == 0 {
					continue
				}
				got, _ := catalog.Lookup(name)
				// Profiling fields in bytes have always been rates, with this name in both vocabularies.
				if got.Unit != unit && !(e.Profiling && e.Unit == catalog.BytesPerSecond) {
					t.Errorf("%s: unit = %q, want %q", name, got.Unit, unit)
				}
			}
		}
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
		if got := catalog.Nearest(name); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestSearch(t *testing.T) {
	ids := func(entries []catalog.Entry) []gpu.FieldID {
		var list []gpu.FieldID
		for _, e := range entries {
			list = append(list, e.ID)
		}
		return list
	}
	for _, test := range []struct {
		words []string
		want  []gpu.FieldID
	}{
		{[]string{"DCGM_FI_DEV_SM_CLOCK_HERTZ"}, []gpu.FieldID{100}}, {[]string{"fan", "speed"}, []gpu.FieldID{191}},
		{[]string{"speed", "FAN"}, []gpu.FieldID{191}}, {[]string{"xid"}, []gpu.FieldID{230, 856, 857}},
		{[]string{"mJ"}, []gpu.FieldID{156}}, {[]string{"no", "such", "thing", "at", "all"}, nil},
	} {
		if diff := cmp.Diff(test.want, ids(catalog.Search(test.words...))); diff != "" {
			t.Errorf("Search(%q) (-want +got)\n%s", test.words, diff)
		}
	}
	if n := len(catalog.Search()); n < 600 {
		t.Errorf("fields found by Search without words = %d, want at least 600", n)
	}
}
