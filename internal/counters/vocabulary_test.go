package counters_test

import (
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

// In the default file, 4.9 changes 23 names, 11 of them with a new unit, and adds the frame buffer size.
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

// In every vocabulary, a line of a user's file requests exactly the name it contains.
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
