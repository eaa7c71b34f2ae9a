package events_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/loop"
)

// A session can announce that it reads its XIDs from the beginning again.
func TestXIDsRepeatedWithinASession(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start(families(xidTotalFamily))
		r.happen(time.Now(), 62, 45, 45)
		r.Wait(interval)
		r.do(func() {
			r.session.next = 0
			r.read = func(b *gpu.Batch) error {
				b.XIDsRepeat = len(b.XIDs) > 0
				return nil
			}
		})
		r.happen(time.Now(), 31)
		r.counted(counts{"62": 1, "45": 2, "31": 1})
	})
}

// An XID with a date in the future was dated by a wrong clock, or the clock was set back since. It is counted with
// the time at which it was read.
func TestXIDsOfTheFuture(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start(families(xidTotalFamily, xidCountFamily, seenFamily))
		for n := range 3 {
			r.happen(time.Now().Add(time.Hour), 31)
			r.happen(time.Now().Add(interval+4*time.Second), 62) // slightly later than the Read
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
			bubble(t, func(t *testing.T, r *rig) {
				begin := time.Now()
				r.start(families(xidCountFamily, xidTotalFamily, seenFamily), r.withClock, owned(func() *gpu.Owners {
					return ofPod(time.Since(begin) >= interval)
				}))
				last := func(code int) {
					t.Helper()
					r.Has(lastSeen(0, code, r.now().Add(-interval)))
				}
				r.happen(r.now(), 31)
				r.counted(counts{"31 pod=false": 1})
				r.Wait(interval) // the other pod owns the GPU for a while
				r.happen(r.now(), 45)
				r.counted(counts{"31 pod=false": 1, "45 pod=true": 1})
				last(45)
				r.happen(r.now(), 31) // this date comes from the clock before it was set
				r.set.Store(int64(by))
				r.counted(counts{"31 pod=false": 1, "31 pod=true": 1, "45 pod=true": 1})
				r.happen(r.now(), 45, 31)
				r.counted(counts{"31 pod=false": 1, "31 pod=true": 2, "45 pod=true": 2})
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
	bubble(t, func(t *testing.T, r *rig) {
		r.start(families(xidTotalFamily))
		r.happen(time.Now(), 0, -1, gpu.MaxXID+1, 1<<40, gpu.MaxXID)
		r.counted(counts{"10000": 1})
		r.Metric("dcgm_exporter_events_dropped_total{reason=out_of_range,what=xid} 4")
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
	const count = clockCountFamily + "{0}[{window_size_in_ms 300000}"
	for name, every := range map[string]time.Duration{
		"a new sample in every Read": 0, "every interval": interval,
		"every second": time.Second, "every 300 ms": 300 * time.Millisecond,
		"every interval and 9 ms":    interval + 9*time.Millisecond,
		"9 ms before every interval": interval - 9*time.Millisecond,
	} {
		bubble(t, func(t *testing.T, r *rig) {
			requested := clockFamilies(clockCountFamily)
			if every < interval {
				requested = clockFamilies(clockCountFamily, clockTotalFamily)
			}
			begin, next := time.Now(), every
			r.start(requested)
			var pages []string
			for range 60 {
				end := time.Since(begin) + interval
				for ; every > 0 && next < end; next += every {
					r.sample(begin.Add(next), reason(next))
				}
				if every == 0 {
					r.sample(begin.Add(end), reason(end))
				}
				r.Wait(interval)
				pages = append(pages, r.Lines(clockCountFamily)...)
			}
			const highest = count + " {clock_event power_cap}] "
			if !slices.Contains(pages, highest+"8") || slices.Contains(pages, highest+"9") ||
				pages[len(pages)-1] != count+"] 0" {
				t.Errorf("%s: pages = %v, want 8 as the highest value, and 0 at the end", name, pages)
			}
		})
	}
}

// Clock events in the window are counted with the interval of the watch group. A reload takes effect immediately.
func TestWindowUsesIntervalOfGroup(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start(clockFamilies(clockCountFamily, clockTotalFamily), func(o *loop.Options) {
			o.Plan.Derived[0].Interval = 6 * interval
		})
		const count = clockCountFamily + "{0}[{window_size_in_ms 300000} {clock_event power_cap}] "
		throttled := func(intervals int, want string) {
			t.Helper()
			time.Sleep(interval / 100) // no sample at the time of a Read
			for range intervals {
				for range 10 {
					time.Sleep(interval / 10) // fake clock of the bubble
					r.sample(time.Now(), 4)
				}
				synctest.Wait()
			}
			r.Has(count + want)
		}
		throttled(100, "5")
		plan := *r.Settings.Plan
		plan.Derived = []gpu.Derived{{Name: clockCountFamily, HasField: true}}
		r.Reload(collector.Settings{Source: r.Settings.Source, Plan: &plan})
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
			bubble(t, func(t *testing.T, r *rig) {
				r.read = func(b *gpu.Batch) error {
					if len(b.XIDs) == 0 {
						return nil
					}
					if test.end != nil {
						r.session.err = test.end
						close(r.session.done)
					}
					return test.read
				}
				r.start(families(xidTotalFamily))
				r.Wait(interval / 2)
				r.happen(time.Now(), 79, 79)
				r.Wait(interval)
				r.counted(counts{"79": 2})
			})
		})
	}
}

// A reload reads the old session once more, and reads the new one before adopting it. XIDs between these Reads are
// counted once.
func TestXIDsDuringAReload(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		reads := 0
		r.read = func(*gpu.Batch) error {
			reads++
			now := time.Now() // right after the Read
			r.xids = append(r.xids, gpu.XID{Code: 31, ID: now.UnixMicro(), Time: now.UnixNano()})
			r.mu.Unlock()
			time.Sleep(interval / 100) // fake clock of the bubble
			r.mu.Lock()
			return nil
		}
		r.start(families(xidTotalFamily, xidCountFamily))
		r.Wait(interval / 2)
		r.Reload(r.Settings)
		r.Wait(interval / 4)
		r.do(func() {
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
	bubble(t, func(t *testing.T, r *rig) {
		r.keeps = true
		r.start(families(xidTotalFamily))
		begin := time.Now()
		r.happen(begin, 79, 79, 31)
		r.happen(begin.Add(500*time.Millisecond), 79)
		r.counted(counts{"79": 3, "31": 1})

		for _, shift := range []time.Duration{time.Microsecond, -time.Second, 2 * time.Second} {
			r.do(func() { r.xids = nil })
			r.happen(begin.Add(shift), 79, 79, 31)
			r.happen(begin.Add(500*time.Millisecond+shift), 79)
			r.Reload(r.Settings)
			r.counted(counts{"79": 3, "31": 1})
		}
		r.do(func() { r.xids, r.session.next = nil, 6 }) // only the next session reads them
		r.happen(begin, 79, 79, 79, 31)                  // one more with the same time
		r.happen(begin.Add(-2001*time.Millisecond), 31)  // too far from the other one
		r.happen(begin.Add(500*time.Millisecond), 79)
		r.Reload(r.Settings)
		r.counted(counts{"79": 4, "31": 2})
	})
}

// XIDs from before the process started update the timestamp and the window, but not the total. Otherwise increase()
// would count them again after every restart.
func TestXIDsFromBeforeTheProcess(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.keeps = true
		old := time.Now()
		r.happen(old, 79)
		time.Sleep(time.Minute)
		r.start(families(xidTotalFamily, xidCountFamily, seenFamily), func(o *loop.Options) { o.Start = time.Now() })
		r.counted(counts{})
		r.Has(gauge(0, 79), inWindow(0, "{xid 79}", 1), lastSeen(0, 79, old))
		r.happen(time.Now(), 79)
		r.counted(counts{"79": 1})
		r.Reload(r.Settings)
		r.counted(counts{"79": 1})
	})
}

// XIDs are counted even if they are the first field of the plan.
func TestXIDsOfTheFirstField(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start(func(o *loop.Options) {
			derived(0, []string{xidTotalFamily, xidCountFamily})(o)
			o.Plan.Fields, o.Plan.Counters = o.Plan.Fields[1:], nil
		})
		r.happen(time.Now(), 62)
		r.Wait(interval)
		r.Has(total(0, 62, 1), inWindow(0, "{xid 62}", 1))
	})
}

