package collector_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/loop"
)

func (r *rig) sessions(opened, closed int) {
	r.t.Helper()
	if diff := cmp.Diff([2]int{opened, closed}, r.fake.counts()); diff != "" {
		r.t.Errorf("opened, closed (-want +got):\n%s", diff)
	}
}

func (r *rig) release(timeout time.Duration) {
	r.t.Helper()
	if err := r.loop.Release(r.t.Context(), timeout); err != nil {
		r.t.Errorf("Release: %v", err)
	}
	synctest.Wait()
}

func TestReleaseAndAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &fake{gpus: 2}, nil)
		r.metric("dcgm_exporter_released{} 0")
		r.release(time.Hour)
		r.sessions(1, 1) // closed before Release returned
		r.has("error released")
		r.hasNot("UTIL")
		r.metric("dcgm_exporter_released{} 1")
		r.metric("dcgm_exporter_collect_success{} 0")
		before := len(r.all())
		r.wait(3 * interval)
		if n := len(r.all()) - before; n != 3 {
			t.Errorf("%d pages in three intervals", n)
		}
		r.sessions(1, 1)
		if err := r.loop.Healthy(); err != nil || !r.loop.Ready() {
			t.Errorf("released: healthy %v, ready %v", err, r.loop.Ready())
		}

		if err := r.loop.Acquire(t.Context()); err != nil {
			t.Errorf("Acquire: %v", err)
		}
		synctest.Wait()
		r.has("UTIL{1} 50")
		r.sessions(2, 1)
		r.metric("dcgm_exporter_released{} 0")
		r.metric("dcgm_exporter_sessions_total{cause=released} 1")
		if err := r.loop.Acquire(t.Context()); err != nil {
			t.Errorf("Acquire with nothing released: %v", err)
		}
		r.wait(interval)
		r.sessions(2, 1)
		r.stop()
	})
}

// A start that waits for leave opens nothing until it has it, and no longer than it was to wait.
func TestReleasedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waiting := func(o *loop.Options) { o.Released = 5 * time.Second }
		for _, c := range []struct {
			name string
			do   func(*rig) error
			want map[time.Duration]int // sessions by the time since the start
		}{
			{"no command comes", func(*rig) error { return nil }, map[time.Duration]int{4 * time.Second: 0, 5 * time.Second: 1}},
			{"leave", func(r *rig) error { return r.loop.Acquire(t.Context()) }, map[time.Duration]int{0: 1, time.Hour: 1}},
			{"not yet", func(r *rig) error { return r.loop.Release(t.Context(), 0) }, map[time.Duration]int{0: 0, time.Hour: 0}},
		} {
			r := start(t, &fake{gpus: 1}, waiting)
			r.has("error released")
			begin := time.Now()
			if err := c.do(r); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			for _, at := range slices.Sorted(maps.Keys(c.want)) {
				r.wait(at - time.Since(begin))
				if n := r.fake.counts()[0]; n != c.want[at] {
					t.Errorf("%s: %d sessions after %v, want %d", c.name, n, at, c.want[at])
				}
			}
			r.metric("dcgm_exporter_sessions_total{cause=released} 0")
			r.stop()
		}
	})
}

func TestReleaseTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			name     string
			timeouts []time.Duration // requested one minute apart
			end      time.Duration   // after the first; 0 for never
		}{
			{"once", []time.Duration{5 * time.Minute}, 5 * time.Minute},
			{"extended", []time.Duration{5 * time.Minute, 10 * time.Minute}, 11 * time.Minute},
			{"never shortened", []time.Duration{5 * time.Minute, time.Minute}, 5 * time.Minute},
			{"without end", []time.Duration{0, time.Minute}, 0},
			{"extended without end", []time.Duration{5 * time.Minute, 0}, 0},
		} {
			r := start(t, &fake{gpus: 1}, nil)
			begin := time.Now()
			for _, timeout := range c.timeouts {
				r.release(timeout)
				r.wait(time.Minute)
			}
			if c.end == 0 {
				r.wait(100 * time.Hour)
				r.sessions(1, 1)
			} else {
				r.wait(c.end - time.Since(begin) - time.Second)
				r.sessions(1, 1)
				r.wait(time.Second)
				r.sessions(2, 1)
				r.has("UTIL{0} 50")
			}
			if t.Failed() {
				t.Fatal(c.name)
			}
			r.stop()
		}
	})
}

func TestReleaseEndsTheAttemptsToOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempts := 0
		f := &fake{gpus: 1}
		f.open = func(context.Context) error { attempts++; return gpu.ErrUnavailable }
		r := start(t, f, nil)
		r.wait(time.Minute)
		r.release(time.Hour)
		r.has("error released")
		before := attempts
		r.wait(30 * time.Minute)
		if attempts != before {
			t.Errorf("%d attempts to open while released", attempts-before)
		}
		if err := r.loop.Acquire(t.Context()); !errors.Is(err, gpu.ErrUnavailable) {
			t.Errorf("Acquire: %v, want the error of the attempt", err)
		}
		f.set(func() { f.open = nil })
		r.wait(time.Second) // the shortest pause, not the longest
		r.has("UTIL{0} 50")
		r.stop()
	})
}

func TestReloadWhileReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &fake{gpus: 1}, nil)
		r.release(0)
		next := &fake{gpus: 3}
		plan := testPlan()
		plan.Interval = time.Second
		if err := r.loop.Reload(t.Context(), collector.Change{Source: collector.SourceOf(next.Open), Plan: plan}); err != nil {
			t.Fatalf("Reload: %v", err)
		}
		before := len(r.all())
		r.wait(5 * time.Second)
		if n := len(r.all()) - before; n != 5 {
			t.Errorf("%d pages in five of the new intervals", n)
		}
		r.has("error released")
		if diff := cmp.Diff([2]int{0, 0}, next.counts()); diff != "" {
			t.Errorf("the new source was opened (-want +got):\n%s", diff)
		}
		if err := r.loop.Acquire(t.Context()); err != nil {
			t.Errorf("Acquire: %v", err)
		}
		synctest.Wait()
		r.has("UTIL{2} 50")
		r.sessions(1, 1) // of the source before
		r.stop()
	})
}

func TestReleaseOfADriverThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{gpus: 1}
		free := make(chan struct{})
		r := start(t, f, nil)
		f.set(func() { f.read = func(context.Context, *gpu.Batch) error { <-free; return nil } })
		r.wait(interval)
		begin := time.Now()
		if err := r.loop.Release(t.Context(), time.Hour); !errors.Is(err, gpu.ErrTimeout) {
			t.Errorf("Release: %v, want gpu.ErrTimeout", err)
		}
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("Release answered after %v of the bubble's time", took)
		}
		r.sessions(1, 0)
		close(free) // what was requested is done late
		synctest.Wait()
		r.has("error released")
		r.sessions(1, 1)
		r.stop()
	})
}

func TestAcquireOverrulesAReleaseThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{gpus: 1}
		free := make(chan struct{})
		r := start(t, f, nil)
		f.set(func() { f.read = func(context.Context, *gpu.Batch) error { <-free; return nil } })
		r.wait(interval + 2*time.Second)
		released := make(chan error, 1)
		go func() { released <- r.loop.Release(t.Context(), time.Hour) }()
		synctest.Wait()
		if err := r.loop.Acquire(t.Context()); err != nil {
			t.Errorf("Acquire: %v", err)
		}
		if err := <-released; err == nil {
			t.Error("Release says that the driver was released")
		}
		f.set(func() { f.read = nil })
		close(free)
		r.wait(interval)
		r.has("UTIL{0} 50")
		r.sessions(1, 0)
		r.stop()
	})
}

