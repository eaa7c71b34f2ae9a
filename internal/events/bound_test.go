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
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/loop"
)

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
		r.Stop()
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
