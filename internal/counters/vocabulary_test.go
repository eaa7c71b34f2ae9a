package counters_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/etc"
	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// parse returns the requests of a file, and its problems.
func parse(t *testing.T, text string) ([]counters.Request, []counters.Problem) {
	t.Helper()
	requests, problems, err := counters.Parse(strings.NewReader(text), "my.csv")
	if err != nil {
		t.Fatal(err)
	}
	return requests, problems
}

// valid returns the requests of a file without problems.
func valid(t *testing.T, text string) []counters.Request {
	t.Helper()
	requests, problems := parse(t, text)
	if len(problems) > 0 {
		t.Fatalf("problems = %v, want none", problems)
	}
	return requests
}

func names(requests []counters.Request) (list []string) {
	for _, r := range requests {
		list = append(list, r.Name)
	}
	return list
}

// Version 4.9 changes 23 names in the default file, 11 of them with a new unit, and adds the frame buffer size.
func TestTranslateDefault(t *testing.T) {
	requests := valid(t, string(etc.Default()))
	if diff := cmp.Diff(names(requests), names(counters.Translate(requests, catalog.Classic, true))); diff != "" {
		t.Errorf("classic changes the file (-file +translated)\n%s", diff)
	}
	want := []string{
		"DCGM_FI_DEV_SM_CLOCK_HERTZ", "DCGM_FI_DEV_MEMORY_CLOCK_HERTZ", "DCGM_FI_DEV_MEMORY_TEMP_CELSIUS",
		"DCGM_FI_DEV_GPU_TEMP_CELSIUS", "DCGM_FI_DEV_BOARD_POWER_WATTS", "DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL",
		"DCGM_FI_DEV_PCIE_REPLAY_TOTAL", "DCGM_FI_DEV_GPU_UTIL_RATIO", "DCGM_FI_DEV_MEMORY_UTIL_RATIO",
		"DCGM_FI_DEV_ENC_UTIL_RATIO", "DCGM_FI_DEV_DEC_UTIL_RATIO", "DCGM_FI_DEV_XID_ERROR",
		"DCGM_FI_DEV_FB_FREE_BYTES", "DCGM_FI_DEV_FB_USED_BYTES", "DCGM_FI_DEV_FB_RESERVED_BYTES",
		"DCGM_FI_DEV_FB_CAPACITY_BYTES", "DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL",
		"DCGM_FI_DEV_ROW_REMAP_CORRECTABLE_TOTAL", "DCGM_FI_DEV_ROW_REMAP_FAILED",
		"DCGM_FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND", "DCGM_FI_DEV_VGPU_LICENSE_STATUS",
		"DCGM_FI_SYSTEM_DRIVER_VERSION", "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", "DCGM_FI_PROF_TENSOR_UTIL_RATIO",
		"DCGM_FI_PROF_DRAM_UTIL_RATIO", "DCGM_FI_PROF_PCIE_TX_BYTES", "DCGM_FI_PROF_PCIE_RX_BYTES",
	}
	current := counters.Translate(requests, catalog.Current, true)
	if diff := cmp.Diff(want, names(current)); diff != "" {
		t.Errorf("current (-want +got)\n%s", diff)
	}
	renamed, rescaled := 0, 0
	for _, r := range current {
		if r.Name == "DCGM_FI_DEV_FB_CAPACITY_BYTES" {
			continue
		}
		if r.Name != r.Named.Entry.Classic {
			renamed++
		}
		if r.Named.Scale != 1 {
			rescaled++
		}
	}
	if renamed != 23 || rescaled != 11 {
		t.Errorf("renamed = %d, with another unit = %d; want 23 and 11", renamed, rescaled)
	}
	both := counters.Translate(requests, catalog.Both, true)
	if got, want := len(both), len(requests)+renamed+1; got != want {
		t.Errorf("families with vocabulary both = %d, want %d", got, want)
	}
	plan := counters.NewPlan(both, gpu.Plan{})
	if got, want := len(plan.Fields), len(requests)+1; got != want {
		t.Errorf("fields read with vocabulary both = %d, want %d: one sample serves both names", got, want)
	}
}

