package collector_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/events/statefile"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/loop"
)

// An engine is a source of one GPU whose events a test tells. They are samples
// of field 1.
type engine struct {
	fake
	lock  sync.Mutex   // the loop's worker reads what the test tells
	told  []gpu.Sample // by the next Read
	again []gpu.Sample // by every Read, as engines with a cache do
}

func newEngine() *engine {
	e := &engine{}
	e.topology = gpu.NewTopology([]gpu.Device{{Entity: gpu.Entity{Kind: gpu.KindGPU}, UUID: "GPU-0", PCIBusID: "00000000:1B:00.0"}})
	e.read = func(_ context.Context, b *gpu.Batch) error {
		e.lock.Lock()
		defer e.lock.Unlock()
		e.set(func() {
			for row := range e.session.topology.Devices {
				b.Add(row, 0, gpu.Int(1), time.Now())
			}
		})
		b.Samples = append(append(b.Samples, e.again...), e.told...)
		e.told = nil
		return nil
	}
	return e
}

func (e *engine) do(change func()) {
	e.lock.Lock()
	defer e.lock.Unlock()
	change()
}

// tell has the next Read report values of one time.
func (e *engine) tell(at time.Time, values ...int64) {
	e.do(func() { e.told = append(e.told, samples(at, values...)...) })
}

func samples(at time.Time, values ...int64) (list []gpu.Sample) {
	for _, v := range values {
		list = append(list, gpu.Sample{Field: 1, Value: gpu.Int(v), Time: at.UnixNano()})
	}
	return list
}

const (
	xidCountFamily, xidTotalFamily     = "DCGM_EXP_XID_ERRORS_COUNT", "DCGM_EXP_XID_ERRORS_TOTAL"
	clockCountFamily, clockTotalFamily = "DCGM_EXP_CLOCK_EVENTS_COUNT", "DCGM_EXP_CLOCK_EVENTS_TOTAL"
	clockSecondsFamily                 = "DCGM_EXP_CLOCK_EVENT_SECONDS_TOTAL"
)

// families asks for exporter families of field 1.
func families(names ...string) func(*loop.Options) {
	return func(o *loop.Options) {
		o.Plan.Derived = nil
		for _, name := range names {
			o.Plan.Derived = append(o.Plan.Derived, gpu.Derived{Name: name, Field: 1})
		}
	}
}

// clockFamilies does so with clock events in the place of XIDs.
func clockFamilies(names ...string) func(*loop.Options) {
	return func(o *loop.Options) {
		families(names...)(o)
		o.Plan.Fields[1] = gpu.Field{ID: 112, Name: "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", Levels: gpuOnly, Max: 1 << 32, Events: true}
	}
}

// family returns the lines of a family on the last page.
func (r *rig) family(name string) []string {
	return slices.DeleteFunc(strings.Split(r.last(), "\n"), func(line string) bool { return !strings.HasPrefix(line, name+"{") })
}

// A source may tell XIDs again, in the same Read as new ones; each counts once,
// whatever has the time of another.
func TestXIDsToldAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine()
		r := start(t, &e.fake, families(xidCountFamily, xidTotalFamily))
		e.do(func() { e.again = samples(time.Now(), 62, 45, 45) })
		for n := range 3 {
			r.wait(interval)
			e.tell(time.Now(), 45)
			const count, total = xidCountFamily + "{0}[{window_size_in_ms 300000} {xid ", xidTotalFamily + "{0}[{xid "
			r.has("XID{0} 45", count+"62}] 1", total+"62}] 1",
				count+fmt.Sprint("45}] ", 2+n), total+fmt.Sprint("45}] ", 2+n))
		}
		r.stop()
	})
}

// What is dated in the future was dated by a clock that is wrong or was set
// back: it would count at every telling, and hide what comes after it.
func TestXIDsOfTheFuture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, seen := newEngine(), &figures{}
		r := start(t, &e.fake, func(o *loop.Options) {
			families(xidTotalFamily, xidCountFamily)(o)
			seen.watch(o)
		})
		for range 3 {
			e.tell(time.Now().Add(time.Hour), 31)
			e.tell(time.Now().Add(interval+4*time.Second), 62) // a little ahead of the Read
			r.wait(interval)
		}
		if diff := cmp.Diff(map[string]int64{"62": 3}, seen.now()); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		r.stop()
	})
}

