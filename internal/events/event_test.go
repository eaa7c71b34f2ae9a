package events_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/loop"
)

const (
	xidCountFamily, xidTotalFamily     = "DCGM_EXP_XID_ERRORS_COUNT", "DCGM_EXP_XID_ERRORS_TOTAL"
	clockCountFamily, clockTotalFamily = "DCGM_EXP_CLOCK_EVENTS_COUNT", "DCGM_EXP_CLOCK_EVENTS_TOTAL"
	clockSecondsFamily                 = "DCGM_EXP_CLOCK_EVENT_SECONDS_TOTAL"
)

// families requests families of the exporter that use field 1.
func families(names ...string) func(*loop.Options) {
	return func(o *loop.Options) {
		o.Plan.Derived = nil
		for _, name := range names {
			o.Plan.Derived = append(o.Plan.Derived, gpu.Derived{Name: name, HasField: true, Field: 1})
		}
	}
}

// clockFamilies is like families, with field 1 being clock event reasons instead of XIDs.
func clockFamilies(names ...string) func(*loop.Options) {
	return func(o *loop.Options) {
		families(names...)(o)
		o.Plan.Fields[1] = gpu.Field{
			ID: 112, Name: "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", Levels: gpuOnly, Range: &gpu.Range{Max: 1 << 32},
			AllSamples: true,
		}
	}
}

// A session can announce that it reads its XIDs from the beginning again.
func TestXIDsRepeatedWithinASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, seen := newEngine(), &figures{}
		r := start(t, e.Open, seen.watchTotals)
		e.happen(time.Now(), 62, 45, 45)
		r.Wait(interval)
		e.do(func() {
			e.session.next = 0
			e.read = func(b *gpu.Batch) error {
				b.XIDsRepeat = len(b.XIDs) > 0
				return nil
			}
		})
		e.happen(time.Now(), 31)
		r.Wait(interval)
		seen.are(t, counts{"62": 1, "45": 2, "31": 1})
	})
}

// An XID with a date in the future was dated by a wrong clock, or the clock was set back since. It is counted with
// the time at which it was read.
func TestXIDsOfTheFuture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine()
		r := start(t, e.Open, families(xidTotalFamily, xidCountFamily, seenFamily))
		for n := range 3 {
			e.happen(time.Now().Add(time.Hour), 31)
			e.happen(time.Now().Add(interval+4*time.Second), 62) // slightly later than the Read
			r.Wait(interval)
			r.Has(total(0, 31, n+1), total(0, 62, n+1), lastSeen(0, 31, time.Now()))
		}
		r.Wait(5 * time.Minute)
		r.Has(inWindow(0, "", 0))
	})
}

// When this machine's clock is set forward or back, XIDs still get their owner and leave the window in time.
func TestLocalClockIsSet(t *testing.T) {
	for name, by := range map[string]time.Duration{
		"back": -time.Hour, "forward": time.Hour,
		"back a little": -7 * time.Second, "forward a little": 7 * time.Second,
		"back by more than an interval": -20 * time.Second, "forward by more than an interval": 20 * time.Second,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newEngine()
				var mu sync.Mutex
				var offset time.Duration
				now := func() time.Time {
					mu.Lock()
					defer mu.Unlock()
					return time.Unix(0, time.Now().UnixNano()).Add(offset)
				}
				seen, begin := &figures{}, time.Now()
				r := start(t, e.Open, func(o *loop.Options) {
					families(xidCountFamily, xidTotalFamily, seenFamily)(o)
					o.Now = now
					o.Attributors = pods(func() *gpu.Owners {
						return ofPod(fmt.Sprint(time.Since(begin) >= interval))
					})
					seen.watch(o)
				})
				last := func(code int) {
					t.Helper()
					r.Has(lastSeen(0, code, now().Add(-interval)))
				}
				count := func(want counts) {
					t.Helper()
					r.Wait(interval)
					seen.are(t, want)
				}
				e.happen(now(), 31)
				count(counts{"31 pod=false": 1})
				r.Wait(interval) // the other pod owns the GPU for a while
				e.happen(now(), 45)
				count(counts{"31 pod=false": 1, "45 pod=true": 1})
				last(45)
				e.happen(now(), 31) // this date comes from the clock before it was set
				mu.Lock()
				offset = by
				mu.Unlock()
				count(counts{"31 pod=false": 1, "31 pod=true": 1, "45 pod=true": 1})
				e.happen(now(), 45, 31)
				count(counts{"31 pod=false": 1, "31 pod=true": 2, "45 pod=true": 2})
				last(31)
				last(45)
				r.Wait(6 * time.Minute)
				r.Has(inWindow(0, "", 0))
			})
		})
	}
}

