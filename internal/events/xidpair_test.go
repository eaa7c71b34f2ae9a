package events_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/loop"
)

// witness is a kernel's log that a test writes.
type witness struct {
	mu     sync.Mutex
	xids   []gpu.XID
	behind bool // it is not read
}

func (w *witness) Current() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.behind
}

func (w *witness) report(x gpu.XID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.xids = append(w.xids, x)
}

func (w *witness) Drain(into []gpu.XID) []gpu.XID {
	w.mu.Lock()
	defer w.mu.Unlock()
	into = append(into, w.xids...)
	w.xids = nil
	return into
}

// Two sources report the same XIDs, each in its own time: two of one source are two, one of each is
// one.
func TestXIDsOfEngineAndKernel(t *testing.T) {
	// A reported is XIDs that a source reports from a cycle on, dated in seconds.
	type reported struct {
		cycle  int
		kernel bool
		xid    int64
		times  []float64
	}
	const engine, kernel = false, true
	storm := func(n int) (times []float64) {
		for i := range n {
			times = append(times, 1+float64(i)/1000)
		}
		return times
	}
	for name, test := range map[string]struct {
		reported []reported
		want     int64
	}{
		"one each":                                {[]reported{{1, engine, 79, []float64{3}}, {1, kernel, 79, []float64{3.2}}}, 1},
		"the kernel's first":                      {[]reported{{1, kernel, 79, []float64{3}}, {2, engine, 79, []float64{3.2}}}, 1},
		"the engine's first":                      {[]reported{{1, engine, 79, []float64{3}}, {2, kernel, 79, []float64{3.2}}}, 1},
		"the kernel's two cycles later":           {[]reported{{1, engine, 79, []float64{3}}, {3, kernel, 79, []float64{3.2}}}, 1},
		"dates almost too far apart":              {[]reported{{1, engine, 79, []float64{3}}, {1, kernel, 79, []float64{7.9}}}, 1},
		"dates too far apart":                     {[]reported{{1, engine, 79, []float64{3}}, {1, kernel, 79, []float64{8.1}}}, 2},
		"dates too far apart, the other way":      {[]reported{{1, engine, 79, []float64{8.1}}, {1, kernel, 79, []float64{3}}}, 2},
		"dated by the Read that found it":         {[]reported{{1, engine, 79, []float64{10}}, {1, kernel, 79, []float64{1}}}, 1},
		"different XIDs":                          {[]reported{{1, engine, 79, []float64{3}}, {1, kernel, 48, []float64{3}}}, 2},
		"two of the engine":                       {[]reported{{1, engine, 79, []float64{3, 3.5}}}, 2},
		"two of the engine in two cycles":         {[]reported{{1, engine, 79, []float64{9}}, {2, engine, 79, []float64{11}}}, 2},
		"two of the kernel at once":               {[]reported{{1, kernel, 79, []float64{3, 3}}}, 2},
		"two each":                                {[]reported{{1, engine, 79, []float64{3, 4}}, {1, kernel, 79, []float64{3.1, 4.1}}}, 2},
		"two each, in turn":                       {[]reported{{1, engine, 79, []float64{9}}, {1, kernel, 79, []float64{9}}, {2, engine, 79, []float64{11}}, {2, kernel, 79, []float64{11}}}, 2},
		"two of which the engine reported one":    {[]reported{{1, engine, 79, []float64{4}}, {1, kernel, 79, []float64{3, 4}}}, 2},
		"two of which the kernel reported one":    {[]reported{{1, engine, 79, []float64{3, 4}}, {2, kernel, 79, []float64{4}}}, 2},
		"a third between two that wait":           {[]reported{{3, kernel, 79, []float64{1, 29}}, {3, engine, 79, []float64{15}}}, 3},
		"a storm that both report":                {[]reported{{1, kernel, 31, storm(3000)}, {1, engine, 31, storm(3000)}}, 3000},
		"a storm that the engine reports later":   {[]reported{{1, kernel, 31, storm(3000)}, {2, engine, 31, storm(3000)}}, 3000},
		"a storm of which one reports a part":     {[]reported{{1, engine, 31, storm(3000)}, {2, kernel, 31, storm(1000)}}, 3000},
		"a storm of which the other reports more": {[]reported{{1, engine, 31, storm(1000)}, {2, kernel, 31, storm(3000)}}, 3000},
	} {
		{
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					e, log, seen := newEngine(), &witness{}, &figures{}
					begin := time.Now()
					run := func() *rig {
						return start(t, e.Open, func(o *loop.Options) {
							families(xidTotalFamily)(o)
							seen.watch(o)
							o.KernelLog = log
						})
					}
					r := run()
					for cycle := 1; cycle <= 3; cycle++ {
						for _, x := range test.reported {
							if x.cycle != cycle {
								continue
							}
							for _, seconds := range x.times {
								at := begin.Add(time.Duration(seconds * float64(time.Second)))
								if x.kernel == engine && seconds == 10 { // dated by the Read that found it
									e.do(func() {
										e.xids = append(e.xids, gpu.XID{
											Witness: gpu.WitnessDriver, Code: x.xid, ID: 1, Time: at.UnixNano(), Since: begin.UnixNano(),
										})
									})
									continue
								}
								if x.kernel == kernel {
									log.report(gpu.XID{PCIBusID: "00000000:1b:00.0", Code: x.xid, Time: at.UnixNano()})
								} else {
									e.happen(at, x.xid)
								}
							}
						}
						r.wait(interval)
					}
					r.stop()
					sum := int64(0)
					for _, n := range seen.now() {
						sum += n
					}
					if sum != test.want {
						t.Errorf("%d counted, want %d", sum, test.want)
					}
				})
			})
		}
	}
}

