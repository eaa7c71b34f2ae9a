package collector

import (
	"context"
	"fmt"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// call calls the driver and returns its error. An answer that comes later than the read timeout is taken for three
// intervals, and the latest page with data stays for as long. See callFor.
func (l *Loop) call(ctx context.Context, do func(context.Context) error) error {
	l.patience.Store(int64(min(l.opt.HangLimit, l.opt.validFor())))
	fresh := snapshotIntervals * l.opt.Plan.Interval
	first := l.opt.readTimeout()
	if l.lastErr == nil {
		first = max(first, time.Until(l.served.Add(fresh)))
	}
	return l.callFor(ctx, max(l.opt.readTimeout(), fresh), first, l.publishTimeout, do)
}

// callOpen is call for opening a session: engines and drivers that start take far longer than a read. Its deadline is a
// little before the hang limit, so that a call that can be canceled is tried again.
func (l *Loop) callOpen(ctx context.Context, do func(context.Context) error) error {
	l.patience.Store(int64(l.opt.HangLimit))
	return l.callFor(ctx, l.opt.HangLimit-l.opt.HangLimit/8, l.opt.readTimeout(), l.publishOpening, do)
}

// callFor runs do with a context that ends after timeout, and waits until it has returned, after the end of ctx for the
// close timeout. A cgo call cannot be canceled: do has a goroutine of its own. After firstLate, and then on every interval,
// late publishes a page that says so. Past the hang limit callFor returns gpu.ErrWedged and leaves the call behind; no
// other may be started.
func (l *Loop) callFor(ctx context.Context, timeout, firstLate time.Duration, late func(begin time.Time), do func(context.Context) error) error {
	begin := time.Now()
	l.pending.Store(int64(begin.Sub(l.born)) + 1)
	defer l.pending.Store(0)
	callCtx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	returned := make(chan error, 1)
	go func() { returned <- recovered(func() error { return do(callCtx) }) }()

	next := time.NewTimer(firstLate)
	defer next.Stop()
	wedged := time.NewTimer(l.opt.HangLimit)
	defer wedged.Stop()
	stop := ctx.Done()
	var closing <-chan time.Time
	for {
		select {
		case err := <-returned:
			return err
		case <-next.C:
			if ctx.Err() == nil {
				late(begin)
			}
			next.Reset(max(l.opt.Plan.Interval, l.opt.readTimeout()))
		case <-wedged.C:
			return l.wedge(fmt.Errorf("%w for %v", gpu.ErrWedged, l.opt.HangLimit))
		case <-stop:
			stop, closing = nil, time.After(l.opt.CloseTimeout)
		case <-closing:
			return l.wedge(fmt.Errorf("%w: still waiting when the process was to end", gpu.ErrWedged))
		}
	}
}

// wedge notes that a call is left behind.
func (l *Loop) wedge(err error) error {
	l.wedged.Store(true)
	return err
}

// publishTimeout publishes that the driver does not answer.
func (l *Loop) publishTimeout(begin time.Time) {
	l.fail(stageRead, fmt.Errorf("%w: the driver has not answered for %v", gpu.ErrTimeout, time.Since(begin).Round(time.Millisecond)))
}

// publishOpening publishes that a session is being opened. During a reload the page of the session before stays for as
// long as its samples are fresh.
func (l *Loop) publishOpening(begin time.Time) {
	since := time.Since(begin).Round(time.Millisecond)
	if l.session != nil && since < snapshotIntervals*l.opt.Plan.Interval {
		return
	}
	err := fmt.Errorf("%w: under way for %v", gpu.ErrOpening, since)
	if l.lastErr == nil { // the next attempts are no news
		l.opt.Log.Info("Opening the source takes long", "since", since)
		l.lastErr = err
	}
	l.publishEmpty(err)
}