// After the clock is set back, the XIDs from before are in the future. The gauge shows the newest of the other XIDs.
func TestNewestXIDAfterAClockIsSetBack(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start(families(xidTotalFamily), r.withClock)
		for _, code := range []int64{62, 31} {
			r.happen(r.now(), code)
			r.Wait(interval)
			r.Has(gauge(0, code))
			r.set.Store(-int64(time.Hour))
		}
	})
}

// The counts of 256 GPUs are kept. Beyond that, the GPU that has been absent longest is forgotten.
func TestGPUsThatAreForgotten(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		name := func(n int) string { return fmt.Sprintf("GPU-%03d", n) }
		r.topology = gpusAt(name(0))
		r.start(families(xidTotalFamily))
		for n := range 257 {
			if n > 0 {
				r.become(gpusAt(name(n)))
			}
			r.happen(time.Now(), 79)
			r.Wait(interval)
		}
		r.become(gpusAt(name(0), name(1), name(256)))
		r.Has(total(0, 79, 0), total(1, 79, 1), total(2, 79, 1))
		var many []string
		for n := range 300 {
			many = append(many, name(n))
		}
		r.become(gpusAt(many...))
		r.Has(total(256, 79, 1), total(299, 79, 0))
	})
}

// The exporter keeps a bounded number of series, whatever XIDs arrive and however many owners there are. Their sum
// remains the number of XIDs.
func TestEventsAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		const cycles, each = 200, 20
		random := rand.New(rand.NewPCG(1, 2))
		type size struct{ series, sum int64 }
		var latest atomic.Pointer[map[string]size] // by family
		pod := 0
		newPod := owned(func() *gpu.Owners {
			pod++
			return ofPod(pod)
		})
		r.Rig = start(t, r.Open, families(xidTotalFamily, xidCountFamily), newPod, func(o *loop.Options) {
			o.Publish = func(s *gpu.Snapshot) {
				sizes := map[string]size{}
				for _, f := range s.Families {
					for _, x := range f.Series {
						n, _ := x.Value.Int64()
						sizes[f.Name] = size{sizes[f.Name].series + 1, sizes[f.Name].sum + n}
					}
				}
				latest.Store(&sizes)
			}
		})
		of := func(family string) size { return (*latest.Load())[family] }
		heap := func() int64 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		r.Wait(40 * interval)
		alerts := int64(len(catalog.AlertXIDs()))
		if n := of(xidTotalFamily).series; n != alerts {
			t.Errorf("series without XIDs = %d, want the %d that alerts use, for the current owner", n, alerts)
		}
		for range cycles {
			at := time.Now()
			for range each {
				at = at.Add(time.Second / 5)
				r.happen(at, 1+random.Int64N(gpu.MaxXID-1))
			}
			r.Wait(interval)
		}
		most := int64(5 * time.Minute / interval * each)
		if n := of(xidCountFamily).sum; n == 0 || n > most {
			t.Errorf("XIDs in the window = %d, want 1 to %d", n, most)
		}
		before := heap()
		r.Wait(2000 * interval) // owners keep changing
		grown := heap() - before
		total := of(xidTotalFamily)
		if total.sum != cycles*each {
			t.Errorf("XIDs counted = %d, want %d", total.sum, cycles*each)
		}
		if total.series > 33*65 { // owners including "no owner", times XIDs including "other"
			t.Errorf("series = %d, want at most %d", total.series, 33*65)
		}
		if grown > 64<<10 {
			t.Errorf("memory grew by %d bytes, want at most %d", grown, 64<<10)
		}
	})
}