// XID codes that no driver uses are dropped and logged.
func TestImplausibleXIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, seen := newEngine(), &figures{}
		r := start(t, e.Open, seen.watchTotals)
		e.happen(time.Now(), 0, -1, gpu.MaxXID+1, 1<<40, gpu.MaxXID)
		r.Wait(interval)
		seen.are(t, counts{"10000": 1})
		r.Metric("dcgm_exporter_events_dropped_total{reason=out_of_range,what=xid} 4")
	})
}

// In strict mode, a GPU has no gauge before its first XID, as in NVIDIA's exporter. This gauge does not count as
// missing.
func TestNoGaugeBeforeFirstXID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine()
		r := start(t, e.Open, func(o *loop.Options) { o.Strict = true })
		r.HasNot("XID{")
		e.happen(time.Now(), 31)
		r.Wait(interval)
		r.Has(gauge(0, 31))
	})
}

// Clock events in the window are counted once per interval, independent of the sampling interval and other settings.
func TestWindowDoesNotDependOnSampling(t *testing.T) {
	reason := func(at time.Duration) int64 {
		switch at /= time.Second; {
		case at >= 41 && at < 121, at >= 202 && at < 205: // eight intervals, and a short period between two Reads
			return 4
		default:
			return 0
		}
	}
	played := map[string][]string{}
	for name, every := range map[string]time.Duration{
		"a new sample in every Read": 0, "every interval": interval,
		"every second": time.Second, "every 300 ms": 300 * time.Millisecond,
		"every interval and 9 ms":    interval + 9*time.Millisecond,
		"9 ms before every interval": interval - 9*time.Millisecond,
	} {
		synctest.Test(t, func(t *testing.T) {
			e := newEngine()
			requested := clockFamilies(clockCountFamily)
			if every < interval {
				requested = clockFamilies(clockCountFamily, clockTotalFamily)
			}
			begin := time.Now()
			r := start(t, e.Open, requested)
			next := every
			for range 60 {
				end := time.Since(begin) + interval
				for ; every > 0 && next < end; next += every {
					e.sample(begin.Add(next), reason(next))
				}
				if every == 0 {
					e.sample(begin.Add(end), reason(end))
				}
				r.Wait(interval)
				played[name] = append(played[name], r.Lines(clockCountFamily)...)
			}
		})
	}
	highest := clockCountFamily + "{0}[{window_size_in_ms 300000} {clock_event power_cap}] 8"
	for name, pages := range played {
		if !slices.Contains(pages, highest) {
			t.Errorf("%s: pages = %v, want %s on one of them", name, pages, highest)
		}
		if slices.Contains(pages, highest[:len(highest)-1]+"9") {
			t.Errorf("%s: highest value = 9, want 8: an interval was counted twice", name)
		}
		if got := pages[len(pages)-1]; got != clockCountFamily+"{0}[{window_size_in_ms 300000}] 0" {
			t.Errorf("%s: last value = %s, want 0", name, got)
		}
	}
}

