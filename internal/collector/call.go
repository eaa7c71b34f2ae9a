package collector

import (
	"context"
	"fmt"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// call calls the driver and returns its error. A late answer is accepted for up to three intervals, and the latest page
// with data is served for as long. See callFor.
func (l *Loop) call(ctx context.Context, do func(context.Context) error) error {
	fresh := snapshotIntervals * l.opt.Plan.ReadInterval()
	first := l.opt.readTimeout()
	if l.lastErr == nil {
		first = max(first, time.Until(l.served.Add(fresh)))
	}
	return l.callFor(ctx, max(l.opt.readTimeout(), fresh), first, l.publishTimeout, do)
}

// callOpen opens a session. Engines and drivers take far longer to start than to answer a read. The context ends
// shortly before the hang limit, so that an open that heeds its context is retried.
func (l *Loop) callOpen(ctx context.Context, do func(context.Context) error) error {
	return l.callFor(ctx, l.opt.HangLimit-l.opt.HangLimit/8, l.opt.readTimeout(), l.publishOpening, do)
}

// callFor runs do with a context that ends after timeout and waits until do returns. Once ctx is done, it waits only
// for the close timeout. A cgo call cannot be canceled, so do runs on its own goroutine. callFor calls late after
// firstLate, then once per interval. Past the hang limit it abandons the call and returns gpu.ErrWedged; no further
// call may be started.
func (l *Loop) callFor(
	ctx context.Context, timeout, firstLate time.Duration, late func(begin time.Time), do func(context.Context) error,
) error {
	begin := time.Now()
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
			next.Reset(max(l.opt.Plan.ReadInterval(), l.opt.readTimeout()))
		case <-wedged.C:
			return l.wedge(fmt.Errorf("%w for %v", gpu.ErrWedged, l.opt.HangLimit))
		case <-stop:
			stop, closing = nil, time.After(l.opt.CloseTimeout)
		case <-closing:
			return l.wedge(fmt.Errorf("%w: it was still blocked when the time for shutdown ended", gpu.ErrWedged))
		}
	}
}

// wedge records that a driver call was abandoned.
func (l *Loop) wedge(err error) error {
	l.wedged.Store(true)
	return err
}

// publishTimeout publishes that the driver does not answer.
func (l *Loop) publishTimeout(begin time.Time) {
	since := time.Since(begin).Round(time.Millisecond)
	l.fail(stageRead, fmt.Errorf("%w: no answer from the driver for %v", gpu.ErrTimeout, since))
}

// publishOpening publishes that a session is being opened. During a reload, the page of the previous session is served
// while its samples are fresh.
func (l *Loop) publishOpening(begin time.Time) {
	since := time.Since(begin).Round(time.Millisecond)
	if l.session != nil && since < snapshotIntervals*l.opt.Plan.ReadInterval() {
		return
	}
	err := fmt.Errorf("%w for %v", gpu.ErrOpening, since)
	if l.lastErr == nil { // log only the first attempt
		l.opt.Log.Info("Session is slow to open", "after", since)
		l.lastErr = err
	}
	l.publishEmpty(err)
}
