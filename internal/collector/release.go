package collector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// orderLimit is how long Release and the orders of profiling wait for a driver
// that is busy. A call under way cannot be cancelled, and whoever wants to
// reset a GPU or unload the driver is to learn soon that it is still held.
const orderLimit = 5 * time.Second

// errTakenBack answers a release that was overruled before it was done.
var errTakenBack = errors.New("the driver was taken back before it had been let go of")

// A Profiler is a Session that can let go of the hardware counters of the
// profiling fields, of which a GPU has one set, so that another profiler can
// have them. Both methods are called as Read is, never concurrently. They
// return an error that wraps gpu.ErrNotSupported where the source cannot, and
// change nothing where it is as asked already. A session that is opened for a
// plan with ProfilingPaused set is paused from the first.
type Profiler interface {
	PauseProfiling(context.Context) error
	ResumeProfiling(context.Context) error
}

// An order is what Release, Acquire and their like ask of Run.
type order struct {
	kind    orderKind
	timeout time.Duration // of a release; 0 for none
	reply   chan error
}

type orderKind uint8

const (
	orderRelease orderKind = iota
	orderAcquire
	orderPause
	orderResume
)

// A hold is the state of having let go of the driver on request. Run owns it.
type hold struct {
	on    bool
	until time.Time // zero for no end
	// Those who wait for every handle to be closed, and for the next attempt
	// to open.
	released, acquired []chan error
}

// extend holds for at least timeout from now, 0 meaning without end.
func (h *hold) extend(timeout time.Duration) {
	end := time.Time{}
	if timeout > 0 {
		end = time.Now().Add(timeout)
	}
	if !h.on || !h.until.IsZero() && (end.IsZero() || end.After(h.until)) {
		h.until = end
	}
	h.on = true
}

// tell answers everybody in waiting.
func tell(waiting *[]chan error, err error) {
	for _, reply := range *waiting {
		reply <- err
	}
	*waiting = nil
}

// Release closes the session, and lets Run open none until Acquire, or until
// the timeout has passed; a timeout of 0 or less never passes. Pages say
// gpu.ErrReleased meanwhile. To release again extends the timeout, and never
// shortens it.
//
// It returns nil once every handle is closed, and what the driver said if it
// did not close cleanly. An error that wraps gpu.ErrTimeout means that the
// driver did not let go within 5 s: it is let go of as soon as the call that
// is under way returns.
func (l *Loop) Release(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, orderLimit,
		fmt.Errorf("%w: the driver has not let go for %v; it is let go of once the call under way returns", gpu.ErrTimeout, orderLimit))
	defer cancel()
	return l.order(ctx, order{kind: orderRelease, timeout: max(timeout, 0)})
}

// Released reports whether every handle is closed because Release asked for it.
func (l *Loop) Released() bool { return l.released.Load() }

// Acquire ends what Release began, whoever asked for it. It returns the error of
// the attempt to open a session; further attempts follow by themselves.
// Where nothing was released it does nothing.
func (l *Loop) Acquire(ctx context.Context) error {
	return l.order(ctx, order{kind: orderAcquire})
}

// PauseProfiling lets go of the hardware counters of the profiling fields, in
// this session and those that follow, until ResumeProfiling. Where no session
// is open it holds from the next one on. The error wraps gpu.ErrNotSupported
// where the source cannot, and gpu.ErrTimeout where the driver is busy; then
// nothing changed.
func (l *Loop) PauseProfiling(ctx context.Context) error { return l.orderProfiling(ctx, orderPause) }

// ResumeProfiling ends what PauseProfiling began.
func (l *Loop) ResumeProfiling(ctx context.Context) error { return l.orderProfiling(ctx, orderResume) }

func (l *Loop) orderProfiling(ctx context.Context, kind orderKind) error {
	ctx, cancel := context.WithTimeoutCause(ctx, orderLimit,
		fmt.Errorf("%w: the driver has been busy for %v", gpu.ErrTimeout, orderLimit))
	defer cancel()
	return l.order(ctx, order{kind: kind})
}