// Clock events in the window are counted with the interval of the watch group. A reload takes effect immediately.
func TestWindowUsesIntervalOfGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine()
		var opt loop.Options
		r := start(t, e.Open, func(o *loop.Options) {
			clockFamilies(clockCountFamily, clockTotalFamily)(o)
			o.Plan.Derived[0].Interval = 6 * interval
			opt = *o
		})
		const count = clockCountFamily + "{0}[{window_size_in_ms 300000} {clock_event power_cap}] "
		throttled := func(intervals int, want string) {
			t.Helper()
			time.Sleep(interval / 100) // no sample at the time of a Read
			for range intervals {
				for range 10 {
					time.Sleep(interval / 10) // fake clock of the bubble
					e.sample(time.Now(), 4)
				}
				synctest.Wait()
			}
			r.Has(count + want)
		}
		throttled(100, "5")
		plan := *opt.Plan
		plan.Derived = []gpu.Derived{{Name: clockCountFamily, HasField: true, Field: 1}}
		r.Reload(collector.Settings{Source: opt.Source, Plan: &plan})
		throttled(3, "7")
		throttled(97, "30")
	})
}

// XIDs of a Read are counted even if its other samples are discarded because the Read failed or ended the session.
func TestXIDsOfLastReadAreCounted(t *testing.T) {
	for name, test := range map[string]struct {
		end  error // error of the session
		read error
	}{
		"the GPU is lost": {end: gpu.ErrLost}, "the topology changed": {end: gpu.ErrTopology},
		"the Read fails":                 {read: gpu.ErrTimeout},
		"the Read finds the engine lost": {read: gpu.ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, seen := newEngine(), &figures{}
				e.read = func(b *gpu.Batch) error {
					if len(b.XIDs) == 0 {
						return nil
					}
					if test.end != nil {
						e.session.err = test.end
						close(e.session.done)
					}
					return test.read
				}
				r := start(t, e.Open, seen.watchTotals)
				r.Wait(interval / 2)
				e.happen(time.Now(), 79, 79)
				r.Wait(2 * interval)
				if got := seen.now()["79"]; got != 2 {
					t.Errorf("XIDs counted = %d, want 2", got)
				}
			})
		})
	}
}

// A reload reads the old session once more, and reads the new one before adopting it. XIDs between these Reads are
// counted once.
func TestXIDsDuringAReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine()
		reads := 0
		e.read = func(*gpu.Batch) error {
			reads++
			now := time.Now() // right after the Read
			e.xids = append(e.xids, gpu.XID{Code: 31, ID: now.UnixMicro(), Time: now.UnixNano()})
			e.mu.Unlock()
			time.Sleep(interval / 100) // fake clock of the bubble
			e.mu.Lock()
			return nil
		}
		r := start(t, e.Open, families(xidTotalFamily, xidCountFamily))
		r.Wait(interval / 2)
		r.Reload(r.Settings)
		r.Wait(interval / 4)
		e.do(func() {
			r.Has(total(0, 31, reads-1), inWindow(0, "{xid 31}", reads-1)) // the last XID has not been read yet
			if reads != 3 {
				t.Errorf("Reads = %d, want 3: the first, and one of each session during the reload", reads)
			}
		})
	})
}

// A restarted engine reads the kernel log from its beginning and dates each XID again. The new dates differ by 1 µs
// or more. The exporter must not count these XIDs again, but must count further XIDs with the same code.
func TestRedatedXIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, seen := newEngine(), &figures{}
		e.keeps = true
		r := start(t, e.Open, seen.watchTotals)
		begin := time.Now()
		e.happen(begin, 79, 79, 31)
		e.happen(begin.Add(500*time.Millisecond), 79)
		r.Wait(interval)
		seen.are(t, counts{"79": 3, "31": 1})

		for _, shift := range []time.Duration{time.Microsecond, -time.Second, 2 * time.Second} {
			e.do(func() { e.xids = nil })
			e.happen(begin.Add(shift), 79, 79, 31)
			e.happen(begin.Add(500*time.Millisecond+shift), 79)
			r.Reload(r.Settings)
			r.Wait(interval)
			seen.are(t, counts{"79": 3, "31": 1})
		}
		e.do(func() { e.xids, e.session.next = nil, 6 }) // only the next session reads them
		e.happen(begin, 79, 79, 79, 31)                  // one more with the same time
		e.happen(begin.Add(-2001*time.Millisecond), 31)  // too far from the other one
		e.happen(begin.Add(500*time.Millisecond), 79)
		r.Reload(r.Settings)
		r.Wait(interval)
		seen.are(t, counts{"79": 4, "31": 2})
	})
}

