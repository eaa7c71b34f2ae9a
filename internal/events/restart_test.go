package events_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/events"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/loop"
)

// An engine keeps XIDs and reports them again to a new process, to which only what is new counts.
// The window begins with what is reported.
func TestXIDsToldAgainAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, seen := newEngine(), &figures{}
		var kept *events.State
		run := func(check func(*rig)) {
			t.Helper()
			r := start(t, e.Open, func(o *loop.Options) {
				families(xidTotalFamily, xidCountFamily)(o)
				seen.watch(o)
				o.Kept, o.Save = kept, func(s *events.State) { kept = s }
			})
			r.wait(interval)
			check(r)
			r.stop()
		}
		expect := func(want map[string]int64) func(*rig) {
			return func(*rig) {
				t.Helper()
				if diff := cmp.Diff(want, seen.now()); diff != "" {
					t.Errorf("(-want +got)\n%s", diff)
				}
			}
		}
		e.keeps = true
		at := time.Now()
		e.happen(at, 62, 45)
		run(expect(map[string]int64{"62": 1, "45": 1}))
		run(expect(map[string]int64{"62": 1, "45": 1}))
		time.Sleep(time.Minute) // meanwhile
		e.happen(time.Now(), 45, 45)
		e.happen(at, 45) // and one of the time of another
		run(expect(map[string]int64{"62": 1, "45": 4}))
		run(expect(map[string]int64{"62": 1, "45": 4}))
	})
	// A file of an exporter that kept no reports says how far they were counted. A clock that was
	// ahead does not keep XIDs back.
	synctest.Test(t, func(t *testing.T) {
		e, seen := newEngine(), &figures{}
		e.keeps = true
		e.happen(time.Now(), 62, 45)
		old := &events.State{GPUs: []events.GPUCounts{{
			UUID: "GPU-0", LastXID: time.Now().UnixNano(),
			Owners: []events.OwnerXIDs{{XIDs: []events.XIDCount{{Code: 62, Count: 1}, {Code: 45, Count: 1}}}},
		}}}
		for range 2 {
			time.Sleep(time.Second)
			r := start(t, e.Open, func(o *loop.Options) {
				families(xidTotalFamily)(o)
				seen.watch(o)
				o.Kept = old
			})
			r.wait(interval)
			if diff := cmp.Diff(map[string]int64{"62": 1, "45": 1}, seen.now()); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			e.happen(time.Now().Add(time.Second), 79)
			r.wait(interval)
			if diff := cmp.Diff(map[string]int64{"62": 1, "45": 1, "79": 1}, seen.now()); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			r.stop()
			e.do(func() { e.xids = e.xids[:2] })
			old.GPUs[0].LastXID += int64(time.Hour)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		e := newEngine()
		e.keeps = true
		e.happen(time.Now(), 62, 45)
		now := time.Now().UnixNano()
		r := start(t, e.Open, func(o *loop.Options) {
			families(xidCountFamily)(o)
			o.Kept = &events.State{GPUs: []events.GPUCounts{{UUID: "GPU-0", LastXID: now}}}
		})
		r.wait(interval)
		r.has("XID{0} 45", xidCountFamily+"{0}[{window_size_in_ms 300000} {xid 62}] 1", xidCountFamily+"{0}[{window_size_in_ms 300000} {xid 45}] 1")
		r.stop()
	})
}

// Clock events go on from what was kept; what was on at the end counts for no edge, and the time
// between for nothing.
func TestClockEventsAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine()
		var kept *events.State
		run := func(masks ...int64) {
			r := start(t, e.Open, func(o *loop.Options) {
				clockFamilies(clockTotalFamily, clockSecondsFamily)(o)
				o.Kept, o.Save = kept, func(s *events.State) { kept = s }
			})
			for _, mask := range masks {
				e.sample(time.Now(), mask)
				r.wait(interval)
			}
			counted := map[string]string{}
			for _, family := range []string{clockTotalFamily, clockSecondsFamily} {
				for _, line := range r.family(family) {
					var name, value string
					if _, err := fmt.Sscanf(line, family+"{0}[{clock_event %s %s", &name, &value); err != nil {
						t.Fatalf("%s: %v", line, err)
					}
					if value != "0" {
						counted[family[15:]+" "+name] = value
					}
				}
			}
			r.stop()
			want := map[string]string{}
			for _, c := range kept.GPUs[0].Clock {
				for key, n := range map[string]int64{"EVENTS_TOTAL ": c.Count, "EVENT_SECONDS_TOTAL ": c.Nanoseconds / 1e9} {
					if n > 0 {
						want[key+c.Event+"}]"] = fmt.Sprint(n)
					}
				}
			}
			if diff := cmp.Diff(want, counted); diff != "" {
				t.Errorf("(-kept +reported)\n%s", diff)
			}
		}
		expect := func(want ...events.ClockTotal) {
			t.Helper()
			if diff := cmp.Diff(want, kept.GPUs[0].Clock, unexported); diff != "" {
				t.Errorf("(-want +kept)\n%s", diff)
			}
		}
		run(0, 4, 4, 0, 4)
		expect(events.ClockTotal{Event: "power_cap", Count: 2, Nanoseconds: 20e9})
		kept.GPUs[0].Clock = append(kept.GPUs[0].Clock, events.ClockTotal{Event: "of a later exporter", Count: 7})
		time.Sleep(interval)
		run(4, 4|32, 0)
		expect(events.ClockTotal{Event: "power_cap", Count: 2, Nanoseconds: 40e9}, events.ClockTotal{Event: "sw_thermal", Count: 1, Nanoseconds: 10e9})
	})
}

// A GPU that is away keeps its counts; there are as many of those as a node could have, and the
// ones that are here come first.
func TestGPUsThatAreAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine()
		kept := &events.State{}
		for i := range 1000 {
			kept.GPUs = append(kept.GPUs, events.GPUCounts{
				UUID: fmt.Sprint("GPU-away-", i), Owners: []events.OwnerXIDs{{XIDs: []events.XIDCount{{Code: 79, Count: 1, Last: int64(i + 1)}}}},
			})
		}
		r := start(t, e.Open, func(o *loop.Options) {
			families(xidTotalFamily)(o)
			o.Kept, o.Save = kept, func(s *events.State) { kept = s }
		})
		e.happen(time.Now(), 31)
		r.wait(interval)
		r.has(xidTotalFamily + "{0}[{xid 31}] 1")
		r.dropped("gpu", "full", 1001-256)
		r.stop()
		here := 0
		for _, g := range kept.GPUs {
			if g.UUID == "GPU-0" {
				here++
			}
		}
		if len(kept.GPUs) != 256 || here != 1 {
			t.Errorf("%d GPUs are kept, the one that is here %d times", len(kept.GPUs), here)
		}
	})
}