// A clock event is counted when it starts. Its seconds are counted only between consecutive samples that both show
// it, not over a gap.
func TestClockEventsByEdgesAndSeconds(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		const powerCap, thermal = 0x4, 0x20 // nvmlClocksEventReason…
		begin := time.Now()
		at := func(seconds, mask int64) { r.sample(begin.Add(time.Duration(seconds)*time.Second), mask) }
		r.start(clockFamilies(clockTotalFamily, clockSecondsFamily))
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

// While the kernel log is read, it is the source of XIDs, and the engine's reports for that period are ignored.
// Before and afterwards, the engine is the source.
func TestKernelLogIsSourceWhileRead(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.keeps, r.logSince = true, time.Time{}
		r.start(families(xidTotalFamily, xidCountFamily), r.withLog(true))
		r.happen(time.Now(), 48)
		r.counted(counts{"48": 1})

		time.Sleep(time.Second)
		r.readLog(time.Now())
		time.Sleep(time.Second)
		before := time.Now().Add(-2 * time.Second)
		r.happen(time.Now(), 31, 31, 13) // the kernel log does not have XID 13
		for _, code := range []int64{31, 31, 79} {
			r.log(onBus("1b", code, time.Now()))
		}
		r.happen(before, 62) // it happened before the kernel log was read, and is reported late
		r.counted(counts{"48": 1, "31": 2, "79": 1, "62": 1})
		r.Has(gauge(0, 79), inWindow(0, "{xid 31}", 2), inWindow(0, "{xid 79}", 1))
		r.Reload(r.Settings) // the engine reports all XIDs again
		r.counted(counts{"48": 1, "31": 2, "79": 1, "62": 1})

		r.readLog(time.Time{})
		r.Wait(interval)
		r.happen(time.Now(), 79)
		r.counted(counts{"48": 1, "31": 2, "79": 2, "62": 1})

		r.readLog(time.Now())
		r.Wait(interval)
		r.happen(time.Now(), 13)
		time.Sleep(time.Second)
		r.readLog(time.Now()) // it failed and was opened again since the last Read
		r.counted(counts{"48": 1, "31": 2, "79": 2, "62": 1, "13": 1})
	})
}