// XIDs from before the process started update the timestamp and the window, but not the total. Otherwise increase()
// would count them again after every restart.
func TestXIDsFromBeforeTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, seen := newEngine(), &figures{}
		e.keeps = true
		old := time.Now()
		e.happen(old, 79)
		time.Sleep(time.Minute)
		r := start(t, e.Open, func(o *loop.Options) {
			families(xidTotalFamily, xidCountFamily, catalog.XIDLastSeen)(o)
			o.Start = time.Now()
			seen.watch(o)
		})
		r.Wait(interval)
		seen.are(t, counts{})
		r.Has(gauge(0, 79), inWindow(0, "{xid 79}", 1), lastSeen(0, 79, old))
		e.happen(time.Now(), 79)
		r.Wait(interval)
		seen.are(t, counts{"79": 1})
		r.Reload(r.Settings)
		r.Wait(interval)
		seen.are(t, counts{"79": 1})
	})
}

// XIDs and clock event reasons are counted even if they are the first field of the plan.
func TestEventsOfTheFirstField(t *testing.T) {
	first := func(field func(*loop.Options)) func(*loop.Options) {
		return func(o *loop.Options) {
			field(o)
			o.Plan.Fields, o.Plan.Counters = o.Plan.Fields[1:], nil
			for i := range o.Plan.Derived {
				o.Plan.Derived[i].Field = 0
			}
		}
	}
	synctest.Test(t, func(t *testing.T) {
		e := newEngine()
		r := start(t, e.Open, first(families(xidTotalFamily, xidCountFamily)))
		e.happen(time.Now(), 62)
		r.Wait(interval)
		r.Has(total(0, 62, 1), inWindow(0, "{xid 62}", 1))
	})
	synctest.Test(t, func(t *testing.T) {
		const powerCap = 4
		e := newEngine()
		r := start(t, e.Open, first(clockFamilies(clockTotalFamily)))
		begin := time.Now()
		e.do(func() {
			for n, mask := range []int64{0, powerCap, 0} {
				at := begin.Add(time.Duration(n) * time.Second)
				e.reasons = append(e.reasons, gpu.Sample{Value: gpu.Int(mask), Time: at.UnixNano()})
			}
		})
		r.Wait(interval)
		r.Has(clockTotalFamily + "{0}[{clock_event power_cap}] 1")
	})
}

// After the clock is set back, the XIDs from before are in the future. The gauge shows the newest of the other XIDs.
func TestNewestXIDAfterAClockIsSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine()
		var back atomic.Int64
		now := func() time.Time { return time.Now().Add(-time.Duration(back.Load())) }
		r := start(t, e.Open, func(o *loop.Options) {
			families(xidTotalFamily)(o)
			o.Now = now
		})
		e.happen(now(), 62)
		r.Wait(interval)
		r.Has(gauge(0, 62))
		back.Store(int64(time.Hour))
		e.happen(now(), 31)
		r.Wait(interval)
		r.Has(gauge(0, 31))
	})
}

