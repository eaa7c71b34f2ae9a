package events_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/events"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/loop"
)

// Whatever XIDs come, of however many owners, an exporter keeps so much of them and no more, and
// the sum stays the number of events.
func TestEventsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const cycles, each = 200, 20
		random := rand.New(rand.NewPCG(1, 2))
		e, log := newEngine(), &witness{}
		var mu sync.Mutex
		var series, total, windowed int64
		pod := 0
		r := start(t, e.Open, func(o *loop.Options) {
			families(xidTotalFamily, xidCountFamily)(o)
			o.KernelLog = log
			o.Attributors = []collector.Attributor{pods(func() *gpu.Owners {
				pod++
				return &gpu.Owners{Labels: [][]gpu.Label{{{Name: "pod", Value: strconv.Itoa(pod)}}}}
			})}
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
		r.wait(40 * interval)
		mu.Lock()
		if alerts := int64(len(catalog.AlertXIDs())); series != alerts {
			t.Errorf("%d series where nothing happened, want the %d that alerts name, of the present owner", series, alerts)
		}
		mu.Unlock()
		for range cycles {
			at := time.Now()
			for range each {
				at = at.Add(time.Second / 5)
				code := 1 + random.Int64N(gpu.MaxXID-1) // by its parity of one source, since one XID of both would be one
				if code%2 == 0 {
					e.happen(at, code)
				} else {
					log.report(gpu.XID{PCIBusID: "00000000:1b:00.0", Code: code, Time: at.UnixNano()})
				}
			}
			r.wait(interval)
		}
		mu.Lock()
		if most := int64(5 * time.Minute / interval * each); windowed == 0 || windowed > most {
			t.Errorf("%d in the window, want the engine's part of %d", windowed, most)
		}
		mu.Unlock()
		before := heap()
		r.wait(2000 * interval) // owners go on changing
		grown := heap() - before
		r.stop()
		mu.Lock()
		defer mu.Unlock()
		if total != cycles*each {
			t.Errorf("%d counted of %d", total, cycles*each)
		}
		if series > 33*65 { // owners, none among them, and XIDs, the others among them
			t.Errorf("%d series", series)
		}
		if grown > 64<<10 {
			t.Errorf("%d bytes more after a long time", grown)
		}
	})
}

// A node of GPUs with owners, whose XIDs and clock events are counted, costs no memory per cycle
// once it was read: the clock events change all the time.
func TestCountingCostsNoMemory(t *testing.T) {
	for name, log := range map[string]events.KernelLog{"by the engine": nil, "by the kernel's log too": &witness{}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, n := newEngine(), int64(0)
				var uuids []string
				for i := range 16 {
					uuids = append(uuids, fmt.Sprint("GPU-", i))
				}
				e.topology = gpusAt(uuids...)
				e.happen(time.Now(), 48)
				e.read = func(b *gpu.Batch) error {
					n++
					for row := range 16 {
						for i := range 10 {
							b.Add(row, 2, gpu.Int(n&4+int64(i)&32), time.Now().Add(time.Duration(i-10)*time.Second))
						}
					}
					return nil
				}
				held := &gpu.Owners{Labels: make([][]gpu.Label, 16)}
				for row := range held.Labels {
					held.Labels[row] = []gpu.Label{{Name: "pod", Value: strconv.Itoa(row)}}
				}
				r := start(t, e.Open, func(o *loop.Options) {
					families(xidTotalFamily, "DCGM_EXP_XID_LAST_SEEN_TIMESTAMP_SECONDS")(o)
					o.Plan.Fields = append(o.Plan.Fields, gpu.Field{ID: 112, Name: "REASONS", Levels: gpuOnly, Max: 1 << 32, Every: true})
					for _, name := range []string{clockTotalFamily, clockSecondsFamily} {
						o.Plan.Derived = append(o.Plan.Derived, gpu.Derived{Name: name, Field: 2})
					}
					o.KernelLog = log
					o.Attributors = []collector.Attributor{pods(func() *gpu.Owners { return held })}
					o.Publish = func(*gpu.Snapshot) {}
				})
				r.wait(interval)
				few := testing.AllocsPerRun(20, func() { r.wait(interval) })
				r.wait(100 * interval)
				many := testing.AllocsPerRun(20, func() { r.wait(interval) })
				if few > 60 || many > few+2 {
					t.Errorf("%v allocations a cycle, later %v", few, many)
				}
				r.stop()
			})
		})
	}
}
