//go:build linux && cgo

package dcgm_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/dcgm"
	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
)

// What the two GPUs and two instances of world show of field 150 and of profiling field 1001, and
// while there is no profiling.
var (
	profiled = []string{"GPU 0 #0 45", "GPU 0 #1 0.5", "GPU 1 #0 45", "GPU 1 #1 0.5",
		"GPU instance 7 of GPU 1 #1 0.5", "GPU instance 8 of GPU 1 #1 0.5"}
	unprofiled = []string{"GPU 0 #0 45", "GPU 0 #1 unavailable", "GPU 1 #0 45", "GPU 1 #1 unavailable",
		"GPU instance 7 of GPU 1 #1 unavailable", "GPU instance 8 of GPU 1 #1 unavailable"}
)

func profilingPlan() *gpu.Plan { return planOf(field(150, onGPU), profiling(1001)) }

// readUntilShown reads until a Read shows exactly what is wanted.
func readUntilShown(t *testing.T, s *dcgm.Session, want []string) *gpu.Batch {
	t.Helper()
	return readUntil(t, s, strings.Join(want, ", "), func(b *gpu.Batch, err error) bool {
		return err == nil && slices.Equal(shown(s, b), want)
	})
}

// order gives a session an order twice, which is to be as once.
func order(t *testing.T, f func(context.Context) error) {
	t.Helper()
	for range 2 {
		if err := f(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// A pause costs the profiling fields alone and says so; when it ends they come back, with values of
// after it.
func TestPauseProfiling(t *testing.T) {
	trails := profilingPlan()
	trails.Fields[1].Every = true
	for name, plan := range map[string]*gpu.Plan{"newest": profilingPlan(), "every sample": trails} {
		t.Run(name, func(t *testing.T) {
			e := fakedcgm.New(t, world()...)
			s := open(t, e, plan, dcgm.Options{})
			readUntilShown(t, s, profiled)
			for range 2 {
				order(t, s.PauseProfiling)
				if n := e.Open()["pauses"]; n != 1 {
					t.Errorf("%d pauses at the engine", n)
				}
				for range 3 {
					b := read(t, s)
					if diff := cmp.Diff(unprofiled, shown(s, b)); diff != "" {
						t.Errorf("paused (-want +got):\n%s", diff)
					}
					for _, f := range b.Faults {
						mentions(t, f.Err.Error(), "profiling is paused")
					}
					pause()
				}
				resumed := time.Now().UnixNano()
				order(t, s.ResumeProfiling)
				if n := e.Open()["pauses"]; n != 0 {
					t.Errorf("%d pauses at the engine after the resume", n)
				}
				for _, x := range read(t, s).Samples {
					if x.Field == 1 && x.Time < resumed-int64(interval) {
						t.Errorf("a profiling sample of %v before the resume", time.Duration(resumed-x.Time))
					}
				}
				readUntil(t, s, "profiling values", func(b *gpu.Batch, _ error) bool {
					got := shown(s, b)
					return len(b.Faults) == 0 && slices.Equal(slices.Compact(got), profiled)
				})
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if err := s.PauseProfiling(t.Context()); !errors.Is(err, gpu.ErrUnavailable) {
				t.Errorf("a closed session pauses: %v", err)
			}
		})
	}
}

// Resumed fields have no value that the engine took before the pause, though it still remembers
// one.
func TestNoStaleValueAfterAPause(t *testing.T) {
	e := fakedcgm.New(t, world()...)
	s := open(t, e, profilingPlan(), dcgm.Options{})
	readUntilShown(t, s, profiled)
	e.Add("value any:* 1001 stopped")
	order(t, s.PauseProfiling)
	order(t, s.ResumeProfiling)
	for _, x := range read(t, s).Samples {
		if x.Field == 1 {
			t.Errorf("row %d: the value of before the pause", x.Row)
		}
	}
}

// The pause ends with the session that asked for it, and with no other: two sessions overlap in a
// reload.
func TestPauseEndsWithTheSession(t *testing.T) {
	for _, remote := range []string{"", "10.0.0.9"} {
		e := fakedcgm.New(t, world()...)
		src := dcgm.New(dcgm.Options{Remote: engineAt(remote)})
		var sessions [3]*dcgm.Session // the last does not pause
		for i := range sessions {
			s, err := src.Open(t.Context(), profilingPlan())
			if err != nil {
				t.Fatal(err)
			}
			sessions[i] = s
		}
		order(t, sessions[0].PauseProfiling)
		order(t, sessions[1].PauseProfiling)
		for i, want := range []int64{1, 0} {
			if err := sessions[i].Close(); err != nil {
				t.Fatal(err)
			}
			if n := e.Open()["pauses"]; n != want {
				t.Errorf("remote %q: %d pauses after %d of 2 sessions closed, want %d", remote, n, i+1, want)
			}
		}
		readUntilShown(t, sessions[2], profiled)
		if err := sessions[2].Close(); err != nil {
			t.Fatal(err)
		}
		checkClosed(t, e)
	}
}

// An order that the engine declines changes nothing; one that finds it gone ends the session.
func TestPauseRefused(t *testing.T) {
	for line, want := range map[string]error{"fail dcgmProfPause -36": gpu.ErrNotSupported, "fail dcgmProfPause -29": gpu.ErrPermission} {
		e := fakedcgm.New(t, world(line)...)
		s := open(t, e, profilingPlan(), dcgm.Options{})
		if err := s.PauseProfiling(t.Context()); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", line, err, want)
		}
		readUntilShown(t, s, profiled)
		s.Close()
	}
	e := fakedcgm.New(t, world("fail dcgmProfPause -21")...)
	s := open(t, e, profilingPlan(), dcgm.Options{Remote: engineAt("10.0.0.9")})
	if err := s.PauseProfiling(t.Context()); !errors.Is(err, gpu.ErrLost) || !errors.Is(s.Err(), gpu.ErrLost) {
		t.Errorf("PauseProfiling %v, Err %v", err, s.Err())
	}
	e.Restart()
}

// Another profiler has the counters when the session opens: the fields say so, and come when it
// ends.
func TestProfilerOfOthers(t *testing.T) {
	for _, code := range []string{"-34", "-37", "-54"} {
		t.Run(code, func(t *testing.T) {
			e := fakedcgm.New(t, world("profiler "+code)...)
			s := open(t, e, profilingPlan(), dcgm.Options{}.RetryRefused(interval))
			for range 5 {
				b := read(t, s)
				if diff := cmp.Diff(unprofiled, shown(s, b)); diff != "" {
					t.Errorf("held (-want +got):\n%s", diff)
				}
				mentions(t, b.Faults[0].Err.Error(), "("+code+")")
				pause()
			}
			e.Remove("profiler")
			readUntilShown(t, s, profiled)
		})
	}
}

// What is held is tried seldom, and never while profiling is paused.
func TestProfilerIsNotPestered(t *testing.T) {
	for name, every := range map[string]time.Duration{"each minute": 0, "paused": time.Nanosecond} {
		t.Run(name, func(t *testing.T) {
			e := fakedcgm.New(t, world("profiler -34")...)
			s := open(t, e, profilingPlan(), dcgm.Options{}.RetryRefused(every))
			if every > 0 {
				order(t, s.PauseProfiling)
			}
			before := e.Calls()["dcgmWatchFields"]
			for range 5 {
				if diff := cmp.Diff(unprofiled, shown(s, read(t, s))); diff != "" {
					t.Errorf("held (-want +got):\n%s", diff)
				}
			}
			if n := e.Calls()["dcgmWatchFields"] - before; n != 0 {
				t.Errorf("%d tries", n)
			}
		})
	}
}

// What is not watched is a line of the log for each reason, not one for each field of each device:
// it names the fields and the devices that go without them.
func TestFieldsThatAreNotWatchedAreALine(t *testing.T) {
	lines := world()
	for i, line := range lines {
		lines[i] = strings.Replace(line, "prof=1001-1012", "prof=error:-36", 1)
	}
	lines = append(lines, gpuLine(2, "prof=1001"))
	var log strings.Builder
	e := fakedcgm.New(t, lines...)
	s := open(t, e, planOf(field(150, onGPU), profiling(1001), profiling(1004), profiling(1005)), logTo(&log))
	readUntil(t, s, "temperatures", func(b *gpu.Batch, err error) bool { return err == nil && len(b.Samples) > 0 })
	var got []string
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "not watched") {
			got = append(got, line)
		}
	}
	if len(got) != 2 {
		t.Fatalf("%d lines, want 2:\n%s", len(got), log.String())
	}
	mentions(t, got[0], `fields="FIELD_1001, FIELD_1004, FIELD_1005"`, "-36",
		`devices="GPU 0, GPU 1, GPU instance 7 of GPU 1, GPU instance 8 of GPU 1"`)
	mentions(t, got[1], `fields="FIELD_1004, FIELD_1005"`, "does not profile", `devices="GPU 2"`)
}

// Profiling fields that stand still while others go on are watched again, once in a while, and with
// a word in the log.
func TestStaleProfiling(t *testing.T) {
	e := fakedcgm.New(t, world()...)
	var log strings.Builder
	s := open(t, e, profilingPlan(), logTo(&log))
	readUntilShown(t, s, profiled)
	e.Add("value any:* 1001 stuck 0.75")
	recovered := slices.Clone(profiled)
	for i := range recovered {
		recovered[i] = strings.Replace(recovered[i], "#1 0.5", "#1 0.75", 1)
	}
	readUntilShown(t, s, recovered)
	e.Add("value any:* 1001 stuck 0.25")
	for range 20 {
		read(t, s)
		pause()
	}
	if n := strings.Count(log.String(), "watched again"); n == 0 || n > 2 { // one for GPUs, one for instances
		t.Errorf("%d renewals within a minute:\n%s", n, log.String())
	}
	if n := e.Open()["watches"]; n != 3 {
		t.Errorf("%d watches, want 3", n)
	}
}

// Another profiler took the counters meanwhile: the renewal is refused, and the fields wait for it
// to end.
func TestStaleProfilingIsTaken(t *testing.T) {
	e := fakedcgm.New(t, world()...)
	s := open(t, e, profilingPlan(), dcgm.Options{}.RetryRefused(interval))
	readUntilShown(t, s, profiled)
	e.Add("value any:* 1001 stopped", "profiler -34")
	readUntilShown(t, s, unprofiled)
	e.Remove("profiler")
	e.Remove("value any:* 1001 stopped")
	readUntilShown(t, s, profiled)
}

// Where everything stands still, or says why it has no value, nothing is watched again.
func TestProfilingThatIsNotStale(t *testing.T) {
	for name, lines := range map[string][]string{
		"everything stopped": {"value any:* 1001 stopped", "value gpu:* 150 stopped"},
		"no permission":      {"value any:* 1001 nopermission d"},
	} {
		t.Run(name, func(t *testing.T) {
			e := fakedcgm.New(t, world()...)
			s := open(t, e, profilingPlan(), dcgm.Options{}.RetryRefused(time.Nanosecond))
			readUntilShown(t, s, profiled)
			before := e.Calls()["dcgmUnwatchFields"]
			e.Add(lines...)
			for range 12 {
				read(t, s)
				pause()
			}
			if n := e.Calls()["dcgmUnwatchFields"] - before; n != 0 {
				t.Errorf("%d watches were ended", n)
			}
		})
	}
}

func pausedPlan(fields ...gpu.Field) *gpu.Plan {
	plan := planOf(append([]gpu.Field{field(150, onGPU)}, fields...)...)
	plan.ProfilingPaused = true
	return plan
}

// A session that is opened paused never asks for the counters, not for a moment, whether the engine
// can pause or not; they come when it is resumed.
func TestOpenedPaused(t *testing.T) {
	without := fakedcgm.New(t, world()...)
	if err := open(t, without, planOf(field(150, onGPU)), dcgm.Options{}).Close(); err != nil {
		t.Fatal(err)
	}
	begun := without.Calls()["dcgmWatchFields"]
	for name, c := range map[string]struct {
		script, remote string
		pauses         int64
	}{
		"embedded":     {"", "", 1},
		"remote":       {"", "10.0.0.9", 1},
		"cannot pause": {"fail dcgmProfPause -36", "", 0},
		"may not":      {"fail dcgmProfPause -29", "10.0.0.9", 0},
	} {
		t.Run(name, func(t *testing.T) {
			e := fakedcgm.New(t, world(c.script)...)
			s := open(t, e, pausedPlan(profiling(1001)), dcgm.Options{Remote: engineAt(c.remote)}.RetryRefused(time.Nanosecond))
			order(t, s.PauseProfiling)
			for range 3 {
				if diff := cmp.Diff(unprofiled, shown(s, read(t, s))); diff != "" {
					t.Errorf("paused (-want +got):\n%s", diff)
				}
			}
			if n := e.Calls()["dcgmWatchFields"]; n != begun {
				t.Errorf("%d watches were begun, want %d, as without profiling", n, begun)
			}
			if n := e.Open()["pauses"]; n != c.pauses {
				t.Errorf("%d pauses at the engine, want %d", n, c.pauses)
			}
			order(t, s.ResumeProfiling)
			readUntilShown(t, s, profiled)
			if n := e.Calls()["dcgmProfResume"]; n != c.pauses {
				t.Errorf("the engine was resumed %d times, paused %d times", n, c.pauses)
			}
			if n := e.Open()["pauses"]; n != 0 {
				t.Errorf("%d pauses at the engine after the resume", n)
			}
		})
	}
}

// In a reload two sessions overlap, and the pause does not end in between.
func TestPauseOutlastsAReload(t *testing.T) {
	e := fakedcgm.New(t, world()...)
	src := dcgm.New(dcgm.Options{})
	first, err := src.Open(t.Context(), profilingPlan())
	if err != nil {
		t.Fatal(err)
	}
	order(t, first.PauseProfiling)
	next, err := src.Open(t.Context(), pausedPlan(profiling(1001)))
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if n := e.Calls()["dcgmProfResume"]; n != 0 || e.Open()["pauses"] != 1 {
		t.Errorf("resumed %d times, %d pauses", n, e.Open()["pauses"])
	}
	order(t, next.ResumeProfiling)
	readUntilShown(t, next, profiled)
	if err := next.Close(); err != nil {
		t.Fatal(err)
	}
	checkClosed(t, e)
}

// What was not asked for in time is isolated late: one field that the engine does not know costs
// itself alone.
func TestHeldFieldsAreIsolated(t *testing.T) {
	e := fakedcgm.New(t, world("unknown 1004")...)
	s := open(t, e, pausedPlan(profiling(1001), profiling(1004), profiling(1005)), dcgm.Options{})
	order(t, s.ResumeProfiling)
	var want []string
	for _, line := range profiled {
		want = append(want, line)
		if entity, _, ok := strings.Cut(line, " #1 "); ok {
			want = append(want, entity+" #2 not_supported", entity+" #3 0.5")
		}
	}
	readUntilShown(t, s, want)
	before := e.Calls()["dcgmFieldGroupCreate"]
	for range 3 {
		read(t, s)
	}
	if n := e.Calls()["dcgmFieldGroupCreate"] - before; n != 0 {
		t.Errorf("the refused field was asked for again, %d times", n)
	}
}

// A pause that a process left at the engine when it was killed ends with a resume of the next one.
func TestResumeOfAPauseOfOthers(t *testing.T) {
	e := fakedcgm.New(t, world("profiler -54")...)
	s := open(t, e, profilingPlan(), dcgm.Options{})
	if diff := cmp.Diff(unprofiled, shown(s, read(t, s))); diff != "" {
		t.Errorf("held (-want +got):\n%s", diff)
	}
	if err := s.ResumeProfiling(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := e.Calls()["dcgmProfResume"]; n != 1 {
		t.Errorf("the engine was resumed %d times", n)
	}
	e.Remove("profiler")
	order(t, s.ResumeProfiling)
	readUntilShown(t, s, profiled)
}
