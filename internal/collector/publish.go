package collector

import (
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

// snapshotIntervals is the number of intervals for which a page may be served without a replacement. The time of driver
// calls is added.
const snapshotIntervals = snapshot.MaxAgeIntervals

// minValid is the minimum validity of a page, so that a busy machine does not count as a stalled collection.
const minValid = 5 * time.Second

// validFor returns how long a page may be served. The Loop publishes on every interval, or reports a failure one read
// timeout later.
func (o *Options) validFor() time.Duration {
	return max(minValid, snapshotIntervals*o.Plan.ReadInterval()+2*o.readTimeout())
}

// publish publishes a snapshot. It counts a failure if the previous page had already expired.
func (l *Loop) publish(s *gpu.Snapshot) {
	s.ValidFor = l.opt.validFor()
	l.opt.Publish(s)
	now := time.Now()
	if beyond := now.Sub(l.valid); !l.valid.IsZero() && beyond > 0 {
		l.metrics.failures.WithLabelValues(stagePublish, gpu.Reason(gpu.ErrStalled)).Inc()
		l.opt.Log.Error("Collection stalled: the page expired before the next one was published",
			"expired_for", beyond.Round(time.Millisecond))
	}
	l.valid = now.Add(s.ValidFor)
}

// fail counts a failure and publishes a page without data that gives the reason.
func (l *Loop) fail(stage string, err error) {
	l.metrics.failures.WithLabelValues(stage, gpu.Reason(err)).Inc()
	changed := gpu.Reason(l.lastErr) != gpu.Reason(err)
	l.lastErr = err
	l.publishEmpty(err)
	l.ready.Store(true)
	if changed {
		l.opt.Log.Warn("No data collected", append([]any{"stage", stage, "reason", gpu.Reason(err)}, withStack(err)...)...)
	}
}

// publishEmpty publishes a page without data that gives the reason.
func (l *Loop) publishEmpty(err error) {
	l.metrics.fails(gpu.Reason(err))
	l.publish(&gpu.Snapshot{Time: time.Now(), Health: gpu.Health{Err: err}})
}
