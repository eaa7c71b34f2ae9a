package collector

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// call calls the driver and returns its error. A late answer is accepted for up to three intervals, and the latest page
// with data is served for as long. See callFor.
func (l *Loop) call(ctx context.Context, do func(context.Context) error) error {
	timeout, maxAge := l.opt.readTimeout(), l.opt.maxAge()
	first := max(timeout, time.Until(l.served.Add(maxAge)))
	return l.callFor(ctx, max(timeout, maxAge), first, func(since time.Duration) {
		l.fail(stageRead, fmt.Errorf("%w: no answer from the driver for %v", gpu.ErrTimeout, since))
	}, do)
}

// callFor runs do with a context that ends after timeout and waits until do returns. Once ctx is done, it waits only
// for the close timeout. A cgo call cannot be canceled, so do runs on its own goroutine. callFor calls late after
// firstLate, then once per interval, with the duration so far. Past the hang limit it abandons the call and returns
// gpu.ErrWedged; no further call may be started.
func (l *Loop) callFor(
	ctx context.Context, timeout, firstLate time.Duration, late func(time.Duration), do func(context.Context) error,
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
				late(time.Since(begin).Round(time.Millisecond))
			}
			next.Reset(max(l.opt.Plan.ReadInterval(), l.opt.readTimeout()))
		case <-wedged.C:
			l.wedged.Store(true)
			return fmt.Errorf("%w for %v", gpu.ErrWedged, l.opt.HangLimit)
		case <-stop:
			stop, closing = nil, time.After(closeTimeout)
		case <-closing:
			l.wedged.Store(true)
			return fmt.Errorf("%w before the shutdown timeout", gpu.ErrWedged)
		}
	}
}

// publishOpening publishes that a session is being opened. During a reload, the page of the previous session is served
// while its samples are fresh.
func (l *Loop) publishOpening(since time.Duration) {
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

// panicError is the error of a function that panicked. It wraps gpu.ErrPanic.
type panicError struct {
	error
	stack []byte
}

func (p panicError) Unwrap() error { return p.error }

// recovered calls f and returns its error, or a panicError if it panics.
func recovered(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = panicError{fmt.Errorf("%w: %v", gpu.ErrPanic, v), debug.Stack()}
		}
	}()
	return f()
}

// withStack returns log attributes for an error, with the stack if it was a panic.
func withStack(err error) []any {
	attrs := []any{"error", err}
	if p, ok := errors.AsType[panicError](err); ok {
		attrs = append(attrs, "stack", string(p.stack))
	}
	return attrs
}
