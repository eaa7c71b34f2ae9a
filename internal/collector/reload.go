package collector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

// Change holds the new options of a reload. Derivers that stay keep their state.
type Change struct {
	Source      Source
	Plan        *gpu.Plan
	Attributors []Attributor
	Derivers    []snapshot.Deriver
}

// reload is a Change that was sent to Run.
type reload struct {
	change Change
	only   Source     // if not nil, reopen at this source without a change of options
	reply  chan error // buffered: holds the one reply
}

// Reload replaces the source, plan, attributors and derivers. If a session is open, the new session is opened and read
// before the old one is closed. An error means that nothing changed. Reload waits until a pending driver call returns.
// Once ctx is done, it returns the cause; the change is abandoned unless it has already begun.
func (l *Loop) Reload(ctx context.Context, c Change) error {
	return l.submit(ctx, reload{change: c})
}

// Reopen replaces the open session by one of another source, as Reload does. Later sessions come from the original
// source. Without a session, Reopen does nothing.
func (l *Loop) Reopen(ctx context.Context, at Source) error {
	return l.submit(ctx, reload{only: at})
}

// submit sends a reload to Run and waits for its reply.
func (l *Loop) submit(ctx context.Context, r reload) error {
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

// reload applies a change while a session is open. An error ends Run.
func (l *Loop) reload(ctx context.Context, r reload) error {
	from := r.change.Source
	if r.only != nil {
		from = r.only
		r.change = Change{Source: l.opt.Source, Plan: l.opt.Plan, Attributors: l.opt.Attributors, Derivers: l.opt.Derivers}
	}
	err := l.swap(ctx, from, r.change)
	r.reply <- err
	if l.isFinal(ctx, err) {
		return cmp.Or(err, ctx.Err())
	}
	return nil
}

// replace makes the options of a change the current ones.
func (l *Loop) replace(c Change) {
	l.opt.Source, l.opt.Plan, l.opt.Derivers, l.opt.Attributors = c.Source, c.Plan, c.Derivers, c.Attributors
	l.attributions.use(c.Attributors)
}

// swap opens and reads a new session for the change, publishes its page, and closes the old session. On an error
// nothing changes. Derivers count events once, even if both sessions report them.
func (l *Loop) swap(ctx context.Context, from Source, c Change) error {
	next, err := l.connect(ctx, from, c.Plan)
	if err != nil {
		return fmt.Errorf("open the new session: %w", err)
	}
	if err := l.finalRead(ctx); err != nil {
		return err
	}
	start, readAt := time.Now(), l.opt.Now()
	l.batch.Reset()
	request := gpu.ReadRequest{Processes: processRows(next, c.Plan)}
	err = l.call(ctx, func(ctx context.Context) error { return next.Read(ctx, request, &l.batch) })
	if errors.Is(err, gpu.ErrWedged) {
		return err
	}
	if err != nil {
		return fmt.Errorf("read the new session: %w", errors.Join(err, l.closeSession(ctx, next)))
	}
	old := l.session
	l.replace(c)
	l.adopt(next, causeReload)
	l.attributions.request(ctx, l.session.Topology())
	l.publishBatch(ctx, start, readAt)
	err = l.closeSession(ctx, old)
	if l.isFinal(ctx, err) {
		return err
	}
	if err != nil {
		l.opt.Log.Warn("Old session did not close cleanly after the reload", "error", err)
	}
	return nil
}
