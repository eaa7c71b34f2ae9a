package counters_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

func TestPlanWithAggregates(t *testing.T) {
	requests := parse(t, `
DCGM_FI_DEV_SM_CLOCK, gauge, Clock.
DCGM_FI_DEV_SM_CLOCK_HERTZ, gauge, Clock in hertz.
DCGM_FI_DEV_GPU_TEMP, gauge, Temperature.
`)
	plan := counters.NewPlan(requests, counters.PlanOptions{
		Interval: 30 * time.Second,
		IntervalOf: func(name string) time.Duration {
			if strings.HasPrefix(name, "DCGM_FI_DEV_SM_CLOCK") {
				return 5 * time.Second
			}
			return 0
		},
		Aggregate:         func(name string) bool { return name == "DCGM_FI_DEV_SM_CLOCK_HERTZ" },
		AggregateInterval: 200 * time.Millisecond,
	})
	var got []gpu.Counter
	for _, c := range plan.Counters {
		got = append(got, gpu.Counter{Name: c.Name, Help: c.Help, Field: c.Field, Scale: c.Scale, Aggregate: c.Aggregate})
	}
	want := []gpu.Counter{
		{Name: "DCGM_FI_DEV_SM_CLOCK", Help: "Clock.", Scale: 1},
		{Name: "DCGM_FI_DEV_SM_CLOCK_HERTZ", Help: "Clock in hertz.", Scale: 1e6},
		{Name: "DCGM_FI_DEV_SM_CLOCK_HERTZ_MIN", Help: "Clock in hertz. Lowest of the samples since the previous collection.", Scale: 1e6, Aggregate: gpu.Min},
		{Name: "DCGM_FI_DEV_SM_CLOCK_HERTZ_MAX", Help: "Clock in hertz. Highest of the samples since the previous collection.", Scale: 1e6, Aggregate: gpu.Max},
		{Name: "DCGM_FI_DEV_SM_CLOCK_HERTZ_MEAN", Help: "Clock in hertz. Mean of the samples since the previous collection.", Scale: 1e6, Aggregate: gpu.Mean},
		{Name: "DCGM_FI_DEV_GPU_TEMP", Help: "Temperature.", Field: 1, Scale: 1},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("counters (-want +got):\n%s", diff)
	}
	if f := plan.Fields[0]; !f.Every || f.Interval != 200*time.Millisecond {
		t.Errorf("the clock: every %t every %v", f.Every, f.Interval)
	}
	if f := plan.Fields[1]; f.Every || f.Interval != 0 {
		t.Errorf("the temperature: every %t every %v", f.Every, f.Interval)
	}
}

func TestCheckAggregate(t *testing.T) {
	requested := []string{"DCGM_FI_DEV_GPU_TEMP_MAX"}
	for line, want := range map[string]string{
		"DCGM_FI_DEV_POWER_USAGE, gauge, x":              "",
		"DCGM_FI_DEV_XID_ERRORS, gauge, x":               "the samples of DCGM_FI_DEV_XID_ERRORS are events, of which each counts: expected a gauge of a field",
		"DCGM_EXP_P2P_STATUS, gauge, x":                  "DCGM_EXP_P2P_STATUS is a family of the exporter's own: expected a gauge of a field",
		"DCGM_FI_DRIVER_VERSION, label, x":               "DCGM_FI_DRIVER_VERSION is a text: expected a gauge of a field",
		"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION,counter,x": "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION is requested as a counter: expected a gauge",
		"DCGM_FI_DEV_POWER_MGMT_LIMIT, gauge, x":         "DCGM_FI_DEV_POWER_MGMT_LIMIT cannot have its min: DCGM_FI_DEV_POWER_MGMT_LIMIT_MIN is another metric",
		"DCGM_FI_DEV_GPU_TEMP, gauge, x":                 "DCGM_FI_DEV_GPU_TEMP cannot have its max: DCGM_FI_DEV_GPU_TEMP_MAX is another metric",
	} {
		got := ""
		if err := parse(t, line)[0].CheckAggregate(func(name string) bool { return slices.Contains(requested, name) }); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s\n got %q\nwant %q", line, got, want)
		}
	}
}
