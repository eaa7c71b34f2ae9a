package collector_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A clock event counts when it begins, and for as long as two samples follow
// one another; over a gap nobody knows.
func TestClockEventsByEdgesAndSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const powerCap, thermal = 0x4, 0x20 // nvmlClocksEventReason…
		begin := time.Now()
		var lock sync.Mutex // the loop's worker reads what the test tells
		var told []gpu.Sample
		at := func(seconds, mask int64) {
			lock.Lock()
			defer lock.Unlock()
			told = append(told, gpu.Sample{Field: 1, Value: gpu.Int(mask), Time: begin.Add(time.Duration(seconds) * time.Second).UnixNano()})
		}
		source := &fake{gpus: 1, read: func(_ context.Context, b *gpu.Batch) error {
			b.Add(0, 0, gpu.Int(1), time.Now())
			lock.Lock()
			defer lock.Unlock()
			b.Samples = append(b.Samples, told...)
			told = nil
			return nil
		}}
		r := start(t, source, func(o *collector.Options) {
			o.Plan.Fields[1] = gpu.Field{ID: 112, Name: "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", Levels: gpuOnly, Max: 1 << 32, Events: true}
			o.Plan.Derived = []gpu.Derived{
				{Name: "DCGM_EXP_CLOCK_EVENTS_TOTAL", Type: gpu.MetricCounter, Field: 1},
				{Name: "DCGM_EXP_CLOCK_EVENT_SECONDS_TOTAL", Type: gpu.MetricCounter, Field: 1},
			}
		})
		step := func(wanted ...string) {
			t.Helper()
			r.wait(interval)
			r.has(wanted...)
		}
		const count, seconds = "DCGM_EXP_CLOCK_EVENTS_TOTAL{0}[{clock_event ", "DCGM_EXP_CLOCK_EVENT_SECONDS_TOTAL{0}[{clock_event "
		at(1, 0)
		step(count+"power_cap}] 0", seconds+"power_cap}] 0", count+"sw_thermal}] 0")
		at(11, powerCap) // begins
		at(13, powerCap|thermal)
		at(14, thermal) // ends, after 3 s
		at(15, powerCap)
		step(count+"power_cap}] 2", seconds+"power_cap}] 3", count+"sw_thermal}] 1", seconds+"sw_thermal}] 2")
		step(count+"power_cap}] 2", seconds+"power_cap}] 3") // nothing new was told
		at(29, 0)
		step(count+"power_cap}] 2", seconds+"power_cap}] 17")
		at(35, thermal)
		step(count + "sw_thermal}] 2")
		r.wait(4 * interval)
		at(75, 0) // 40 s later: more than three intervals
		step(seconds+"sw_thermal}] 2", count+"sw_thermal}] 2")
		at(14, powerCap) // told again
		step(count+"power_cap}] 2", seconds+"power_cap}] 17")
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
	})
}
