package collector

import (
	"errors"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

// snapshotIntervals is for how many intervals a page may be served without another one, beside what
// driver calls may take.
const snapshotIntervals = snapshot.MaxAgeIntervals

// minValid bounds the time of a page from below: a busy machine is no stalled collection.
const minValid = 5 * time.Second

// validFor is for how long a page may be served. The Loop publishes on every interval, or says at
// the latest a read timeout later why it cannot.
func (o *Options) validFor() time.Duration {
	return max(minValid, snapshotIntervals*o.Plan.Interval+2*o.readTimeout())
}

// publish hands over a snapshot, and reports whether it became a page. A panic of the publisher
// costs this page alone.
func (l *Loop) publish(s *gpu.Snapshot) bool {
	s.ValidFor = l.opt.validFor()
	err := gpu.Protect(func() error {
		l.opt.Publish(s)
		return nil
	})
	if err == nil {
		l.unpublished = false
		return true
	}
	l.metrics.failures.WithLabelValues(stagePublish, gpu.Reason(err)).Inc()
	l.metrics.fails(gpu.Reason(err))
	if !l.unpublished {
		l.opt.Log.Error("A page could not be made", withStack(err)...)
	}
	l.unpublished = true
	return false
}

// fail publishes a page without data that says why, and counts that.
func (l *Loop) fail(stage string, err error) {
	l.metrics.failures.WithLabelValues(stage, gpu.Reason(err)).Inc()
	if l.lastErr == nil || gpu.Reason(l.lastErr) != gpu.Reason(err) {
		l.opt.Log.Warn("No data", append([]any{"stage", stage, "reason", gpu.Reason(err)}, withStack(err)...)...)
	}
	l.lastErr = err
	l.publishEmpty(err)
	l.ready.Store(true)
}

// publishEmpty publishes a page without data that says why.
func (l *Loop) publishEmpty(err error) {
	l.metrics.fails(gpu.Reason(err))
	l.empty = gpu.Snapshot{Time: time.Now(), Health: gpu.Health{Err: err}}
	l.publish(&l.empty)
}

// Stalled notes that nothing was published for longer than the ValidFor of the latest snapshot. The
// caller publishes the exporter's own series meanwhile; the next cycle ends this state. It may be
// called on any goroutine.
func (l *Loop) Stalled() {
	l.metrics.failures.WithLabelValues(stagePublish, gpu.Reason(gpu.ErrStalled)).Inc()
	l.metrics.fails(gpu.Reason(gpu.ErrStalled))
}

// withStack returns the attributes of an error, for the log.
func withStack(err error) []any {
	var p *gpu.Panic
	if errors.As(err, &p) {
		return []any{"error", err, "stack", string(p.Stack)}
	}
	return []any{"error", err}
}
