package collector_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/loop"
)

// A stage is a rig in one of the states in which a command can come.
type stage struct {
	*rig
	freed chan struct{} // closed, the driver call under way returns
}

// stages put a loop into each state. The driver call under way in the second is a Read.
var stages = map[string]func(*testing.T) *stage{
	"idle": func(t *testing.T) *stage {
		f := &fake{gpus: 1, open: func(context.Context) error { return gpu.ErrUnavailable }}
		s := &stage{rig: start(t, f, func(o *loop.Options) { o.MinBackoff, o.MaxBackoff = 24*time.Hour, 24*time.Hour })}
		f.set(func() { f.open = nil })
		return s
	},
	"calling": func(t *testing.T) *stage {
		s := &stage{rig: start(t, &fake{gpus: 1}, nil), freed: make(chan struct{})}
		s.fake.set(func() {
			s.fake.read = func(_ context.Context, b *gpu.Batch) error {
				<-s.freed
				b.Add(0, 0, gpu.Int(50), time.Now())
				return nil
			}
		})
		s.wait(interval + interval/4)
		return s
	},
	"serving": func(t *testing.T) *stage { return &stage{rig: start(t, &fake{gpus: 1}, nil)} },
	"released": func(t *testing.T) *stage {
		s := &stage{rig: start(t, &fake{gpus: 1}, nil)}
		s.rig.release(time.Hour)
		return s
	},
}

// What becomes of each command in each state: whether it is executed at once, once the driver call
// has returned, or refused; and whether a session is open then.
func TestEveryCommandInEveryState(t *testing.T) {
	type outcome struct {
		while string // "executed", "waits" or "refused", while the state lasts
		open  int    // sessions in the end
	}
	commands := map[string]func(*stage) error{
		"reload": func(s *stage) error {
			return s.loop.Reload(s.t.Context(), collector.Change{Source: collector.SourceOf(s.fake.Open), Plan: testPlan()})
		},
		"release": func(s *stage) error { return s.loop.Release(s.t.Context(), time.Hour) },
		"acquire": func(s *stage) error { return s.loop.Acquire(s.t.Context()) },
		"pause":   func(s *stage) error { return s.loop.PauseProfiling(s.t.Context()) },
		"resume":  func(s *stage) error { return s.loop.ResumeProfiling(s.t.Context()) },
	}
	want := map[string]map[string]outcome{
		"reload":  {"idle": {"executed", 1}, "calling": {"waits", 1}, "serving": {"executed", 1}, "released": {"executed", 0}},
		"release": {"idle": {"executed", 0}, "calling": {"waits", 0}, "serving": {"executed", 0}, "released": {"executed", 0}},
		"acquire": {"idle": {"executed", 0}, "calling": {"executed", 1}, "serving": {"executed", 1}, "released": {"executed", 1}},
		"pause":   {"idle": {"executed", 0}, "calling": {"refused", 1}, "serving": {"executed", 1}, "released": {"executed", 0}},
		"resume":  {"idle": {"executed", 0}, "calling": {"refused", 1}, "serving": {"executed", 1}, "released": {"executed", 0}},
	}
	for command, do := range commands {
		for state, enter := range stages {
			t.Run(command+" while "+state, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := enter(t)
					done := make(chan error, 1)
					go func() { done <- do(s) }()
					synctest.Wait()
					got := outcome{while: "waits"}
					select {
					case err := <-done:
						got.while = verdictOf(err)
					default:
					}
					if s.freed != nil {
						close(s.freed)
						synctest.Wait()
					}
					if got.while == "waits" {
						if err := <-done; err != nil {
							t.Errorf("once the call has returned: %v", err)
						}
					}
					synctest.Wait()
					n := s.fake.counts()
					got.open = n[0] - n[1]
					if got != want[command][state] {
						t.Errorf("got %+v, want %+v", got, want[command][state])
					}
					s.stop()
				})
			})
		}
	}
}

func verdictOf(err error) string {
	switch {
	case errors.Is(err, gpu.ErrTimeout):
		return "refused"
	case err == nil, errors.Is(err, gpu.ErrNotSupported): // the fake has no profiling: the session was called
		return "executed"
	default:
		return fmt.Sprint("failed: ", err)
	}
}

// Commands that come during a driver call are executed in their order once it has returned, but for
// those whose caller waits no longer; when Run ends first, the callers learn it.
func TestPostponedCommands(t *testing.T) {
	reload := func(ctx context.Context, s *stage, open func(context.Context, *gpu.Plan) (*fakeSession, error)) <-chan error {
		done := make(chan error, 1)
		go func() {
			done <- s.loop.Reload(ctx, collector.Change{Source: collector.SourceOf(open), Plan: testPlan()})
		}()
		synctest.Wait()
		return done
	}
	synctest.Test(t, func(t *testing.T) {
		s := stages["calling"](t)
		first, abandoned, second := &fake{gpus: 1}, &fake{gpus: 1}, &fake{gpus: 1}
		a := reload(t.Context(), s, first.Open)
		ctx, cancel := context.WithCancel(t.Context())
		b := reload(ctx, s, abandoned.Open)
		c := reload(t.Context(), s, second.Open)
		cancel()
		if err := <-b; !errors.Is(err, context.Canceled) {
			t.Errorf("the abandoned reload: %v", err)
		}
		close(s.freed)
		for _, done := range []<-chan error{a, c} {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		if n := [][2]int{first.counts(), abandoned.counts(), second.counts()}; n != nil && (n[0] != [2]int{1, 1} || n[1] != [2]int{0, 0} || n[2] != [2]int{1, 0}) {
			t.Errorf("sessions opened and closed by the three reloads: %v, want the second not made", n)
		}
		s.stop()
	})
	synctest.Test(t, func(t *testing.T) {
		s := stages["calling"](t)
		done := reload(t.Context(), s, (&fake{gpus: 1}).Open)
		s.cancel()
		close(s.freed)
		if err := <-done; !errors.Is(err, gpu.ErrUnavailable) {
			t.Errorf("a reload when Run ends: %v", err)
		}
		<-s.result
	})
}