// A line of a user's file requests exactly the name it contains, in every vocabulary.
func TestTranslateUserFile(t *testing.T) {
	const file = `
DCGM_FI_DEV_SM_CLOCK, gauge, clock
DCGM_FI_DEV_GPU_TEMP_CELSIUS, gauge, temperature
DCGM_FI_DEV_FB_USED, gauge, both are asked for
DCGM_FI_DEV_FB_USED_BYTES, gauge, both are asked for
dcgm_power_usage, gauge, 1.x
DCGM_FI_DEV_VGPU_LICENSE_STATUS, gauge, never renamed
DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL, counter, a rate
DCGM_FI_DRIVER_VERSION, label, driver
DCGM_EXP_XID_ERRORS_COUNT, gauge, exporter family
DCGM_FI_DEV_FB_RESERVED, gauge, no capacity is added
`
	requests := valid(t, file)
	for _, v := range []catalog.Vocabulary{catalog.Classic, catalog.Current} {
		if diff := cmp.Diff(names(requests), names(counters.Translate(requests, v, false))); diff != "" {
			t.Errorf("%s changes the user's file (-file +translated)\n%s", v, diff)
		}
	}
	both := counters.Translate(requests, catalog.Both, false)
	want := []string{
		"DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_SM_CLOCK_HERTZ",
		"DCGM_FI_DEV_GPU_TEMP_CELSIUS", "DCGM_FI_DEV_GPU_TEMP",
		"DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_USED_BYTES",
		"dcgm_power_usage",
		"DCGM_FI_DEV_VGPU_LICENSE_STATUS",
		"DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "DCGM_FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND",
		"DCGM_FI_DRIVER_VERSION", "DCGM_FI_SYSTEM_DRIVER_VERSION",
		"DCGM_EXP_XID_ERRORS_COUNT",
		"DCGM_FI_DEV_FB_RESERVED", "DCGM_FI_DEV_FB_RESERVED_BYTES",
	}
	if diff := cmp.Diff(want, names(both)); diff != "" {
		t.Errorf("both (-want +got)\n%s", diff)
	}
	for _, r := range both {
		switch r.Name {
		case "DCGM_FI_DEV_SM_CLOCK_HERTZ":
			if r.Help != "SM clock (in hertz)." || r.Named.Scale != 1e6 {
				t.Errorf("added family: help = %q, scale = %v; want the help in hertz and 1e6", r.Help, r.Named.Scale)
			}
		case "DCGM_FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND":
			if r.Type != gpu.MetricGauge {
				t.Errorf("added rate has type %s, want gauge", r.Type)
			}
		case "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL":
			if r.Type != gpu.MetricCounter || r.Help != "a rate" {
				t.Errorf("user's line: type = %s, help = %q; want counter and \"a rate\"", r.Type, r.Help)
			}
		}
	}
}

// named returns "NAME type" of each request, sorted.
func named(requests []counters.Request) (list []string) {
	for _, r := range requests {
		list = append(list, fmt.Sprint(r.Name, " ", r.Type))
	}
	slices.Sort(list)
	return list
}

// A file that includes a built-in file requests the same families plus its own.
func TestInclude(t *testing.T) {
	for _, name := range etc.Names {
		content, ok := etc.Named(name)
		if !ok {
			t.Fatalf("etc.Named(%s): not found, want the built-in file", name)
		}
		isOwn := func(r counters.Request) bool { return r.Name == "DCGM_FI_DEV_GPU_TEMP" }
		own := valid(t, "DCGM_FI_DEV_GPU_TEMP, untyped, mine")
		want := named(append(slices.DeleteFunc(valid(t, string(content)), isOwn), own...))
		for _, text := range []string{
			"DCGM_FI_DEV_GPU_TEMP, untyped, mine\n# include: " + name,
			"#include:" + name + "\nDCGM_FI_DEV_GPU_TEMP, untyped, mine",
			"# include: " + name + ",,\n# include: " + name + "\nDCGM_FI_DEV_GPU_TEMP, untyped, mine\n",
		} {
			if diff := cmp.Diff(want, named(valid(t, text))); diff != "" {
				t.Errorf("%q: requests (-want +got):\n%s", text, diff)
			}
		}
	}
}