// NVML reports XIDs while DCGM is unavailable. When DCGM returns, it reports the XIDs of that period under other IDs,
// and some that NVML did not report.
func TestEngineReturns(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		driver := newEngine()
		r.keeps, driver.topology.Source = true, "nvml"
		r.start(families(xidTotalFamily))
		r.happen(time.Now(), 31)
		r.counted(counts{"31": 1})
		r.Reload(collector.Settings{Source: collector.SourceOf(driver.Open), Plan: r.Settings.Plan})
		for i := range 2 * 60 { // longer than the window
			r.Wait(interval)
			if i%20 > 0 {
				continue
			}
			now := time.Now()
			driver.add(gpu.XID{Code: 31, ID: int64(i + 1), Time: now.UnixNano()})
			r.happen(now, 31)
		}
		r.counted(counts{"31": 7})
		time.Sleep(interval / 2)
		r.Reload(r.Settings)
		r.happen(time.Now().Add(time.Second), 62)
		r.counted(counts{"31": 7, "62": 1})
	})
}

// An XID from before the start updates the timestamp and is not counted. Its GPU may appear later. The engine's
// reports update the timestamp as well, even for the period in which the kernel log is read.
func TestXIDsFromBeforeStart(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start(families(xidTotalFamily, xidCountFamily, seenFamily), r.withLog(true))
		hourAgo := time.Now().Add(-time.Hour)
		for _, bus := range []string{"1B", "1C"} {
			x := onBus(bus, 79, hourAgo)
			x.Past = true
			r.log(x)
		}
		r.counted(counts{})
		r.Has(lastSeen(0, 79, hourAgo), gauge(0, 0), inWindow(0, "", 0))

		r.become(gpusAt("GPU-0", "GPU-1"))
		r.happen(time.Now(), 119) // not in the kernel log
		reported := time.Now()
		r.counted(counts{})
		r.Has(lastSeen(0, 79, hourAgo), lastSeen(1, 79, hourAgo), lastSeen(0, 119, reported))

		again := time.Now()
		r.log(onBus("1b", 79, again))
		r.counted(counts{"79": 1})
		r.Has(lastSeen(0, 79, again), lastSeen(1, 79, hourAgo))
	})
}

// Details of XIDs, and SXIDs, are counted from the kernel log. The number of series is bounded.
func TestDetails(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start(families(xidTotalFamily, detailFamily, sxidFamily, sxidSeen), r.withLog(true))
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
			x := onBus("1B", code, time.Now())
			x.Detail = d
			r.log(x)
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
		r.log(sxid(3, 20034, "fatal", "30"), sxid(0, 10004, "nonfatal", ""), past, other)
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
			r.log(sxid(uint32(n%200), int64(1+n), "fatal", ""))
		}
		r.Wait(interval)
		holds(detailFamily, 1004, 129)
		holds(sxidFamily, 1002, 129)
		r.Has(sxidFamily + "{-1}[{sxid other}] 875")
	})
}