// The kernel log may name a pod that ended some cycles ago.
func TestXIDOfAnEarlierPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, log, seen := newEngine(), readLog(), &figures{}
		holder := func(pod string) *gpu.Owners {
			owner := gpu.Owner{Namespace: "n", Pod: pod, PodUID: "uid-" + pod, Container: "c"}
			return &gpu.Owners{
				Labels: [][]gpu.Label{nil},
				Uses:   []gpu.Use{{Sharing: gpu.SharingTimeSlicing, Owners: []gpu.Owner{owner}}},
			}
		}
		var owners atomic.Pointer[gpu.Owners]
		owners.Store(holder("a"))
		r := start(t, e.Open, func(o *loop.Options) {
			seen.watchTotals(o)
			o.KernelLog = log
			o.Attributors = pods(owners.Load)
		})
		r.Wait(interval)
		owners.Store(holder("b"))
		r.Wait(3 * interval)
		log.report(gpu.XID{
			PCIBusID: "00000000:1B:00.0", Code: 31, PodUIDs: []string{"uid-a"}, Time: time.Now().UnixNano(),
		})
		r.Wait(interval)
		seen.are(t, counts{"31 container=c namespace=n pod=a": 1})
	})
}

// The counts of 256 GPUs are kept. Beyond that, the GPU that has been absent longest is forgotten.
func TestGPUsThatAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name := func(n int) string { return "GPU-" + string(rune('a'+n/26)) + string(rune('a'+n%26)) }
		e := newEngine()
		e.topology = gpusAt(name(0))
		r := start(t, e.Open, families(xidTotalFamily))
		for n := range 257 {
			if n > 0 {
				e.become(gpusAt(name(n)))
			}
			e.happen(time.Now(), 79)
			r.Wait(interval)
		}
		e.become(gpusAt(name(0), name(1), name(256)))
		r.Has(total(0, 79, 0), total(1, 79, 1), total(2, 79, 1))
		var many []string
		for n := range 300 {
			many = append(many, name(n))
		}
		e.become(gpusAt(many...))
		r.Has(total(256, 79, 1), total(299, 79, 0))
	})
}

// The exporter keeps a bounded number of series, whatever XIDs arrive and however many owners there are. Their sum
// remains the number of XIDs.
func TestEventsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const cycles, each = 200, 20
		random := rand.New(rand.NewPCG(1, 2))
		e := newEngine()
		var mu sync.Mutex
		var series, total, windowed int64
		pod := 0
		r := start(t, e.Open, func(o *loop.Options) {
			families(xidTotalFamily, xidCountFamily)(o)
			o.Attributors = pods(func() *gpu.Owners {
				pod++
				return ofPod(strconv.Itoa(pod))
			})
			o.Publish = func(s *gpu.Snapshot) {
				mu.Lock()
				defer mu.Unlock()
				series, total, windowed = 0, 0, 0
				for _, f := range s.Families {
					for _, x := range f.Series {
						n, _ := x.Value.Int64()
						switch f.Name {
						case xidTotalFamily:
							series, total = series+1, total+n
						case xidCountFamily:
							windowed += n
						}
					}
				}
			}
		})
		heap := func() int64 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		r.Wait(40 * interval)
		mu.Lock()
		if alerts := int64(len(catalog.AlertXIDs())); series != alerts {
			t.Errorf("series without XIDs = %d, want the %d that alerts use, for the current owner", series, alerts)
		}
		mu.Unlock()
		for range cycles {
			at := time.Now()
			for range each {
				at = at.Add(time.Second / 5)
				e.happen(at, 1+random.Int64N(gpu.MaxXID-1))
			}
			r.Wait(interval)
		}
		mu.Lock()
		if most := int64(5 * time.Minute / interval * each); windowed == 0 || windowed > most {
			t.Errorf("XIDs in the window = %d, want 1 to %d", windowed, most)
		}
		mu.Unlock()
		before := heap()
		r.Wait(2000 * interval) // owners keep changing
		grown := heap() - before
		mu.Lock()
		defer mu.Unlock()
		if total != cycles*each {
			t.Errorf("XIDs counted = %d, want %d", total, cycles*each)
		}
		if series > 33*65 { // owners including "no owner", times XIDs including "other"
			t.Errorf("series = %d, want at most %d", series, 33*65)
		}
		if grown > 64<<10 {
			t.Errorf("memory grew by %d bytes, want at most %d", grown, 64<<10)
		}
	})
}