// What happens while the kernel's log cannot be read it reports later; the engine has reported it
// long before.
func TestKernelLogThatComesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, log, seen := newEngine(), &witness{behind: true}, &figures{}
		begin := time.Now()
		kernel := func(at time.Time) { log.report(gpu.XID{PCIBusID: "00000000:1b:00.0", Code: 48, Time: at.UnixNano()}) }
		r := start(t, e.Open, func(o *loop.Options) {
			families(xidTotalFamily)(o)
			seen.watch(o)
			o.KernelLog = log
		})
		for i := range 2 {
			e.happen(begin.Add(time.Duration(i)*time.Minute), 48)
			r.wait(time.Minute)
		}
		r.wait(time.Hour)
		log.mu.Lock()
		log.behind = false
		log.mu.Unlock()
		r.wait(interval)
		kernel(begin)
		kernel(begin.Add(20 * time.Second)) // which the engine did not report
		kernel(begin.Add(time.Minute))
		r.wait(interval)
		if got := seen.now()["48"]; got != 3 {
			t.Errorf("%d counted, want 3", got)
		}
		r.stop()
	})
}

// A session of another witness that is opened beside the one that is there reports what happened
// meanwhile too, under IDs of its own.
func TestAnotherWitnessTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, next, seen := newEngine(), newEngine(), &figures{}
		next.keeps = true
		var plan *gpu.Plan
		r := start(t, e.Open, func(o *loop.Options) {
			families(xidTotalFamily, xidCountFamily)(o)
			plan = o.Plan
			seen.watch(o)
		})
		before := time.Now()
		e.happen(before, 31) // before the other session: it has none of it
		r.wait(interval)
		at := time.Now().Add(interval / 2)
		r.wait(interval / 2)
		e.happen(at, 31, 31, 45)
		for i, code := range []int64{31, 31, 31, 45, 62} { // one that the other missed
			next.xids = append(next.xids, gpu.XID{Witness: gpu.WitnessDriver, Code: code, ID: int64(i + 1), Time: at.Add(time.Second).UnixNano(), Since: at.UnixNano()})
		}
		r.reload(collector.Change{Source: collector.SourceOf(next.Open), Plan: plan})
		r.wait(interval)
		if diff := cmp.Diff(map[string]int64{"31": 4, "45": 1, "62": 1}, seen.now()); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		next.do(func() {
			next.xids = append(next.xids, gpu.XID{Witness: gpu.WitnessDriver, Code: 31, ID: 6, Time: time.Now().UnixNano()})
		})
		r.wait(interval)
		if diff := cmp.Diff(map[string]int64{"31": 5, "45": 1, "62": 1}, seen.now()); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		r.stop()
	})
}
