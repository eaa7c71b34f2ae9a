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

func TestNewPlan(t *testing.T) {
	requests := valid(t, `
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
	for i := range requests {
		switch r := &requests[i]; {
		case r.Name == "DCGM_FI_DEV_SM_CLOCK_HERTZ":
			r.Interval = time.Second
		case strings.HasPrefix(r.Name, "DCGM_FI_PROF_"):
			r.Interval = time.Minute
		}
	}
	plan := counters.NewPlan(requests, gpu.Plan{Interval: 30 * time.Second, Devices: devices})
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

// The shortest requested interval of a field is used, in any order of the lines. Clock events are sampled at least once
// a second if their edges are counted.
func TestIntervals(t *testing.T) {
	const (
		plan         = 30 * time.Second
		clock, hertz = "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_SM_CLOCK_HERTZ"
		total        = "DCGM_EXP_CLOCK_EVENTS_TOTAL"
		reasons      = "DCGM_FI_DEV_CLOCKS_EVENT_REASONS"
	)
	for _, test := range []struct {
		names  []string
		groups []time.Duration // groups of the names
		want   time.Duration
	}{
		{[]string{clock, hertz}, []time.Duration{0, 0}, plan},
		{[]string{clock, hertz}, []time.Duration{time.Second, 0}, time.Second},
		{[]string{clock, hertz}, []time.Duration{0, time.Second}, time.Second},
		{[]string{clock, hertz}, []time.Duration{time.Minute, 0}, plan},
		{[]string{clock, hertz}, []time.Duration{0, time.Minute}, plan},
		{[]string{clock, hertz}, []time.Duration{time.Minute, time.Second}, time.Second},
		{[]string{clock, hertz}, []time.Duration{time.Second, time.Minute}, time.Second},
		{[]string{"DCGM_EXP_CLOCK_EVENTS_COUNT"}, []time.Duration{0}, plan},
		{[]string{total}, []time.Duration{0}, time.Second},
		{[]string{"DCGM_EXP_CLOCK_EVENT_SECONDS_TOTAL"}, []time.Duration{0}, time.Second},
		{[]string{reasons, total}, []time.Duration{10 * time.Second, 10 * time.Second}, time.Second},
		{[]string{total, reasons}, []time.Duration{10 * time.Second, 10 * time.Second}, time.Second},
		{[]string{total}, []time.Duration{100 * time.Millisecond}, 100 * time.Millisecond},
		{[]string{"DCGM_EXP_XID_ERRORS_TOTAL"}, []time.Duration{0}, plan},
	} {
		requests := valid(t, strings.Join(test.names, ", untyped, x\n")+", untyped, x\n")
		for i := range requests {
			requests[i].Interval = test.groups[i]
		}
		p := counters.NewPlan(requests, gpu.Plan{Interval: plan})
		if got := p.IntervalOf(0); len(p.Fields) != 1 || got != test.want {
			t.Errorf("%s with %v: sampled every %v, want %v", test.names, test.groups, got, test.want)
		}
		for _, d := range p.Derived {
			if i := slices.Index(test.names, d.Name); d.Interval != test.groups[i] {
				t.Errorf("interval of %s = %v, want %v as in its group", d.Name, d.Interval, test.groups[i])
			}
		}
	}
}
