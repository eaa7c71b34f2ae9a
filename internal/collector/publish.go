package collector

import (
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

// minValid is the minimum validity of a page, so that a busy machine does not count as a stalled collection.
const minValid = 5 * time.Second

// maxAge returns how old a page may get while the driver does not answer.
func (o *Options) maxAge() time.Duration { return snapshot.MaxAgeIntervals * o.Plan.ReadInterval() }

// validFor returns how long a page may be served. The Loop publishes on every interval, or reports a failure one read
// timeout later.
func (o *Options) validFor() time.Duration { return max(minValid, o.maxAge()+2*o.readTimeout()) }

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
	changed := gpu.Reason(l.failure) != gpu.Reason(err)
	l.failure = err
	l.publishEmpty(err)
	l.ready.Store(true)
	if changed {
		about := append([]any{"stage", stage, "reason", gpu.Reason(err)}, withStack(err)...)
		l.opt.Log.Warn("No data collected", about...)
	}
}

// publishEmpty publishes a page without data that gives the reason.
func (l *Loop) publishEmpty(err error) {
	l.served = time.Time{}
	l.metrics.fails(gpu.Reason(err))
	l.publish(&gpu.Snapshot{Time: time.Now(), Health: gpu.Health{Err: err}})
}
