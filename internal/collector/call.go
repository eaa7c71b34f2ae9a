package collector

import (
	"context"
	"fmt"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// call runs do on the worker and returns its error. An answer that comes later than the read timeout
// is taken for three intervals, and the latest page with data stays for as long. See callFor.
func (l *Loop) call(ctx context.Context, do func(context.Context) error) error {
	l.patience.Store(int64(min(l.opt.HangLimit, l.opt.validFor())))
	fresh := snapshotIntervals * l.opt.Plan.Interval
	first := l.opt.readTimeout()
	if l.lastErr == nil {
		first = max(first, time.Until(l.served.Add(fresh)))
	}
	return l.callFor(ctx, max(l.opt.readTimeout(), fresh), first, l.publishTimeout, do)
}

// callOpen is call for what opens a session: engines and drivers that start take far longer than a
// read. Its deadline is a little before the hang limit, so that what can be canceled is tried
// again.
func (l *Loop) callOpen(ctx context.Context, do func(context.Context) error) error {
	l.patience.Store(int64(l.opt.HangLimit))
	return l.callFor(ctx, l.opt.HangLimit-l.opt.HangLimit/8, l.opt.readTimeout(), l.publishOpening, do)
}

// callFor runs do on the worker, with a context that ends after timeout, and waits until it has
// returned. After first, and again on every interval, it calls late, which publishes a page that
// says so. It returns gpu.ErrWedged once the hang limit is over: the call is then left
// behind, and no other may be started.
//
// While the call is under way a reload waits. When ctx ends, the call has the close timeout to
// return.
func (l *Loop) callFor(ctx context.Context, timeout, firstLate time.Duration, late func(begin time.Time), do func(context.Context) error) error {
	begin := time.Now()
	l.pending.Store(int64(begin.Sub(l.born)) + 1)
	defer l.pending.Store(0)
	callCtx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	l.worker.start(func() error { return do(callCtx) })
	if err, ok := l.returnedSoon(ctx); ok {
		return err
	}

	next := time.NewTimer(firstLate - time.Since(begin))
	defer next.Stop()
	wedged := time.NewTimer(l.opt.HangLimit - time.Since(begin))
	defer wedged.Stop()
	stop := ctx.Done()
	var closing <-chan time.Time
	for {
		select {
		case err := <-l.worker.done:
			return err
		case <-next.C:
			if ctx.Err() == nil {
				late(begin)
			}
			next.Reset(max(l.opt.Plan.Interval, l.opt.readTimeout()))
		case <-wedged.C:
			return l.wedge(fmt.Errorf("%w for %v", gpu.ErrWedged, l.opt.HangLimit))
		case <-stop:
			stop = nil
			timer := time.NewTimer(l.opt.CloseTimeout)
			defer timer.Stop()
			closing = timer.C
		case <-closing:
			return l.wedge(fmt.Errorf("%w: still waiting when the process was to end", gpu.ErrWedged))
		}
	}
}

// wedge notes that a call is left behind, which Healthy says from then on.
func (l *Loop) wedge(err error) error {
	l.wedged.Store(true)
	return err
}

// returnedSoon waits for a call that returns at once, as nearly all do, so that they cost no
// timers.
func (l *Loop) returnedSoon(ctx context.Context) (err error, ok bool) {
	timer := time.NewTimer(min(time.Second, l.opt.readTimeout()))
	defer timer.Stop()
	select {
	case err := <-l.worker.done:
		return err, true
	case <-timer.C:
	case <-ctx.Done():
	}
	return nil, false
}

// publishTimeout publishes that the driver does not answer.
func (l *Loop) publishTimeout(begin time.Time) {
	l.fail(stageRead, fmt.Errorf("%w: the driver has not answered for %v", gpu.ErrTimeout, time.Since(begin).Round(time.Millisecond)))
}

// publishOpening publishes that a session is being opened. During a reload the page of the session
// before stays for as long as its samples are fresh.
func (l *Loop) publishOpening(begin time.Time) {
	if l.session != nil && time.Since(begin) < snapshotIntervals*l.opt.Plan.Interval {
		return
	}
	err := fmt.Errorf("%w: under way for %v", gpu.ErrOpening, time.Since(begin).Round(time.Millisecond))
	if l.lastErr == nil || gpu.Reason(l.lastErr) != gpu.Reason(err) {
		l.opt.Log.Info("Opening the source takes long", "since", time.Since(begin).Round(time.Millisecond))
	}
	l.lastErr = err
	l.publishEmpty(err)
}
