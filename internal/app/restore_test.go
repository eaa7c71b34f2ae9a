package app

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// DCGM is tried again after growing pauses while NVML stands in for it, is taken back when it is
// there, and is not tried from then on.
func TestDCGMIsTakenBackAfterGrowingPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var attempts []int // seconds since the first
		begin, back := time.Now(), false
		first := collector.SourceOf(func(context.Context, *gpu.Plan) (still, error) {
			mu.Lock()
			defer mu.Unlock()
			attempts = append(attempts, seconds(time.Since(begin)))
			if !back {
				return still{}, gpu.ErrUnavailable
			}
			return still{}, nil
		})
		f := newStandIn(prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
		plan := &gpu.Plan{Interval: time.Minute}
		source := f.of(first, still{}, gpu.EngineAddress{})
		f.current = collector.Change{Source: source, Plan: plan}
		loop := collector.New(collector.Options{
			Source: source, Plan: plan, Publish: func(*gpu.Snapshot) {}, Registerer: prometheus.NewRegistry(),
		})
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error, 1)
		go func() { over <- loop.Run(ctx) }()
		go f.run(ctx, loop)
		is := func(what string, standsIn bool, want ...int) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if diff := cmp.Diff(want, attempts); diff != "" || f.active.Load() != standsIn {
				t.Errorf("%s: NVML stands in: %v; attempts, in seconds (-want +got):\n%s", what, f.active.Load(), diff)
			}
		}
		time.Sleep(1000 * time.Second)
		is("away", true, 0, 10, 30, 70, 150, 310, 610, 910)
		mu.Lock()
		back = true
		mu.Unlock()
		time.Sleep(time.Hour)
		is("back", false, 0, 10, 30, 70, 150, 310, 610, 910, 1210)
		cancel()
		if err := <-over; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}