// A clock event is counted when it starts. Its seconds are counted only between consecutive samples that both show
// it, not over a gap.
func TestClockEventsByEdgesAndSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const powerCap, thermal = 0x4, 0x20 // nvmlClocksEventReason…
		begin := time.Now()
		e := newEngine()
		at := func(seconds, mask int64) { e.sample(begin.Add(time.Duration(seconds)*time.Second), mask) }
		r := start(t, e.Open, clockFamilies(clockTotalFamily, clockSecondsFamily))
		step := func(wanted ...string) {
			t.Helper()
			r.Wait(interval)
			r.Has(wanted...)
		}
		const count, seconds = clockTotalFamily + "{0}[{clock_event ", clockSecondsFamily + "{0}[{clock_event "
		at(1, 0)
		step(count+"power_cap}] 0", seconds+"power_cap}] 0", count+"sw_thermal}] 0", count+"gpu_idle}] 0")
		for _, slowsNothing := range []string{"gpu_idle", "display_clocks"} {
			r.HasNot(seconds + slowsNothing)
		}
		at(11, powerCap) // the event starts
		at(13, powerCap|thermal)
		at(14, thermal) // the event ends after 3 s
		at(15, powerCap)
		step(count+"power_cap}] 2", seconds+"power_cap}] 3", count+"sw_thermal}] 1", seconds+"sw_thermal}] 2")
		step(count+"power_cap}] 2", seconds+"power_cap}] 3") // no new sample
		at(29, 0)
		step(count+"power_cap}] 2", seconds+"power_cap}] 17")
		at(35, thermal)
		step(count + "sw_thermal}] 2")
		r.Wait(4 * interval)
		at(75, 0) // 40 s later, which is more than three intervals
		step(seconds+"sw_thermal}] 2", count+"sw_thermal}] 2")
		at(14, powerCap) // the same sample is reported again
		step(count+"power_cap}] 2", seconds+"power_cap}] 17")
	})
}

// kernelLog is a kernel log that a test writes.
type kernelLog struct {
	mu    sync.Mutex
	xids  []gpu.XID
	since time.Time // zero if it is not being read
}

// readLog returns a kernel log that is being read from now on.
func readLog() *kernelLog { return &kernelLog{since: time.Now()} }

func (w *kernelLog) Since() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.since
}

func (w *kernelLog) set(since time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since = since
}

func (w *kernelLog) report(list ...gpu.XID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.xids = append(w.xids, list...)
}

func (w *kernelLog) Drain(into []gpu.XID) []gpu.XID {
	w.mu.Lock()
	defer w.mu.Unlock()
	into = append(into, w.xids...)
	w.xids = nil
	return into
}

// happen creates XIDs of GPU 0.
func (w *kernelLog) happen(at time.Time, codes ...int64) {
	for _, code := range codes {
		w.report(gpu.XID{PCIBusID: "00000000:1b:00.0", Code: code, Time: at.UnixNano()})
	}
}

// While the kernel log is read, it is the source of XIDs, and the engine's reports for that period are ignored.
// Before and afterwards, the engine is the source.
func TestKernelLogIsSourceWhileRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, log, seen := newEngine(), &kernelLog{}, &figures{}
		e.keeps = true
		r := start(t, e.Open, func(o *loop.Options) {
			families(xidTotalFamily, xidCountFamily)(o)
			seen.watch(o)
			o.KernelLog = log
		})
		counted := func(want counts) {
			t.Helper()
			r.Wait(interval)
			seen.are(t, want)
		}
		e.happen(time.Now(), 48)
		counted(counts{"48": 1})

		time.Sleep(time.Second)
		log.set(time.Now())
		time.Sleep(time.Second)
		before := time.Now().Add(-2 * time.Second)
		e.happen(time.Now(), 31, 31, 13) // the kernel log does not have XID 13
		log.happen(time.Now(), 31, 31, 79)
		e.happen(before, 62) // it happened before the kernel log was read, and is reported late
		counted(counts{"48": 1, "31": 2, "79": 1, "62": 1})
		r.Has(gauge(0, 79), inWindow(0, "{xid 31}", 2), inWindow(0, "{xid 79}", 1))
		r.Reload(r.Settings) // the engine reports all XIDs again
		counted(counts{"48": 1, "31": 2, "79": 1, "62": 1})

		log.set(time.Time{})
		r.Wait(interval)
		e.happen(time.Now(), 79)
		counted(counts{"48": 1, "31": 2, "79": 2, "62": 1})

		log.set(time.Now())
		r.Wait(interval)
		e.happen(time.Now(), 13)
		time.Sleep(time.Second)
		log.set(time.Now()) // it failed and was opened again since the last Read
		counted(counts{"48": 1, "31": 2, "79": 2, "62": 1, "13": 1})
	})
}