// The clock events of a window are counted once per interval, as often as they
// are sampled and whatever else is asked for.
func TestClockEventsOfTheWindowDoNotDependOnSampling(t *testing.T) {
	reason := func(at time.Duration) int64 {
		switch at /= time.Second; {
		case at >= 41 && at < 121, at >= 202 && at < 205: // eight intervals, and a moment between two
			return 4
		default:
			return 0
		}
	}
	played := map[string][]string{}
	for name, every := range map[string]time.Duration{
		"by every Read": 0, "every interval": interval, "every second": time.Second, "every 300 ms": 300 * time.Millisecond,
		"a little too slowly": interval + 9*time.Millisecond, "a little too fast": interval - 9*time.Millisecond,
	} {
		synctest.Test(t, func(t *testing.T) {
			e := newEngine()
			asked := clockFamilies(clockCountFamily)
			if every < interval {
				asked = clockFamilies(clockCountFamily, clockTotalFamily)
			}
			begin := time.Now()
			r := start(t, &e.fake, asked)
			next := every
			for range 60 {
				end := time.Since(begin) + interval
				for ; every > 0 && next < end; next += every {
					e.tell(begin.Add(next), reason(next))
				}
				if every == 0 {
					e.tell(begin.Add(end), reason(end))
				}
				r.wait(interval)
				played[name] = append(played[name], r.family(clockCountFamily)...)
			}
			r.stop()
		})
	}
	highest := clockCountFamily + "{0}[{window_size_in_ms 300000} {clock_event power_cap}] 8"
	for name, pages := range played {
		if !slices.Contains(pages, highest) {
			t.Errorf("%s: no %s in %v", name, highest, pages)
		}
		if slices.Contains(pages, highest[:len(highest)-1]+"9") {
			t.Errorf("%s: an interval counted twice", name)
		}
		if got := pages[len(pages)-1]; got != clockCountFamily+"{0}[{window_size_in_ms 300000}] 0" {
			t.Errorf("%s: at the end %s", name, got)
		}
	}
}

// A watch group's interval is what the clock events of the window are counted
// by; a reload takes effect at once.
func TestClockEventsOfTheWindowAtTheirOwnInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine()
		var opt loop.Options
		r := start(t, &e.fake, func(o *loop.Options) {
			clockFamilies(clockCountFamily, clockTotalFamily)(o)
			o.Plan.Derived[0].Interval = 6 * interval
			opt = *o
		})
		const count = clockCountFamily + "{0}[{window_size_in_ms 300000} {clock_event power_cap}] "
		throttled := func(intervals int, want string) {
			t.Helper()
			time.Sleep(interval / 100) // no sample at the moment of a Read
			for range intervals {
				for range 10 {
					time.Sleep(interval / 10) // the bubble's clock
					e.tell(time.Now(), 4)
				}
				synctest.Wait()
			}
			r.has(count + want)
		}
		throttled(100, "5")
		plan := *opt.Plan
		plan.Derived = []gpu.Derived{{Name: clockCountFamily, Field: 1}}
		if err := r.loop.Reload(t.Context(), collector.Change{Source: opt.Source, Plan: &plan}); err != nil {
			t.Fatal(err)
		}
		throttled(3, "7")
		throttled(97, "30")
		r.stop()
	})
}

// What a Read says of XIDs counts also where nothing else of it is served: it
// fails, or finds that the session is over, or is the last before the end.
func TestLastWordsCount(t *testing.T) {
	for name, test := range map[string]struct {
		end  error // of the session
		read error
	}{
		"the GPU is lost": {end: gpu.ErrLost}, "the topology changed": {end: gpu.ErrTopology}, "the Read fails": {read: gpu.ErrTimeout},
		"the Read finds the engine lost": {read: gpu.ErrLost}, "nothing but the end": {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, seen := newEngine(), &figures{}
				plain := e.read
				e.read = func(ctx context.Context, b *gpu.Batch) error {
					e.lock.Lock()
					last := len(e.told) > 0
					e.lock.Unlock()
					if err := plain(ctx, b); err != nil || !last {
						return err
					}
					if test.end != nil {
						e.session.end(test.end)
					}
					return test.read
				}
				var kept *statefile.State
				r := start(t, &e.fake, func(o *loop.Options) {
					families(xidTotalFamily)(o)
					seen.watch(o)
					o.Save = func(s *statefile.State) { kept = s }
				})
				r.wait(interval / 2)
				e.tell(time.Now(), 79, 79)
				if test.end != nil || test.read != nil {
					r.wait(2 * interval)
					if got := seen.now()["79"]; got != 2 {
						t.Errorf("%d XIDs are told, want 2", got)
					}
				}
				r.stop()
				want := []statefile.Owner{{XIDs: []statefile.XID{{Code: 79, Count: 2, Last: kept.GPUs[0].LastXID}}}}
				if diff := cmp.Diff(want, kept.GPUs[0].Owners); diff != "" {
					t.Errorf("(-want +kept)\n%s", diff)
				}
			})
		})
	}
}

// A reload reads the old session once more and the new one before it is
// adopted: whatever happens between these Reads counts, once.
func TestXIDsDuringAReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine()
		plain, told := e.read, int64(0)
		e.read = func(ctx context.Context, b *gpu.Batch) error {
			err := plain(ctx, b)
			told++
			e.tell(time.Now(), 31) // right after it
			time.Sleep(interval / 100)
			return err
		}
		var change collector.Change
		r := start(t, &e.fake, func(o *loop.Options) {
			families(xidTotalFamily, xidCountFamily)(o)
			change = collector.Change{Source: o.Source, Plan: o.Plan}
		})
		r.wait(interval / 2)
		if err := r.loop.Reload(t.Context(), change); err != nil {
			t.Fatal(err)
		}
		r.wait(interval / 2)
		e.do(func() {
			r.has(xidTotalFamily+fmt.Sprint("{0}[{xid 31}] ", told-1), // the last one is not read yet
				xidCountFamily+fmt.Sprint("{0}[{window_size_in_ms 300000} {xid 31}] ", told-1))
			if told != 4 {
				t.Errorf("%d Reads, want one of each session for the reload, and one cycle each", told)
			}
		})
		r.stop()
	})
}