// A last read that takes its time but heeds its context does not make a clean end a wedged one,
// whether it begins before the end or because of it.
func TestStopWhileTheLastReadIsSlow(t *testing.T) {
	for name, wait := range map[string]time.Duration{"under way": interval, "of the close": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{gpus: 1}
				plan := testPlan()
				plan.Derived = append(plan.Derived, gpu.Derived{Name: "DCGM_EXP_XID_ERRORS_TOTAL", Type: gpu.MetricCounter, Field: 1})
				r := start(t, f, func(o *loop.Options) { o.Plan = plan })
				f.set(func() { f.read = func(ctx context.Context, _ *gpu.Batch) error { <-ctx.Done(); return ctx.Err() } })
				r.wait(wait)
				begin := time.Now()
				if err := r.stop(); err != nil {
					t.Errorf("Run: %v", err)
				}
				if took := time.Since(begin); took > 4*time.Second {
					t.Errorf("Run returned after %v of the bubble's time", took)
				}
				if got := f.counts(); got[0] != got[1] {
					t.Errorf("%d sessions opened, %d closed", got[0], got[1])
				}
			})
		})
	}
}

// The end of Run waits for a driver that hangs for the close timeout and no longer, whatever it
// hangs in: a supervisor that waits for longer kills.
func TestStopWhileTheDriverHangs(t *testing.T) {
	hangRead := func(f *fake, free chan struct{}) {
		f.read = func(context.Context, *gpu.Batch) error { <-free; return nil }
	}
	for name, c := range map[string]struct {
		hang func(*fake, chan struct{})
		wait time.Duration
	}{
		"read":      {hangRead, interval},
		"last read": {hangRead, 0}, // that before the close, for its events
		"close":     {func(f *fake, free chan struct{}) { f.close = func() { <-free } }, interval},
	} {
		for _, released := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, released %v", name, released), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f, free := &fake{gpus: 1}, make(chan struct{})
					plan := testPlan()
					plan.Derived = append(plan.Derived, gpu.Derived{Name: "DCGM_EXP_XID_ERRORS_TOTAL", Type: gpu.MetricCounter, Field: 1})
					r := start(t, f, func(o *loop.Options) { o.Plan = plan })
					f.set(func() { c.hang(f, free) })
					r.wait(c.wait)
					if released {
						go r.loop.Release(t.Context(), 0)
						synctest.Wait()
					}
					begin := time.Now()
					if err := r.stop(); !errors.Is(err, gpu.ErrWedged) {
						t.Errorf("Run: %v, want gpu.ErrWedged", err)
					}
					if took := time.Since(begin); took > 4*time.Second {
						t.Errorf("Run returned after %v of the bubble's time", took)
					}
					close(free)
				})
			})
		}
	}
}

func TestStopWhileReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &fake{gpus: 1}, nil)
		r.release(0)
		if err := r.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		r.sessions(1, 1)
	})
}

// profiled is a source whose sessions can pause profiling.
type profiled struct {
	fake
	refuses error
	calls   []string
}

func (p *profiled) Open(ctx context.Context, plan *gpu.Plan) (*profiledSession, error) {
	s, err := p.fake.Open(ctx, plan)
	p.did(err, map[bool]string{false: "open", true: "open-paused"}[plan.ProfilingPaused])
	return &profiledSession{fakeSession: s, source: p}, err
}

func (p *profiled) did(err error, what string) error {
	p.set(func() { p.calls = append(p.calls, what) })
	return err
}

// said returns the calls since the previous said.
func (p *profiled) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	calls := strings.Join(p.calls, " ")
	p.calls = nil
	return calls
}

type profiledSession struct {
	*fakeSession
	source *profiled
}

func (s *profiledSession) PauseProfiling(context.Context) error {
	return s.source.did(s.source.refuses, "pause")
}

func (s *profiledSession) ResumeProfiling(context.Context) error {
	return s.source.did(s.source.refuses, "resume")
}

func TestProfilingStaysPaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &profiled{fake: fake{gpus: 1}}
		plan := testPlan()
		plan.Fields[2].Profiling = true
		r := start(t, &p.fake, func(o *loop.Options) { o.Source, o.Plan = collector.SourceOf(p.Open), plan })
		step := func(what string, do func() error, want string) {
			t.Helper()
			if err := do(); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			r.wait(interval)
			if diff := cmp.Diff(want, p.said()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", what, diff)
			}
		}
		pause := func() error { return r.loop.PauseProfiling(t.Context()) }
		resume := func() error { return r.loop.ResumeProfiling(t.Context()) }
		step("start", func() error { return nil }, "open")
		r.metric("dcgm_exporter_profiling_paused{} 0")
		step("pause", pause, "pause")
		r.metric("dcgm_exporter_profiling_paused{} 1")
		step("a new session", func() error { p.session.end(gpu.ErrTopology); return nil }, "open-paused pause")
		step("a reload", func() error {
			return r.loop.Reload(t.Context(), collector.Change{Source: collector.SourceOf(p.Open), Plan: plan})
		}, "open-paused pause")
		r.metric("dcgm_exporter_profiling_paused{} 1")
		step("resume", resume, "resume")
		r.metric("dcgm_exporter_profiling_paused{} 0")
		step("a release", func() error { return r.loop.Release(t.Context(), 0) }, "")
		step("pause while released", pause, "")
		r.metric("dcgm_exporter_profiling_paused{} 1")
		step("back", func() error { return r.loop.Acquire(t.Context()) }, "open-paused pause")
		p.set(func() { p.refuses = gpu.ErrPermission })
		if err := resume(); !errors.Is(err, gpu.ErrPermission) {
			t.Errorf("refused: %v", err)
		}
		r.metric("dcgm_exporter_profiling_paused{} 1")
		p.said()
		step("after a refusal", func() error { p.session.end(gpu.ErrTopology); return nil }, "open-paused pause")
		r.has("UTIL{0} 50")
		r.metric("dcgm_exporter_profiling_paused{} 0") // it is not, though it was requested
		r.stop()
	})
}

func TestProfilingOfASourceThatHasNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &fake{gpus: 1}, nil)
		if families, err := r.reg.Gather(); err != nil || slices.ContainsFunc(families, func(f *dto.MetricFamily) bool {
			return f.GetName() == "dcgm_exporter_profiling_paused"
		}) {
			t.Errorf("a series of profiling where none is configured; %v", err)
		}
		if err := r.loop.PauseProfiling(t.Context()); !errors.Is(err, gpu.ErrNotSupported) {
			t.Errorf("PauseProfiling: %v, want gpu.ErrNotSupported", err)
		}
		r.wait(interval)
		r.has("UTIL{0} 50")
		r.stop()
	})
}

// Whatever is commanded in whatever order, the page agrees with the handles, and everything is
// closed in the end.
func TestOrdersInAnyOrder(t *testing.T) {
	for seed := range 20 {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{gpus: 1}
				r := start(t, f, nil)
				released, x := false, uint32(seed)*2654435761+1
				for range 30 {
					x = x*1664525 + 1013904223
					switch x >> 29 {
					case 0, 1:
						r.release(time.Duration(x>>8&1) * time.Hour)
						released = true
					case 2, 3:
						if err := r.loop.Acquire(t.Context()); err != nil {
							t.Errorf("Acquire: %v", err)
						}
						released = false
					case 4:
						if err := r.loop.Reload(t.Context(), collector.Change{Source: collector.SourceOf(f.Open), Plan: testPlan()}); err != nil {
							t.Errorf("Reload: %v", err)
						}
					case 5:
						if !released {
							f.session.end(gpu.ErrTopology)
						}
					default:
						r.wait(interval)
					}
					synctest.Wait()
					c := f.counts()
					says := slices.Contains(strings.Split(r.last(), "\n"), "error released")
					if open := c[0] - c[1]; says != released || open != 0 == released || open > 1 {
						t.Fatalf("released %v, page says %v, %d sessions open", released, says, open)
					}
				}
				if err := r.stop(); err != nil {
					t.Errorf("Run: %v", err)
				}
				if c := f.counts(); c[0] != c[1] {
					t.Errorf("%d sessions opened, %d closed", c[0], c[1])
				}
			})
		})
	}
}
