package collector_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/loop"
)

// loseRows makes the fake report the given rows as lost and the other rows with values.
func (f *fake) loseRows(lost ...int) {
	f.set(func() {
		f.read = func(_ context.Context, b *gpu.Batch) error {
			for row := range f.gpus {
				b.Add(row, 0, gpu.Int(50), time.Now())
			}
			for _, row := range lost {
				b.FailPart(row, gpu.PartEntity, gpu.ErrLost)
			}
			b.DropSamples(rowSet(f.gpus, lost))
			return nil
		}
	})
}

func rowSet(n int, rows []int) []bool {
	set := make([]bool, n)
	for _, row := range rows {
		set[row] = true
	}
	return set
}

// One line is logged when a GPU is lost, and one when it recovers, even across sessions.
func TestLogOfLostGPUs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		f := &fake{gpus: 4}
		r := start(t, f, func(o *loop.Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
		lines := func(when string, lost, back int) {
			t.Helper()
			r.Wait(2 * interval)
			if n := strings.Count(log.String(), "GPU cannot be read"); n != lost {
				t.Errorf("%s: log lines about lost GPUs = %d, want %d", when, n, lost)
			}
			if n := strings.Count(log.String(), "GPU recovered"); n != back {
				t.Errorf("%s: log lines about recovered GPUs = %d, want %d", when, n, back)
			}
		}
		lines("all GPUs are up", 0, 0)
		f.loseRows(2)
		lines("GPU 2 is lost", 1, 0)
		if !strings.Contains(log.String(), "gpu=2 uuid=GPU-2 reason=lost") {
			t.Errorf("log line does not name the GPU and the reason:\n%s", &log)
		}
		r.Reload(r.Change)
		lines("a new session", 1, 0)
		f.loseRows(2, 3)
		lines("GPU 3 is lost as well", 2, 0)
		f.loseRows()
		lines("both are back", 2, 2)
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
			o.Log = slog.New(slog.NewTextHandler(&log, nil))
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
		r := start(t, f, func(o *loop.Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
		r.Metric("dcgm_exporter_collect_success{} 1")
		f.loseRows(0)
		r.Wait(2 * interval)
		r.Metric("dcgm_exporter_collect_success{} 1")
		f.loseRows(0, 1)
		r.Wait(2 * interval)
		r.Metric("dcgm_exporter_collect_success{} 0")
		r.Metric("dcgm_exporter_collect_unavailable{reason=lost} 1")
		r.Has("down{0} lost", "down{1} lost")
		if n := strings.Count(log.String(), "No GPU has a value"); n != 1 {
			t.Errorf(`log lines "No GPU has a value" = %d, want 1; log:`+"\n%s", n, &log)
		}
		f.set(func() { // blank values without a fault
			f.read = func(context.Context, *gpu.Batch) error { return nil }
		})
		r.Wait(2 * interval)
		r.Metric("dcgm_exporter_collect_success{} 0")
		r.Metric("dcgm_exporter_collect_unavailable{reason=unavailable} 1")
		f.loseRows()
		r.Wait(interval)
		r.Metric("dcgm_exporter_collect_success{} 1")
		if n := strings.Count(log.String(), "GPUs have values again"); n != 1 {
			t.Errorf(`log lines "GPUs have values again" = %d, want 1`, n)
		}
		r.Stop()
	})
}
