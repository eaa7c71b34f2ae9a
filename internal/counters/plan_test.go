package counters_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

func TestNewPlan(t *testing.T) {
	requests := parse(t, `
DCGM_FI_DEV_SM_CLOCK, gauge, clock
DCGM_FI_DRIVER_VERSION, label, driver
DCGM_FI_CUDA_DRIVER_VERSION, gauge, CUDA
DCGM_FI_DEV_FB_USED, gauge, memory
DCGM_EXP_XID_ERRORS_COUNT, gauge, windows
DCGM_FI_DEV_SM_CLOCK_HERTZ, gauge, clock
DCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, engine
DCGM_EXP_P2P_STATUS, gauge, peers
DCGM_FI_DEV_XID_ERRORS, gauge, XID
DCGM_FI_PROF_PCIE_TX_BYTES, gauge, traffic of the GPU alone
`)
	devices := gpu.Selector{Flex: true}
	plan := counters.NewPlan(requests, counters.PlanOptions{
		Interval: 30 * time.Second,
		IntervalOf: func(name string) time.Duration {
			switch {
			case name == "DCGM_FI_DEV_SM_CLOCK_HERTZ":
				return time.Second
			case strings.HasPrefix(name, "DCGM_FI_PROF_"):
				return time.Minute
			default:
				return 0
			}
		},
		Devices: devices,
	})
	board, both := gpu.KindsOf(gpu.KindGPU), gpu.KindsOf(gpu.KindGPU, gpu.KindGPUInstance)
	counter := func(name, help string, field int) gpu.Counter {
		return gpu.Counter{Name: name, Type: gpu.MetricGauge, Help: help, Field: field, Scale: 1}
	}
	ofGPUs := func(name, help string, field int) gpu.Counter {
		c := counter(name, help, field)
		c.OfGPUs = true
		return c
	}
	driver, cuda := ofGPUs("DCGM_FI_DRIVER_VERSION", "driver", 1), ofGPUs("DCGM_FI_CUDA_DRIVER_VERSION", "CUDA", 2)
	driver.Type, driver.OfMachine, cuda.OfMachine = gpu.MetricLabel, true, true
	hertz := ofGPUs("DCGM_FI_DEV_SM_CLOCK_HERTZ", "clock", 0)
	hertz.Scale = 1e6
	want := &gpu.Plan{
		Peers:    true,
		Interval: 30 * time.Second,
		Cycle:    time.Second,
		Devices:  devices,
		Fields: []gpu.Field{
			{
				ID: 100, Name: "DCGM_FI_DEV_SM_CLOCK", Unit: "MHz", Levels: board,
				Range: &gpu.Range{Max: 30000}, Interval: time.Second,
			},
			{ID: 1, Name: "DCGM_FI_DRIVER_VERSION", Text: true, Levels: both},
			{ID: 5, Name: "DCGM_FI_CUDA_DRIVER_VERSION", Levels: board, Range: &gpu.Range{Max: 1000000}},
			{ID: 252, Name: "DCGM_FI_DEV_FB_USED", Unit: "MiB", Levels: both, Range: &gpu.Range{Max: 16777216}},
			{ID: 230, Name: "DCGM_FI_DEV_XID_ERRORS", Levels: board, Range: &gpu.Range{Max: 10000}},
			{
				ID: 1001, Name: "DCGM_FI_PROF_GR_ENGINE_ACTIVE", Unit: "ratio", Levels: both,
				Range: &gpu.Range{Max: 1.1}, Interval: time.Minute, Profiling: true,
			},
			{
				ID: 1009, Name: "DCGM_FI_PROF_PCIE_TX_BYTES", Unit: "bytes/s", Levels: board,
				Range: &gpu.Range{Max: 1e12}, Interval: time.Minute, Profiling: true,
			},
		},
		Counters: []gpu.Counter{
			ofGPUs("DCGM_FI_DEV_SM_CLOCK", "clock", 0), driver, cuda, counter("DCGM_FI_DEV_FB_USED", "memory", 3),
			hertz, counter("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "engine", 5), ofGPUs("DCGM_FI_DEV_XID_ERRORS", "XID", 4),
			counter("DCGM_FI_PROF_PCIE_TX_BYTES", "traffic of the GPU alone", 6),
		},
		Derived: []gpu.Derived{
			{Name: "DCGM_EXP_XID_ERRORS_COUNT", Type: gpu.MetricGauge, Help: "windows", HasField: true, Field: 4},
			{Name: "DCGM_EXP_P2P_STATUS", Type: gpu.MetricGauge, Help: "peers"},
		},
	}
	if diff := cmp.Diff(want, plan); diff != "" {
		t.Errorf("plan (-want +got)\n%s", diff)
	}
}

// The shortest requested interval is used, in any order of the lines.
func TestNewPlanShortestInterval(t *testing.T) {
	const plan = 10 * time.Second
	for _, test := range []struct{ first, second, want time.Duration }{
		{0, 0, 0}, {time.Second, 0, time.Second}, {0, time.Second, time.Second}, {time.Minute, 0, 0},
		{0, time.Minute, 0}, {time.Minute, time.Second, time.Second}, {time.Second, time.Minute, time.Second},
	} {
		groups := map[string]time.Duration{
			"DCGM_FI_DEV_SM_CLOCK": test.first, "DCGM_FI_DEV_SM_CLOCK_HERTZ": test.second,
		}
		requests := parse(t, "DCGM_FI_DEV_SM_CLOCK, gauge, a\nDCGM_FI_DEV_SM_CLOCK_HERTZ, gauge, b")
		p := counters.NewPlan(requests, counters.PlanOptions{
			Interval: plan, IntervalOf: func(name string) time.Duration { return groups[name] },
		})
		if got := p.Fields[0].Interval; got != test.want {
			t.Errorf("%s and %s: interval = %s, want %s", test.first, test.second, got, test.want)
		}
	}
}

func TestLint(t *testing.T) {
	var got []string
	for _, p := range counters.Lint(parse(t, `
DCGM_FI_DEV_SM_CLOCK, counter, a gauge
DCGM_FI_DEV_SM_CLOCK_HERTZ, untyped, left alone
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION, gauge, a counter
DCGM_FI_DEV_GPU_TEMP, gauge, fine
DCGM_FI_DEV_PCIE_REPLAY_COUNTER, counter, fine
DCGM_EXP_XID_ERRORS_COUNT, counter, a gauge
DCGM_EXP_XID_ERRORS_TOTAL, counter, fine
DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL, counter, a rate
DCGM_FI_DEV_POWER_USAGE, label, a measurement
DCGM_FI_DEV_ECC_SBE_VOL_TOTAL, label, a counter
DCGM_FI_DEV_MINOR_NUMBER, label, fine
DCGM_FI_DRIVER_VERSION, label, fine
`), "my.csv") {
		if !p.Warning {
			t.Errorf("warning = false, want true: %s", p)
		}
		got = append(got, p.String())
	}
	const (
		falls   = `type counter, although the value can go down, for `
		grows   = `type gauge, although the value only grows, for `
		creates = `type label, although each new value creates new series, for `
	)
	want := []string{
		`my.csv:2: ` + falls + `"DCGM_FI_DEV_SM_CLOCK": expected type gauge`,
		`my.csv:4: ` + grows + `"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": expected type counter`,
		`my.csv:7: ` + falls + `"DCGM_EXP_XID_ERRORS_COUNT": expected type gauge`,
		`my.csv:9: ` + falls + `"DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": expected type gauge`,
		`my.csv:10: ` + creates + `"DCGM_FI_DEV_POWER_USAGE": expected type gauge`,
		`my.csv:11: ` + creates + `"DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": expected type counter`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// Clock events are sampled at least once a second if their edges are counted. A watch group can request a shorter
// interval.
func TestEdgesAreSampledOften(t *testing.T) {
	for _, test := range []struct {
		families string
		group    time.Duration
		want     time.Duration
	}{
		{"DCGM_EXP_CLOCK_EVENTS_COUNT, gauge, x", 0, 30 * time.Second},
		{"DCGM_EXP_CLOCK_EVENTS_TOTAL, counter, x", 0, time.Second},
		{"DCGM_EXP_CLOCK_EVENT_SECONDS_TOTAL, counter, x", 0, time.Second},
		{"DCGM_FI_DEV_CLOCKS_EVENT_REASONS, gauge, x\n" +
			"DCGM_EXP_CLOCK_EVENTS_TOTAL, counter, x", 10 * time.Second, time.Second},
		{"DCGM_EXP_CLOCK_EVENTS_TOTAL, counter, x\n" +
			"DCGM_FI_DEV_CLOCKS_EVENT_REASONS, gauge, x", 10 * time.Second, time.Second},
		{"DCGM_EXP_CLOCK_EVENTS_TOTAL, counter, x", 100 * time.Millisecond, 100 * time.Millisecond},
		{"DCGM_EXP_XID_ERRORS_TOTAL, counter, x", 0, 30 * time.Second},
	} {
		plan := counters.NewPlan(parse(t, test.families), counters.PlanOptions{
			Interval: 30 * time.Second, IntervalOf: func(string) time.Duration { return test.group },
		})
		if got := plan.IntervalOf(0); len(plan.Fields) != 1 || got != test.want {
			t.Errorf("%q: sampled every %v, want %v", test.families, got, test.want)
		}
		for _, d := range plan.Derived {
			if d.Interval != test.group {
				t.Errorf("%q: interval of %s = %v, want %v as in its group",
					test.families, d.Name, d.Interval, test.group)
			}
		}
	}
}