// Lines of an included file follow the vocabulary, like lines of a built-in file. Lines of the file itself stay as
// written.
func TestIncludeFollowsTheVocabulary(t *testing.T) {
	requests := valid(t, "# include: default\nDCGM_FI_DEV_GPU_TEMP, gauge, mine")
	current := strings.Join(names(counters.Translate(requests, catalog.Current, false)), " ") + " "
	for name, want := range map[string]bool{
		"DCGM_FI_DEV_GPU_TEMP ": true, "DCGM_FI_DEV_GPU_TEMP_CELSIUS ": false,
		"DCGM_FI_DEV_MEMORY_TEMP ": false, "DCGM_FI_DEV_MEMORY_TEMP_CELSIUS ": true,
	} {
		if got := strings.Contains(current, name); got != want {
			t.Errorf("%s requested = %t, want %t", name, got, want)
		}
	}
}

// Every exportable field has a name in both vocabularies. Each name maps to the other with the inverse factor. One
// sample serves both.
func TestEveryFieldInBothVocabularies(t *testing.T) {
	fields, renamed, rescaled := 0, 0, 0
	for e := range catalog.All() {
		if !e.Exportable() || e.BaseOf != 0 {
			continue
		}
		fields++
		typ := gpu.MetricGauge
		if e.Type == catalog.Text {
			typ = gpu.MetricLabel
		}
		request, err := counters.NewRequest(e.Classic, typ, "")
		if err != nil {
			t.Errorf("NewRequest of field %d: error = %v, want nil", e.ID, err)
			continue
		}
		if request.Named.Entry.ID != e.ID {
			t.Errorf("%s requests field %d, want %d", e.Classic, request.Named.Entry.ID, e.ID)
		}
		both := counters.Translate([]counters.Request{request}, catalog.Both, false)
		if e.Classic == e.Current {
			if len(both) != 1 || both[0].Name != e.Classic {
				t.Errorf("%s: vocabulary both yields %v, want one name", e.Classic, names(both))
			}
			continue
		}
		renamed++
		if len(both) != 2 || both[0].Name != e.Classic || both[1].Name != e.Current {
			t.Errorf("field %d: vocabulary both yields %v, want %s and %s", e.ID, names(both), e.Classic, e.Current)
			continue
		}
		if plan := counters.NewPlan(both, gpu.Plan{}); len(plan.Fields) != 1 {
			t.Errorf("%s: fields read for the two names = %d, want 1", e.Classic, len(plan.Fields))
		}
		from, to, ok := catalog.Rename(e.Classic, catalog.Current)
		back, forth, okBack := catalog.Rename(e.Current, catalog.Classic)
		if !ok || !okBack || to.Name != e.Current || forth.Name != e.Classic {
			t.Errorf("Rename = %s and %s, want %s and %s", to.Name, forth.Name, e.Current, e.Classic)
			continue
		}
		there, again := to.Scale/from.Scale, forth.Scale/back.Scale
		if there <= 0 || math.Abs(there*again-1) > 1e-12 {
			t.Errorf("%s: factor = %v, inverse = %v; want a product of 1", e.Classic, there, again)
		}
		if there != 1 {
			rescaled++
			if from.Unit == to.Unit {
				t.Errorf("%s: factor = %v, want 1: both names use the unit %s", e.Classic, there, from.Unit)
			}
		} else if from.Unit != to.Unit {
			t.Errorf("%s in %q and %s in %q: factor = 1, want another", e.Classic, from.Unit, e.Current, to.Unit)
		}
		if _, _, ok := catalog.Rename(e.Classic, catalog.Classic); ok {
			t.Errorf("%s: Rename returns another classic name, want none", e.Classic)
		}
		if _, _, ok := catalog.Rename(e.Current, catalog.Current); ok {
			t.Errorf("%s: Rename returns another current name, want none", e.Current)
		}
	}
	if fields < 300 || renamed < 100 || rescaled < 20 {
		t.Errorf("fields = %d, renamed = %d, with another unit = %d; want at least 300, 100, 20",
			fields, renamed, rescaled)
	}
}
