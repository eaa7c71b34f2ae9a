package collector_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/loop"
)

// trailPlan samples a field every 200 ms and shows it in all four ways.
func trailPlan(o *loop.Options) {
	o.Plan = &gpu.Plan{
		Interval: interval,
		Devices:  gpu.Selector{Flex: true},
		Fields: []gpu.Field{
			{ID: 155, Name: "POWER", Levels: gpuOnly, Max: 1000, Every: true, Interval: 200 * time.Millisecond},
			{ID: 203, Name: "UTIL", Levels: gpuOnly, Max: 100},
		},
		Counters: []gpu.Counter{
			{Name: "POWER", Field: 0, Scale: 1},
			{Name: "POWER_MIN", Field: 0, Scale: 1, Aggregate: gpu.Min},
			{Name: "POWER_MAX", Field: 0, Scale: 1, Aggregate: gpu.Max},
			{Name: "POWER_MEAN", Field: 0, Scale: 0.5, Aggregate: gpu.Mean},
			{Name: "UTIL", Field: 1, Scale: 1},
		},
	}
}

func TestAggregates(t *testing.T) {
	const whole = 1<<53 + 1 // no float64 has it
	for name, test := range map[string]struct {
		bounded bool
		values  []gpu.Value // of GPU 0, 200 ms apart, the last now
		want    []string
		absent  []string
	}{
		"a short spike is seen": {true,
			[]gpu.Value{gpu.Int(300), gpu.Int(300), gpu.Int(690), gpu.Int(290), gpu.Int(320)},
			[]string{"POWER{0} 320", "POWER_MIN{0} 290", "POWER_MAX{0} 690", "POWER_MEAN{0} 190"}, nil},
		"one sample is all of them": {true,
			[]gpu.Value{gpu.Float(99.5)},
			[]string{"POWER{0} 99.5", "POWER_MIN{0} 99.5", "POWER_MAX{0} 99.5", "POWER_MEAN{0} 49.75"}, nil},
		"garbage does not count": {true,
			[]gpu.Value{gpu.Int(100), gpu.Int(808334905), gpu.Int(300)},
			[]string{"POWER{0} 300", "POWER_MIN{0} 100", "POWER_MAX{0} 300", "POWER_MEAN{0} 100"}, nil},
		"integers stay exact": {false,
			[]gpu.Value{gpu.Int(whole - 1), gpu.Int(whole), gpu.Int(whole - 1)},
			[]string{"POWER_MIN{0} 9007199254740992", "POWER_MAX{0} 9007199254740993"}, nil},
		"of a mixture the greater": {true,
			[]gpu.Value{gpu.Int(10), gpu.Float(10.5), gpu.Int(9)},
			[]string{"POWER_MIN{0} 9", "POWER_MAX{0} 10.5"}, nil},
		"nothing served is nothing": {true,
			[]gpu.Value{gpu.Int(808334905)},
			[]string{"unavailable{POWER_MAX 0} out_of_range"}, []string{"POWER{0}", "POWER_M"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{gpus: 2}
				f.read = func(_ context.Context, b *gpu.Batch) error {
					for i, v := range test.values {
						b.TrailAt(0, 0, v, time.Now().Add(-200*time.Millisecond*time.Duration(len(test.values)-1-i)).UnixNano())
					}
					b.Samples = append(b.Samples, b.Trails[len(b.Trails)-1])
					b.Add(0, 1, gpu.Int(1), time.Now())
					b.Add(1, 1, gpu.Int(1), time.Now())
					return nil
				}
				r := start(t, f, func(o *loop.Options) {
					trailPlan(o)
					if !test.bounded {
						o.Plan.Fields[0].Min, o.Plan.Fields[0].Max = 1, 0
					}
				})
				for range 2 { // every Read begins again
					r.has(test.want...)
					r.hasNot("POWER_MAX{1}")
					for _, prefix := range test.absent {
						r.hasNot(prefix)
					}
					r.wait(interval)
				}
				r.stop()
			})
		})
	}
}

// The samples of a trail reach back a whole collection interval: they are not stale, and the age of
// what is served is that of the newest.
func TestTrailsAreNotStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{gpus: 1}
		f.read = func(_ context.Context, b *gpu.Batch) error {
			now := time.Now()
			b.TrailAt(0, 0, gpu.Int(700), now.Add(-4*interval).UnixNano()) // this one is
			b.TrailAt(0, 0, gpu.Int(500), now.Add(-interval).UnixNano())
			b.TrailAt(0, 0, gpu.Int(100), now.Add(-time.Second).UnixNano())
			b.Add(0, 0, gpu.Int(100), now.Add(-time.Second))
			b.Add(0, 1, gpu.Int(1), now)
			return nil
		}
		var oldest time.Duration
		r := start(t, f, func(o *loop.Options) {
			trailPlan(o)
			publish := o.Publish
			o.Publish = func(s *gpu.Snapshot) {
				if s.Topology != nil {
					oldest = s.Time.Sub(time.Unix(0, s.Health.Entities[0].OldestSample))
				}
				publish(s)
			}
		})
		r.has("POWER{0} 100", "POWER_MAX{0} 500", "POWER_MIN{0} 100")
		r.stop()
		if oldest != time.Second {
			t.Errorf("the oldest sample served is %v old, want 1s", oldest)
		}
	})
}

// Where nothing was sampled since the previous Read, the newest sample is all there is. A sample
// that is dropped counts once, though it is the newest and in the trail; the one before it is
// served then.
func TestTrailsBesideTheNewest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at time.Time
		garbage := gpu.Int(808334905)
		f := &fake{gpus: 1}
		sampled := func(values ...gpu.Value) func(context.Context, *gpu.Batch) error {
			return func(_ context.Context, b *gpu.Batch) error {
				for i, v := range values {
					b.TrailAt(0, 0, v, at.Add(time.Duration(i-len(values))*time.Millisecond).UnixNano())
				}
				b.Samples = append(b.Samples, b.Trails[len(b.Trails)-1])
				b.Add(0, 1, gpu.Int(1), time.Now())
				return nil
			}
		}
		at = time.Now()
		f.read = sampled(gpu.Int(100), gpu.Int(300))
		r := start(t, f, trailPlan)
		r.has("POWER_MIN{0} 100", "POWER_MAX{0} 300", "POWER_MEAN{0} 100")
		f.set(func() {
			f.read = func(_ context.Context, b *gpu.Batch) error {
				b.Add(0, 0, gpu.Int(300), at)
				b.Add(0, 1, gpu.Int(1), time.Now())
				return nil
			}
		})
		r.wait(interval)
		r.has("POWER{0} 300", "POWER_MIN{0} 300", "POWER_MAX{0} 300", "POWER_MEAN{0} 150")
		at = time.Now()
		f.set(func() { f.read = sampled(garbage, gpu.Int(200), garbage) })
		r.wait(interval)
		r.has("POWER{0} 200", "POWER_MIN{0} 200", "POWER_MAX{0} 200")
		r.hasNot("unavailable{POWER")
		r.metric("dcgm_exporter_samples_dropped_total{reason=out_of_range} 2")
		r.stop()
	})
}
