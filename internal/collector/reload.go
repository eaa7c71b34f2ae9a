package collector

import (
	"context"
	"errors"
	"fmt"

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

// Retry ends the pause before the next attempt to open a session, because a missing engine or driver may be available
// now. The next pauses start from the minimum.
func (l *Loop) Retry() {
	select {
	case l.retries <- struct{}{}:
	default:
	}
}

// swap applies a reload while a session is open: it opens and reads a new session, publishes its page, and closes the
// old session after a last read. If the new session cannot be opened or read, the old one stays in use. Derivers count
// events once, even if both sessions report them.
func (l *Loop) swap(ctx context.Context, r reload) error {
	s := r.settings
	if r.reopen {
		s = l.opt.Settings
	}
	next, err := l.open(ctx, r.settings.Source, s.Plan)
	if err != nil {
		return fmt.Errorf("open the new session: %w", err)
	}
	if err := l.finalRead(ctx); err != nil {
		return err
	}
	err = l.read(ctx, next, firstRequest(next.Topology(), s.Plan))
	if errors.Is(err, gpu.ErrWedged) {
		return err
	}
	if err != nil {
		return fmt.Errorf("read the new session: %w", errors.Join(err, l.closeSession(ctx, next)))
	}
	old := l.session
	l.use(s)
	l.adopt(next, causeReload)
	for _, a := range l.attributions {
		a.request(ctx, next.Topology())
	}
	l.publishBatch(ctx)
	err = l.closeSession(ctx, old)
	if err != nil && !isFinal(ctx, err) {
		l.opt.Log.Warn("Old session did not close cleanly after the reload", "error", err)
		return nil
	}
	return err
}
