package collector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A command is what Reload, Release, Acquire and the methods of profiling have Run do.
type command struct {
	kind    commandKind
	timeout time.Duration   // of a release; 0 for none
	change  *Change         // of a reload
	caller  <-chan struct{} // closed once the caller waits no longer
	reply   chan error      // has room for the one reply
}

type commandKind uint8

const (
	commandReload commandKind = iota
	commandRelease
	commandAcquire
	commandPause
	commandResume
	commandKinds
)

// A state is where Run is when a command comes.
type state uint8

const (
	idle     state = iota // no session is open, and the next attempt is due after a pause
	calling               // a driver call is under way
	serving               // a session is open
	released              // every handle is closed, and none is opened
	states
)

// A verdict is what becomes of a command.
type verdict uint8

const (
	execute  verdict = iota // at once, as far as that needs no driver call while one is under way
	postpone                // until the driver call has returned
	refuse                  // with gpu.ErrTimeout
)

// verdicts holds what becomes of each command in each state. A release or an acquire that comes
// during a driver call is noted: Run looks at the release whenever a call has returned.
var verdicts = [commandKinds][states]verdict{
	commandReload:  {idle: execute, calling: postpone, serving: execute, released: execute},
	commandRelease: {idle: execute, calling: execute, serving: execute, released: execute},
	commandAcquire: {idle: execute, calling: execute, serving: execute, released: execute},
	commandPause:   {idle: execute, calling: refuse, serving: execute, released: execute},
	commandResume:  {idle: execute, calling: refuse, serving: execute, released: execute},
}

// command hands c to Run and waits for the reply. Once ctx is done it returns the cause.
func (l *Loop) command(ctx context.Context, c command) error {
	c.reply, c.caller = make(chan error, 1), ctx.Done()
	select {
	case l.commands <- c:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-c.reply:
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
	commanded // a command was executed
	reloaded  // and it was a reload that changed something
)

// await waits in a state for a tick, for the end, for the end of the session or of ctx, or for a
// command, which it executes: what was postponed first. It returns an error only of a command that
// ends Run, or the session.
func (l *Loop) await(ctx context.Context, in state, tick, end <-chan time.Time) (occasion, error) {
	if ctx.Err() != nil {
		return canceled, nil
	}
	if c, ok := l.takePostponed(); ok {
		return l.handle(ctx, c, in)
	}
	var done <-chan struct{}
	if in == serving {
		done = l.session.Done()
	}
	select {
	case <-tick:
		return ticked, nil
	case <-end:
		return expired, nil
	case <-done:
		return sessionOver, nil
	case c := <-l.commands:
		return l.handle(ctx, c, in)
	case <-ctx.Done():
		return canceled, nil
	}
}

// takePostponed returns the oldest command that was postponed and whose caller still waits.
func (l *Loop) takePostponed() (command, bool) {
	for len(l.postponed) > 0 {
		c := l.postponed[0]
		l.postponed = l.postponed[1:]
		select {
		case <-c.caller:
		default:
			return c, true
		}
	}
	return command{}, false
}

// handle executes, postpones or refuses a command.
func (l *Loop) handle(ctx context.Context, c command, in state) (occasion, error) {
	switch verdicts[c.kind][in] {
	case postpone:
		l.postponed = append(l.postponed, c)
		return commanded, nil
	case refuse:
		since := time.Since(l.born) - time.Duration(l.pending.Load())
		c.reply <- fmt.Errorf("%w: a driver call is under way since %v", gpu.ErrTimeout, since.Round(time.Second))
		return commanded, nil
	}
	switch c.kind {
	case commandReload:
		return l.executeReload(ctx, c, in)
	case commandRelease:
		l.release.extend(c.timeout)
		if in == released {
			c.reply <- nil
			break
		}
		l.release.closed = append(l.release.closed, c.reply)
	case commandAcquire:
		l.executeAcquire(c)
	case commandPause, commandResume:
		return commanded, l.executeProfiling(ctx, c, in)
	}
	return commanded, nil
}

// executeReload makes the change. It returns an error that ends Run or the session.
func (l *Loop) executeReload(ctx context.Context, c command, in state) (occasion, error) {
	if in != serving {
		l.replace(*c.change)
		c.reply <- nil
		return reloaded, nil
	}
	err := gpu.Protect(func() error { return l.swap(ctx, *c.change) })
	c.reply <- err
	switch {
	case l.isFinal(ctx, err) || errors.Is(err, gpu.ErrPanic):
		return commanded, err
	case err != nil:
		return commanded, nil
	default:
		return reloaded, nil
	}
}

func (l *Loop) executeAcquire(c command) {
	if !l.release.on {
		c.reply <- nil
		return
	}
	l.release.on = false
	reply(&l.release.closed, errAcquired)
	if l.session != nil { // not closed yet
		c.reply <- nil
		return
	}
	l.release.opened = append(l.release.opened, c.reply)
}

// executeProfiling pauses or resumes the profiling of the session, or of those that follow where
// none is open. It returns an error only if Run is over.
func (l *Loop) executeProfiling(ctx context.Context, c command, in state) (err error) {
	pause := c.kind == commandPause
	if in == serving {
		err = l.call(ctx, func(ctx context.Context) error { return setProfiling(ctx, l.session, pause) })
	}
	if err == nil {
		l.profilingPaused = pause
		l.metrics.paused.set(l.opt.Plan, pause)
		if in == serving {
			l.opt.Log.Info("Profiling", "paused", pause)
		}
	}
	c.reply <- err
	if errors.Is(err, gpu.ErrWedged) {
		return err
	}
	return nil
}

// reply sends err to every caller in waiting.
func reply(waiting *[]chan error, err error) {
	for _, caller := range *waiting {
		caller <- err
	}
	*waiting = nil
}

// cancelWaiters replies to the callers that still wait when Run ends.
func (l *Loop) cancelWaiters() {
	err := fmt.Errorf("%w: the exporter ends", gpu.ErrUnavailable)
	reply(&l.release.closed, err)
	reply(&l.release.opened, err)
	for _, c := range l.postponed {
		c.reply <- err
	}
	l.postponed = nil
}
