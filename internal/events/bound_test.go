package events_test

import (
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/loop"
)

// Whatever XIDs come, of however many owners, an exporter keeps so much of them and no more, and
// the sum stays the number of events.
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
		r.Wait(40 * interval)
		mu.Lock()
		if alerts := int64(len(catalog.AlertXIDs())); series != alerts {
			t.Errorf("%d series where nothing happened, want the %d that alerts name, of the present owner", series, alerts)
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
			t.Errorf("%d in the window, want %d at most", windowed, most)
		}
		mu.Unlock()
		before := heap()
		r.Wait(2000 * interval) // owners go on changing
		grown := heap() - before
		r.Stop()
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
