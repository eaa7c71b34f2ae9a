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
	first := max(l.opt.readTimeout(), time.Until(l.served.Add(l.opt.maxAge())))
	return l.callFor(ctx, max(l.opt.readTimeout(), l.opt.maxAge()), first, l.publishTimeout, do)
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
			stop, closing = nil, time.After(closeTimeout)
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
	if l.session != nil && since < l.opt.maxAge() {
		return
	}
	err := fmt.Errorf("%w for %v", gpu.ErrOpening, since)
	if l.failure == nil { // log only the first attempt
		l.opt.Log.Info("Session is slow to open", "after", since)
		l.failure = err
	}
	l.publishEmpty(err)
}
