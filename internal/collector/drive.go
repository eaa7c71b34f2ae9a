package collector

import (
	"context"
	"fmt"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// drive runs call on the worker and waits until it has returned. Past the
// read timeout, and again on every interval, it publishes a page that says so.
// It returns gpu.ErrWedged once the hang limit is over: the call is then left
// behind, and no other may be started.
//
// While a call is under way a reload is refused, and an order noted or refused. When ctx ends, the call has
// the close timeout to return.
func (l *Loop) drive(ctx context.Context, call func(context.Context)) error {
	begin := time.Now()
	l.pending.Store(begin.UnixNano())
	callCtx, cancel := context.WithTimeout(ctx, l.opt.readTimeout())
	defer cancel()
	l.worker.start(func() { call(callCtx) })
	if l.returned(ctx) {
		l.pending.Store(0)
		return nil
	}

	late := time.NewTicker(max(l.opt.Plan.Interval, l.opt.readTimeout()))
	defer late.Stop()
	wedged := time.NewTimer(l.opt.HangLimit)
	defer wedged.Stop()
	stop := ctx.Done()
	var stopped <-chan time.Time
	first := callCtx.Done()
	for {
		select {
		case <-l.worker.done:
			l.pending.Store(0)
			return nil
		case <-first:
			first = nil
			if ctx.Err() == nil {
				l.hanging(begin)
			}
		case <-late.C:
			if ctx.Err() == nil {
				l.hanging(begin)
			}
		case <-wedged.C:
			return fmt.Errorf("%w for %v", gpu.ErrWedged, l.opt.HangLimit)
		case <-stop:
			stop = nil
			stopped = time.After(l.opt.CloseTimeout)
		case <-stopped:
			return fmt.Errorf("%w: still waiting when the process was to end", gpu.ErrWedged)
		case r := <-l.reloads:
			r.reply <- fmt.Errorf("%w: a driver call is under way since %v", gpu.ErrTimeout, time.Since(begin).Round(time.Second))
		case o := <-l.orders:
			l.refuse(o, time.Since(begin))
		}
	}
}

// returned waits for a call that returns at once, as nearly all do, so that
// they cost no timers and no reload is refused for them.
func (l *Loop) returned(ctx context.Context) bool {
	timer := time.NewTimer(min(time.Second, l.opt.readTimeout()))
	defer timer.Stop()
	select {
	case <-l.worker.done:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// hanging publishes that the driver does not answer.
func (l *Loop) hanging(begin time.Time) {
	l.fail(stageRead, fmt.Errorf("%w: the driver has not answered for %v", gpu.ErrTimeout, time.Since(begin).Round(time.Millisecond)))
}