// order hands o to Run and waits for the answer.
func (l *Loop) order(ctx context.Context, o order) error {
	o.reply = make(chan error, 1)
	select {
	case l.orders <- o:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-o.reply:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// take carries out an order as far as that needs no driver call; the rest is
// Run's, which looks at the hold whenever a call has returned.
func (l *Loop) take(o order) {
	switch o.kind {
	case orderRelease:
		l.hold.extend(o.timeout)
		l.hold.released = append(l.hold.released, o.reply)
	case orderAcquire:
		if !l.hold.on {
			o.reply <- nil
			return
		}
		l.hold.on = false
		tell(&l.hold.released, errTakenBack)
		if l.session != nil { // not let go of yet
			o.reply <- nil
			return
		}
		l.hold.acquired = append(l.hold.acquired, o.reply)
	case orderPause, orderResume:
		l.profilingPaused = o.kind == orderPause
		l.metrics.paused.set(l.opt.Plan, l.profilingPaused)
		o.reply <- nil
	}
}

// refuse answers an order that comes while a driver call is under way. What
// lets go of the driver, or takes it back, is noted all the same.
func (l *Loop) refuse(o order, since time.Duration) {
	if o.kind == orderPause || o.kind == orderResume {
		o.reply <- fmt.Errorf("%w: a driver call is under way since %v", gpu.ErrTimeout, since.Round(time.Second))
		return
	}
	l.take(o)
}

// obey carries out an order while a session is open. It returns an error only
// if Run is over.
func (l *Loop) obey(ctx context.Context, o order) error {
	if o.kind == orderRelease || o.kind == orderAcquire {
		l.take(o)
		return nil
	}
	pause := o.kind == orderPause
	err := l.call(ctx, func(ctx context.Context) error { return setProfiling(ctx, l.session, pause) })
	if errors.Is(err, gpu.ErrWedged) {
		o.reply <- err
		return err
	}
	if err == nil {
		l.profilingPaused = pause
		l.metrics.paused.set(l.opt.Plan, pause)
		l.opt.Log.Info("Profiling", "paused", pause)
	}
	o.reply <- err
	return nil
}

// setProfiling pauses or resumes the profiling of a session.
func setProfiling(ctx context.Context, s Session, pause bool) error {
	p, ok := s.(Profiler)
	if !ok {
		return fmt.Errorf("%w: this source holds no profiling counters that it could let go of", gpu.ErrNotSupported)
	}
	if pause {
		return p.PauseProfiling(ctx)
	}
	return p.ResumeProfiling(ctx)
}

// keepPaused makes sure that the profiling of a session that was just opened is
// paused, and reports whether it is. It runs on the worker.
func (l *Loop) keepPaused(ctx context.Context, s Session) bool {
	err := setProfiling(ctx, s, true)
	if err != nil && !errors.Is(err, gpu.ErrNotSupported) {
		l.opt.Log.Warn("Profiling goes on in the new session, though it was paused", "error", err)
	}
	return err == nil
}

// dismiss answers those who still wait when Run ends.
func (l *Loop) dismiss() {
	err := fmt.Errorf("%w: the exporter ends", gpu.ErrUnavailable)
	tell(&l.hold.released, err)
	tell(&l.hold.acquired, err)
}

// letGo closes the session and waits until the hold ends, or ctx does,
// publishing on every interval that the driver is released. It returns an
// error only if Run is over.
func (l *Loop) letGo(ctx context.Context) error {
	err := l.close(ctx)
	if l.over(ctx, err) {
		return err
	}
	l.setReleased(true)
	defer l.setReleased(false)
	l.lastErr = gpu.ErrReleased
	l.publishReleased()
	l.opt.Log.Info("Driver released", "until", l.hold.ends())
	tell(&l.hold.released, err)
	if l.hold.on { // taken back and released again, before it came to an attempt
		tell(&l.hold.acquired, gpu.ErrReleased)
	}

	ticker := time.NewTicker(l.opt.Plan.Interval)
	defer ticker.Stop()
	for l.hold.on {
		end, stop := l.hold.timer()
		select {
		case <-ticker.C:
			l.publishReleased()
		case <-end:
			l.hold.on = false
			l.opt.Log.Info("The release has timed out; the driver is taken back")
		case r := <-l.reloads:
			l.replace(r.change)
			ticker.Reset(l.opt.Plan.Interval)
			r.reply <- nil
		case o := <-l.orders:
			l.take(o)
			tell(&l.hold.released, nil)
		case <-ctx.Done():
			stop()
			return ctx.Err()
		}
		stop()
	}
	return nil
}

// timer returns a channel that gets a value when the hold ends by itself.
func (h *hold) timer() (<-chan time.Time, func() bool) {
	if h.until.IsZero() {
		return nil, func() bool { return false }
	}
	t := time.NewTimer(time.Until(h.until))
	return t.C, t.Stop
}

// ends is the end of the hold in words, for the log.
func (h *hold) ends() string {
	if h.until.IsZero() {
		return "taken back"
	}
	return h.until.Format(time.RFC3339)
}

func (l *Loop) setReleased(on bool) {
	l.released.Store(on)
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
