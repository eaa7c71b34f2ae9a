package collector

import (
	"context"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

// A Change is what a reload replaces. Derivers that were there before go on.
type Change struct {
	Source      Source
	Plan        *gpu.Plan
	Attributors []Attributor
	Derivers    []snapshot.Deriver
}

// A reload is a Change on its way to Run.
type reload struct {
	change Change
	only   Source     // not nil: a Reopen, without a change
	reply  chan error // has room for the one reply
}

// Reload replaces source, plan and attributors. With a session open, the new one is opened and read
// first and the old one closed after; an error means that nothing changed. Without one the change
// is taken as it is. While a driver call is under way Reload waits for its end; once ctx is done it
// returns the cause, and nothing changes unless the change is being made.
func (l *Loop) Reload(ctx context.Context, c Change) error {
	return l.order(ctx, reload{change: c})
}

// Reopen replaces the open session by one of another source, as Reload does and with nothing else
// changed: sessions that follow are opened where they were before. Without a session it does
// nothing.
func (l *Loop) Reopen(ctx context.Context, at Source) error {
	return l.order(ctx, reload{only: at})
}

func (l *Loop) order(ctx context.Context, r reload) error {
	r.reply = make(chan error, 1)
	select {
	case l.reloads <- r:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-r.reply:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// An occasion is why a wait of Run ended.
type occasion uint8

const (
	ticked occasion = iota
	expired
	sessionOver
	canceled
	reloaded // something changed
	refused  // a reload failed and changed nothing
)

// await waits for a tick, for the end of the wait, of the session or of ctx, or for a reload, which
// it makes. The error ends Run or the session.
func (l *Loop) await(ctx context.Context, tick, end <-chan time.Time) (occasion, error) {
	var done <-chan struct{}
	if l.session != nil {
		done = l.session.Done()
	}
	select {
	case <-tick:
		return ticked, nil
	case <-end:
		return expired, nil
	case <-done:
		return sessionOver, nil
	case r := <-l.reloads:
		return l.reload(ctx, r)
	case <-ctx.Done():
		return canceled, nil
	}
}

// reload makes a change. The error ends Run or the session.
func (l *Loop) reload(ctx context.Context, r reload) (occasion, error) {
	switch {
	case l.session == nil && r.only != nil:
		r.reply <- nil
		return refused, nil
	case l.session == nil:
		l.replace(r.change)
		r.reply <- nil
		return reloaded, nil
	}
	from := r.change.Source
	if r.only != nil {
		from, r.change = r.only, l.opt.change()
	}
	err := l.swap(ctx, from, r.change)
	r.reply <- err
	switch {
	case l.isFinal(ctx, err):
		return refused, err
	case err != nil:
		return refused, nil
	default:
		return reloaded, nil
	}
}
