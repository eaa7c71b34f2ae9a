package collector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// reload is a request for a new session.
type reload struct {
	settings Settings
	reopen   bool       // only open a session of settings.Source: the Loop keeps its settings
	reply    chan error // buffered: holds the one reply
}

// Reload replaces the settings. If a session is open, the new session is opened and read before the old one is closed.
// An error means that nothing changed. Reload waits until a pending driver call returns. Once ctx is done, it returns
// the cause; the reload is abandoned unless it has already begun.
func (l *Loop) Reload(ctx context.Context, s Settings) error {
	return l.submit(ctx, reload{settings: s})
}

// Reopen replaces the open session by one of another source, as Reload does. Later sessions come from the original
// source. Without a session, Reopen does nothing.
func (l *Loop) Reopen(ctx context.Context, at Source) error {
	return l.submit(ctx, reload{settings: Settings{Source: at}, reopen: true})
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

// reload applies a request while a session is open. An error ends Run.
func (l *Loop) reload(ctx context.Context, r reload) error {
	from := r.settings.Source
	if r.reopen {
		r.settings = l.opt.Settings
	}
	err := l.swap(ctx, from, r.settings)
	r.reply <- err
	if isFinal(ctx, err) {
		return cmp.Or(err, ctx.Err())
	}
	return nil
}

// use makes s the current settings.
func (l *Loop) use(s Settings) {
	l.opt.Settings = s
	l.attributions.use(s.Attributors)
}

// swap opens and reads a new session, publishes its page, and closes the old session after a last read. If the new
// session cannot be opened or read, the old one stays in use.
// Derivers count events once, even if both sessions report them.
func (l *Loop) swap(ctx context.Context, from Source, s Settings) error {
	next, err := l.open(ctx, from, s.Plan)
	if err != nil {
		return fmt.Errorf("open the new session: %w", err)
	}
	if err := l.finalRead(ctx); err != nil {
		return err
	}
	start, readAt := time.Now(), l.opt.Now()
	l.batch.Reset()
	request := readRequest(next, s.Plan)
	err = l.call(ctx, func(ctx context.Context) error { return next.Read(ctx, request, &l.batch) })
	if errors.Is(err, gpu.ErrWedged) {
		return err
	}
	if err != nil {
		return fmt.Errorf("read the new session: %w", errors.Join(err, l.closeSession(ctx, next)))
	}
	old := l.session
	l.use(s)
	l.adopt(next, causeReload)
	l.attributions.request(ctx, l.session.Topology())
	l.publishBatch(ctx, start, readAt)
	err = l.closeSession(ctx, old)
	if isFinal(ctx, err) {
		return err
	}
	if err != nil {
		l.opt.Log.Warn("Old session did not close cleanly after the reload", "error", err)
	}
	return nil
}