// NVML reports XIDs while DCGM is unavailable. When DCGM returns, it reports the XIDs of that period under other IDs,
// and some that NVML did not report.
func TestEngineReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, driver, seen := newEngine(), newEngine(), &figures{}
		e.keeps = true
		driver.topology = gpu.NewTopology(driver.topology.Devices)
		driver.topology.Source = "nvml"
		var plan *gpu.Plan
		r := start(t, e.Open, func(o *loop.Options) {
			families(xidTotalFamily)(o)
			plan = o.Plan
			seen.watch(o)
		})
		is := func(want counts) {
			t.Helper()
			r.Wait(interval)
			seen.are(t, want)
		}
		e.happen(time.Now(), 31)
		is(counts{"31": 1})
		r.Reload(collector.Settings{Source: collector.SourceOf(driver.Open), Plan: plan})
		for i := range 2 * 60 { // longer than the window
			r.Wait(interval)
			if i%20 > 0 {
				continue
			}
			now := time.Now()
			driver.do(func() {
				driver.xids = append(driver.xids, gpu.XID{Code: 31, ID: int64(i + 1), Time: now.UnixNano()})
			})
			e.happen(now, 31)
		}
		is(counts{"31": 7})
		time.Sleep(interval / 2)
		r.Reload(r.Settings)
		e.happen(time.Now().Add(time.Second), 62)
		is(counts{"31": 7, "62": 1})
	})
}

const (
	seenFamily   = "DCGM_EXP_XID_LAST_SEEN_TIMESTAMP_SECONDS"
	detailFamily = "DCGM_EXP_XID_DETAILS_TOTAL"
	sxidFamily   = "DCGM_EXP_NVSWITCH_SXID_ERRORS_TOTAL"
	sxidSeen     = "dcgm_nvswitch_sxid_last_seen_timestamp_seconds"
)

// An XID from before the start updates the timestamp and is not counted. Its GPU may appear later. The engine's
// reports update the timestamp as well, even for the period in which the kernel log is read.
func TestXIDsFromBeforeStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, log, seen := newEngine(), readLog(), &figures{}
		r := start(t, e.Open, func(o *loop.Options) {
			families(xidTotalFamily, xidCountFamily, seenFamily)(o)
			seen.watch(o)
			o.KernelLog = log
		})
		hourAgo := time.Now().Add(-time.Hour)
		for _, bus := range []string{"00000000:1B:00.0", "00000000:1C:00.0"} {
			log.report(gpu.XID{PCIBusID: bus, Code: 79, Time: hourAgo.UnixNano(), Past: true})
		}
		r.Wait(interval)
		r.Has(lastSeen(0, 79, hourAgo), gauge(0, 0), inWindow(0, "", 0))
		seen.are(t, counts{})

		e.become(gpusAt("GPU-0", "GPU-1"))
		e.happen(time.Now(), 119) // not in the kernel log
		reported := time.Now()
		r.Wait(interval)
		r.Has(lastSeen(0, 79, hourAgo), lastSeen(1, 79, hourAgo), lastSeen(0, 119, reported))
		seen.are(t, counts{})

		log.happen(time.Now(), 79)
		again := time.Now()
		r.Wait(interval)
		r.Has(lastSeen(0, 79, again), lastSeen(1, 79, hourAgo))
		seen.are(t, counts{"79": 1})
	})
}

