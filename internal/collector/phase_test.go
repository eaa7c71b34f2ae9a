package collector_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// If the engine samples as often as the loop reads, the reads shift until each closely follows a sample, whatever the
// initial phase.
func TestReadsFollowSamples(t *testing.T) {
	for _, at := range []time.Duration{interval / 100, interval / 3, interval / 2, interval - time.Millisecond} {
		t.Run(at.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				var ages []time.Duration
				var reads []time.Time
				f := &fake{gpus: 2, read: func(_ context.Context, b *gpu.Batch) error {
					now := time.Now()
					sampled := begin.Add(-interval + at + now.Sub(begin).Truncate(interval))
					if next := sampled.Add(interval); !next.After(now) {
						sampled = next
					}
					ages, reads = append(ages, now.Sub(sampled)), append(reads, now)
					b.Add(0, 0, gpu.Int(1), sampled)
					b.Add(1, 0, gpu.Int(1), sampled)
					return nil
				}}
				r := start(t, f, nil)
				r.Wait(20 * interval)
				r.Stop()
				if len(reads) < 19 || len(reads) > 22 {
					t.Errorf("reads in 20 intervals = %d, want 19 to 22", len(reads))
				}
				for i, age := range ages[2:20] { // the rig ends with an extra cycle
					if age > interval/10 {
						t.Errorf("read %d: sample is %v old, want less than a tenth of %v", i+2, age, interval)
					}
				}
			})
		})
	}
}

// If no read can closely follow the samples, the shifts become less and less frequent.
func TestReadsOfEngineWithoutPhase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		f := &fake{gpus: 2, read: func(_ context.Context, b *gpu.Batch) error {
			reads++
			b.Add(0, 0, gpu.Int(1), time.Now())
			b.Add(1, 0, gpu.Int(1), time.Now().Add(-interval/2))
			return nil
		}}
		r := start(t, f, nil)
		r.Wait(200 * interval)
		r.Stop()
		if reads > 206 {
			t.Errorf("reads in 200 intervals = %d, want at most 206", reads)
		}
	})
}
