package collector_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/loop"
)

// withXIDs requests events, so that the session is read once more before it is closed.
func withXIDs(o *loop.Options) {
	o.Plan = testPlan()
	xids := gpu.Derived{Name: "DCGM_EXP_XID_ERRORS_TOTAL", Type: gpu.MetricCounter, HasField: true, Field: 1}
	o.Plan.Derived = append(o.Plan.Derived, xids)
}

// A slow last read that heeds its context does not turn a clean end into a wedged one. It may have begun before the
// end or because of it.
func TestStopWhileTheLastReadIsSlow(t *testing.T) {
	for name, wait := range map[string]time.Duration{
		"last read began before the end": interval, "last read began because of the end": 0,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{gpus: 1}
				r := start(t, f, withXIDs)
				f.reads(func(ctx context.Context, _ *gpu.Batch) error { <-ctx.Done(); return ctx.Err() })
				r.Wait(wait)
				begin := time.Now()
				if err := r.End(); err != nil {
					t.Errorf("Run: %v, want nil", err)
				}
				if took := time.Since(begin); took > 4*time.Second {
					t.Errorf("Run returned after %v, want at most 4 s", took)
				}
				r.allClosed(t)
			})
		})
	}
}

// Whatever driver call hangs, Run waits for it only until the close timeout. A supervisor would kill the process
// later.
func TestStopWhileTheDriverHangs(t *testing.T) {
	hangRead := func(f *fake, free chan struct{}) {
		f.read = func(context.Context, *gpu.Batch) error { <-free; return nil }
	}
	for name, c := range map[string]struct {
		hang func(*fake, chan struct{})
		wait time.Duration
	}{
		"read":      {hangRead, interval},
		"last read": {hangRead, 0}, // the read before the close, for events
		"close":     {func(f *fake, free chan struct{}) { f.close = func() { <-free } }, interval},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, free := &fake{gpus: 1}, make(chan struct{})
				r := start(t, f, withXIDs)
				f.set(func() { c.hang(f, free) })
				r.Wait(c.wait)
				begin := time.Now()
				if err := r.End(); !errors.Is(err, gpu.ErrWedged) {
					t.Errorf("Run: %v, want gpu.ErrWedged", err)
				}
				if took := time.Since(begin); took > 4*time.Second {
					t.Errorf("Run returned after %v, want at most 4 s", took)
				}
				close(free)
			})
		})
	}
}

// Reloads requested during a driver call are applied once it returns, unless their caller stopped waiting.
func TestReloadsDuringDriverCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, freed := &fake{gpus: 1}, make(chan struct{})
		r := start(t, f, nil)
		f.reads(func(ctx context.Context, b *gpu.Batch) error {
			<-freed
			return takes(0, 50)(ctx, b)
		})
		r.Wait(interval + interval/4)
		reload := func(ctx context.Context, to *fake) <-chan error {
			done := make(chan error, 1)
			go func() { done <- r.reload(ctx, to, testPlan()) }()
			synctest.Wait()
			return done
		}
		first, abandoned, second := &fake{gpus: 1}, &fake{gpus: 1}, &fake{gpus: 1}
		a := reload(t.Context(), first)
		ctx, cancel := context.WithCancel(t.Context())
		b := reload(ctx, abandoned)
		c := reload(t.Context(), second)
		cancel()
		if err := <-b; !errors.Is(err, context.Canceled) {
			t.Errorf("abandoned reload = %v, want the error of its context", err)
		}
		close(freed)
		for _, done := range []<-chan error{a, c} {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		if got, want := abandoned.counts(), [2]int{}; got != want {
			t.Errorf("sessions opened and closed by the abandoned reload = %v, want %v", got, want)
		}
		if n := [][2]int{first.counts(), second.counts()}; n[0][0]+n[1][0] != 2 || n[0][1]+n[1][1] != 1 {
			t.Errorf("sessions opened and closed by the two reloads = %v, want 2 opened and 1 closed in total", n)
		}
		if err := r.End(); err != nil {
			t.Error(err)
		}
	})
}