// Details of XIDs, and SXIDs, are counted from the kernel log. The number of series is bounded.
func TestDetails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := readLog()
		r := start(t, newEngine().Open, func(o *loop.Options) {
			families(xidTotalFamily, detailFamily, sxidFamily, sxidSeen)(o)
			o.KernelLog = log
		})
		holds := func(family string, sum int64, series int) {
			t.Helper()
			got := int64(0)
			for _, line := range r.Lines(family) {
				n, err := strconv.ParseInt(line[strings.LastIndex(line, " ")+1:], 10, 64)
				if err != nil {
					t.Fatalf("line %q: value is not an integer: %v", line, err)
				}
				got, series = got+n, series-1
			}
			if got != sum || series != 0 {
				t.Errorf("%s: sum = %d, want %d; missing series = %d, want 0", family, got, sum, series)
			}
		}
		detail := func(code int64, d gpu.XIDDetail) {
			log.report(gpu.XID{PCIBusID: "00000000:1B:00.0", Code: code, Time: time.Now().UnixNano(), Detail: d})
		}
		link := gpu.XIDDetail{Unit: "NETIR_LINK_EVT", SubCode: "4", Link: "8", Severity: "fatal"}
		detail(149, link)
		detail(149, link)
		detail(149, gpu.XIDDetail{Unit: "NETIR", SubCode: "0", Severity: "fatal"})
		detail(154, gpu.XIDDetail{Action: "gpu_reset"})
		detail(145, gpu.XIDDetail{}) // details that could not be parsed
		at := time.Now().Add(-time.Hour)
		sxid := func(of uint32, code int64, severity, link string) gpu.XID {
			d := gpu.XIDDetail{Severity: severity, Link: link}
			return gpu.XID{OnSwitch: true, Switch: of, Code: code, Detail: d, Time: at.UnixNano()}
		}
		past, other := sxid(3, 20034, "fatal", "30"), sxid(2, 20034, "fatal", "")
		for _, x := range []*gpu.XID{&past, &other} {
			x.Time, x.Past = at.Add(-time.Hour).UnixNano(), true
		}
		log.report(sxid(3, 20034, "fatal", "30"), sxid(0, 10004, "nonfatal", ""), past, other)
		r.Wait(interval)
		const of3 = "{-1}[{nvswitch nvswitch3} {sxid 20034} {severity fatal} {link 30}] "
		const of2 = "{-1}[{nvswitch nvswitch2} {sxid 20034} {severity fatal}] "
		r.Has(fmt.Sprint(sxidSeen, of3, float64(at.Unix())),
			fmt.Sprint(sxidSeen, of2, float64(at.Add(-time.Hour).Unix())),
			sxidFamily+of2+"0", sxidFamily+of3+"1")
		r.Has(detailFamily+"{0}[{xid 149} {unit NETIR} {subcode 0} {severity fatal}] 1",
			detailFamily+"{0}[{xid 149} {unit NETIR_LINK_EVT} {subcode 4} {link 8} {severity fatal}] 2",
			detailFamily+"{0}[{xid 154} {action gpu_reset}] 1",
			sxidFamily+"{-1}[{nvswitch nvswitch0} {sxid 10004} {severity nonfatal}] 1",
			total(0, 145, 1))
		holds(detailFamily, 4, 3)
		for n := range 1000 {
			link.Link = strconv.Itoa(n)
			detail(149, link)
			log.report(sxid(uint32(n%200), int64(1+n), "fatal", ""))
		}
		r.Wait(interval)
		holds(detailFamily, 1004, 129)
		holds(sxidFamily, 1002, 129)
		r.Has(sxidFamily + "{-1}[{sxid other}] 875")
	})
}
