package collector_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/loop"
)

// loseRows makes the fake report the given rows as lost and the other rows with values.
func (f *fake) loseRows(lost ...int) {
	f.reads(func(_ context.Context, b *gpu.Batch) error {
		for row := range f.gpus {
			if slices.Contains(lost, row) {
				b.FailPart(row, gpu.PartEntity, gpu.ErrLost)
			} else {
				b.Add(row, 0, gpu.Int(50), time.Now())
			}
		}
		return nil
	})
}

// One line is logged when a GPU is lost, and one when it recovers, even across sessions.
func TestLogOfLostGPUs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		f := &fake{gpus: 4}
		r := start(t, f, logTo(&log))
		lines := func(lost, back int) {
			t.Helper()
			r.Wait(2 * interval)
			logs(t, &log, "GPU cannot be read", lost)
			logs(t, &log, "GPU recovered", back)
		}
		lines(0, 0)
		f.loseRows(2)
		lines(1, 0)
		logs(t, &log, "gpu=2 uuid=GPU-2 reason=lost", 1)
		r.Reload(r.Settings)
		lines(1, 0)
		f.loseRows(2, 3)
		lines(2, 0)
		f.loseRows()
		lines(2, 2)
		r.Stop()
	})
}

// A GPU that is lost in every other cycle is logged at most once every 10 seconds.
func TestLogOfFlappingGPU(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		f := &fake{gpus: 2}
		plan := testPlan()
		plan.Interval = time.Second
		r := start(t, f, func(o *loop.Options) {
			o.Plan = plan
			logTo(&log)(o)
		})
		for range 60 {
			f.loseRows(1)
			r.Wait(time.Second)
			f.loseRows()
			r.Wait(time.Second)
		}
		if n := strings.Count(log.String(), "uuid=GPU-1"); n < 2 || n > 13 {
			t.Errorf("log lines about GPU-1 in two minutes = %d, want 2 to 13", n)
		}
		r.Stop()
	})
}

// A cycle fails if no GPU has a value, and the log says why.
func TestNoGPUHasAValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		f := &fake{gpus: 2}
		r := start(t, f, logTo(&log))
		r.Metric("dcgm_exporter_collect_success{} 1")
		f.loseRows(0)
		r.Wait(2 * interval)
		r.Metric("dcgm_exporter_collect_success{} 1")
		f.loseRows(0, 1)
		r.Wait(2 * interval)
		r.Metric("dcgm_exporter_collect_success{} 0")
		r.Metric("dcgm_exporter_collect_unavailable{reason=lost} 1")
		r.Has("down{0} lost", "down{1} lost")
		logs(t, &log, "No GPU has a value", 1)
		f.reads(func(context.Context, *gpu.Batch) error { return nil }) // blank values without a fault
		r.Wait(2 * interval)
		r.Metric("dcgm_exporter_collect_success{} 0")
		r.Metric("dcgm_exporter_collect_unavailable{reason=unavailable} 1")
		f.loseRows()
		r.Wait(interval)
		r.Metric("dcgm_exporter_collect_success{} 1")
		logs(t, &log, "GPUs have values again", 1)
		r.Stop()
	})
}

// A cycle succeeds if no values are requested, as in subcommands that read only the topology.
func TestNoValueIsRequested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nothing := func(context.Context, *gpu.Batch) error { return nil }
		r := start(t, &fake{gpus: 1, read: nothing}, func(o *loop.Options) {
			o.Plan.Fields, o.Plan.Counters, o.Plan.Derived = nil, nil, nil
		})
		r.HasNot("error")
		r.Metric("dcgm_exporter_collect_success{} 1")
		r.Stop()
	})
}
