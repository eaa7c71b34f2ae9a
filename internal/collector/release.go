package collector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// commandLimit is how long Release and the commands of profiling wait for a driver that is busy. A
// call under way cannot be canceled, and the caller, who may be about to reset a GPU or unload the
// driver, is to learn soon that it is still in use.
const commandLimit = 5 * time.Second

// errAcquired is the reply to a release that an acquire ended before it was done.
var errAcquired = errors.New("the driver was acquired again before it had been released")

// A Profiler is a Session that can release the hardware counters of the profiling fields, of which
// a GPU has one set, so that another profiler can have them. Both methods are called as Read is,
// never concurrently. They return an error that wraps gpu.ErrNotSupported where the source cannot,
// and change nothing where it is as requested already. A session that is opened for a plan with
// ProfilingPaused set is paused from the first.
type Profiler interface {
	PauseProfiling(context.Context) error
	ResumeProfiling(context.Context) error
}

// A release is the state of the driver being released on request. Run owns it.
type release struct {
	on    bool
	until time.Time // zero for no end
	// The callers that wait for every handle to be closed, and for the next attempt to open.
	closed, opened []chan error
}

// extend releases for at least timeout from now, 0 meaning without end.
func (r *release) extend(timeout time.Duration) {
	end := time.Time{}
	if timeout > 0 {
		end = time.Now().Add(timeout)
	}
	if !r.on || !r.until.IsZero() && (end.IsZero() || end.After(r.until)) {
		r.until = end
	}
	r.on = true
}

// timer returns a channel that gets a value when the release ends by itself.
func (r *release) timer() (<-chan time.Time, func() bool) {
	if r.until.IsZero() {
		return nil, func() bool { return false }
	}
	t := time.NewTimer(time.Until(r.until))
	return t.C, t.Stop
}

// ends is the end of the release in words, for the log.
func (r *release) ends() string {
	if r.until.IsZero() {
		return "acquired"
	}
	return r.until.Format(time.RFC3339)
}

// Release closes the session, and lets Run open none until Acquire, or until the timeout has
// passed; a timeout of 0 or less never passes. Pages say gpu.ErrReleased meanwhile. To release
// again extends the timeout, and never shortens it.
//
// It returns nil once every handle is closed, and what the driver said if it did not close cleanly.
// An error that wraps gpu.ErrTimeout means that a driver call did not return within 5 s: the driver
// is released as soon as it does.
func (l *Loop) Release(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, commandLimit,
		fmt.Errorf("%w: the driver is still in use after %v; it is released once the call under way returns", gpu.ErrTimeout, commandLimit))
	defer cancel()
	return l.command(ctx, command{kind: commandRelease, timeout: max(timeout, 0)})
}

// Released reports whether every handle is closed because of Release.
func (l *Loop) Released() bool { return l.isReleased.Load() }

// Acquire ends what Release began, by whichever caller. It returns the error of the attempt to open
// a session; further attempts follow by themselves. Where nothing was released it does nothing.
func (l *Loop) Acquire(ctx context.Context) error {
	return l.command(ctx, command{kind: commandAcquire})
}

// PauseProfiling releases the hardware counters of the profiling fields, in this session and those
// that follow, until ResumeProfiling. Where no session is open it counts from the next one on. The
// error wraps gpu.ErrNotSupported where the source cannot, and gpu.ErrTimeout where the driver is
// busy; then nothing changed.
func (l *Loop) PauseProfiling(ctx context.Context) error {
	return l.commandProfiling(ctx, commandPause)
}

// ResumeProfiling ends what PauseProfiling began.
func (l *Loop) ResumeProfiling(ctx context.Context) error {
	return l.commandProfiling(ctx, commandResume)
}

func (l *Loop) commandProfiling(ctx context.Context, kind commandKind) error {
	ctx, cancel := context.WithTimeoutCause(ctx, commandLimit,
		fmt.Errorf("%w: the driver has been busy for %v", gpu.ErrTimeout, commandLimit))
	defer cancel()
	return l.command(ctx, command{kind: kind})
}

// setProfiling pauses or resumes the profiling of a session.
func setProfiling(ctx context.Context, s Session, pause bool) error {
	p, ok := s.(Profiler)
	if !ok {
		return fmt.Errorf("%w: this source has no profiling counters to release", gpu.ErrNotSupported)
	}
	if pause {
		return p.PauseProfiling(ctx)
	}
	return p.ResumeProfiling(ctx)
}

// pauseOpened makes sure that the profiling of a session that was just opened is paused, and
// reports whether it is. It runs on the worker.
func (l *Loop) pauseOpened(ctx context.Context, s Session) bool {
	err := setProfiling(ctx, s, true)
	if err != nil && !errors.Is(err, gpu.ErrNotSupported) {
		l.opt.Log.Warn("Profiling goes on in the new session, though it was paused", "error", err)
	}
	return err == nil
}

// runReleased closes the session and waits until the release ends, or ctx does, publishing on every
// interval that the driver is released. It returns an error only if Run is over.
func (l *Loop) runReleased(ctx context.Context) error {
	err := l.close(ctx)
	if l.isFinal(ctx, err) {
		return err
	}
	l.setReleased(true)
	defer l.setReleased(false)
	l.lastErr = gpu.ErrReleased
	l.publishReleased()
	l.opt.Log.Info("Driver released", "until", l.release.ends())
	reply(&l.release.closed, err)
	if l.release.on { // acquired and released again, before an attempt to open
		reply(&l.release.opened, gpu.ErrReleased)
	}

	ticker := time.NewTicker(l.opt.Plan.Interval)
	defer ticker.Stop()
	for l.release.on {
		end, stop := l.release.timer()
		what, _ := l.await(ctx, released, ticker.C, end)
		stop()
		switch what {
		case ticked:
			l.publishReleased()
		case expired:
			l.release.on = false
			l.opt.Log.Info("The release has timed out; the driver is acquired again")
		case reloaded:
			ticker.Reset(l.opt.Plan.Interval)
		case canceled:
			return ctx.Err()
		}
	}
	return nil
}

func (l *Loop) setReleased(on bool) {
	l.isReleased.Store(on)
	value := 0.0
	if on {
		value = 1
	}
	l.metrics.released.Set(value)
}

func (l *Loop) publishReleased() {
	l.metrics.failures.WithLabelValues(stageOpen, gpu.Reason(gpu.ErrReleased)).Inc()
	l.publishEmpty(gpu.ErrReleased)
	l.ready.Store(true)
}
