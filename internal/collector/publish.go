package collector

import (
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

// snapshotIntervals is for how many intervals a page may be served without another one, beside the time of driver calls.
const snapshotIntervals = snapshot.MaxAgeIntervals

// minValid bounds the time of a page from below: a busy machine is no stalled collection.
const minValid = 5 * time.Second

// validFor is for how long a page may be served. The Loop publishes on every interval, or a read timeout later why not.
func (o *Options) validFor() time.Duration {
	return max(minValid, snapshotIntervals*o.Plan.Interval+2*o.readTimeout())
}

// publish hands over a snapshot. A page after the limit of the one before it counts as a failure: meanwhile there was none.
func (l *Loop) publish(s *gpu.Snapshot) {
	s.ValidFor = l.opt.validFor()
	l.opt.Publish(s)
	now := time.Now()
	if beyond := now.Sub(l.valid); !l.valid.IsZero() && beyond > 0 {
		l.metrics.failures.WithLabelValues(stagePublish, gpu.Reason(gpu.ErrStalled)).Inc()
		l.opt.Log.Error("The collection was stalled", "beyond_limit", beyond.Round(time.Millisecond))
	}
	l.valid = now.Add(s.ValidFor)
}

// fail publishes a page without data that says why, and counts that.
func (l *Loop) fail(stage string, err error) {
	l.metrics.failures.WithLabelValues(stage, gpu.Reason(err)).Inc()
	changed := gpu.Reason(l.lastErr) != gpu.Reason(err)
	l.lastErr = err
	l.publishEmpty(err)
	l.ready.Store(true)
	if changed {
		l.opt.Log.Warn("No data", append([]any{"stage", stage, "reason", gpu.Reason(err)}, withStack(err)...)...)
	}
}

// publishEmpty publishes a page without data that says why.
func (l *Loop) publishEmpty(err error) {
	l.metrics.fails(gpu.Reason(err))
	l.publish(&gpu.Snapshot{Time: time.Now(), Health: gpu.Health{Err: err}})
}
