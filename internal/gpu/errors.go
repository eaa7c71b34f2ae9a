package gpu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"syscall"
)

// The errors of sources and attributors. Wrap them with what happened, and test for them with errors.Is.
var (
	ErrNeedsDCGM  = define("DCGM is needed", "needs_dcgm", "only DCGM can read it on this machine")
	ErrNeedsAdmin = define("the capability SYS_ADMIN is needed", "needs_sys_admin",
		"reading it needs root and the capability SYS_ADMIN")
	ErrNotSupported = define("not supported", "not_supported", "the hardware, driver or engine does not support it")
	ErrPermission   = define("no permission", "permission", "the exporter has no permission to read it")
	ErrLost         = define("lost", "lost", "the GPU, engine or driver stopped answering")
	ErrWedged       = define("driver call does not return", "wedged", "a driver call does not return")
	ErrTimeout      = define("timeout", "timeout", "no answer within the deadline")
	ErrVersion      = define("version mismatch", "version", "the library and the engine have incompatible versions")
	ErrOpening      = define("opening", "opening", "the source is being opened")
	ErrStalled      = define("the collection is stalled", "stalled",
		"no collection cycle has finished within the allowed time")
	ErrPanic        = define("panic", "panic", "a bug in the exporter; the log has the stack")
	ErrPIDNamespace = define("not in the host's PID namespace", "pid_namespace",
		"the exporter is not in the host's PID namespace")
	ErrUnavailable = define("unavailable", "unavailable", "the library, engine or driver is missing")
	ErrTopology    = errors.New("topology changed") // ends a session; never a reason in a health series
)

// A reason maps an error to a value of the reason label.
type reason struct {
	err           error
	word, meaning string
}

// reasons lists the defined errors. The first match wins if an error wraps several.
var reasons []reason

// define returns an error with its value of the reason label and the meaning of that.
func define(text, word, meaning string) error {
	err := errors.New(text)
	reasons = append(reasons, reason{err, word, meaning})
	return err
}

// otherReason is the reason of an error that wraps none of the errors in reasons.
const otherReason = "error"

// Reason returns the value of the reason label for err: a key of Reasons, or "" if err is nil.
func Reason(err error) string {
	if err == nil {
		return ""
	}
	for _, r := range reasons {
		if errors.Is(err, r.err) || r.err == ErrTimeout && errors.Is(err, context.DeadlineExceeded) {
			return r.word
		}
	}
	return otherReason
}

// Reasons returns the meaning of every value that Reason can return for an error.
func Reasons() map[string]string {
	meanings := map[string]string{otherReason: "another error; the log has it"}
	for _, r := range reasons {
		meanings[r.word] = r.meaning
	}
	return meanings
}

// WrapFSError wraps a file system or socket error in the matching error of this package. It returns other errors
// unchanged.
func WrapFSError(err error) error {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: %w", ErrTimeout, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: %w", ErrPermission, err)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	default:
		return err
	}
}

// A Lifecycle records when and why a session ended. Sessions embed one, made by NewLifecycle. Its methods are safe for
// concurrent use.
type Lifecycle struct {
	running context.Context
	end     context.CancelCauseFunc
}

// NewLifecycle returns the Lifecycle of a running session.
func NewLifecycle() Lifecycle {
	running, end := context.WithCancelCause(context.Background())
	return Lifecycle{running, end}
}

// Done returns a channel that is closed when the session ends: the engine or driver is gone, or the set of entities
// changed.
func (l *Lifecycle) Done() <-chan struct{} { return l.running.Done() }

// Err returns nil while the session runs, and then the reason for its end, which wraps an error of this package.
func (l *Lifecycle) Err() error { return context.Cause(l.running) }

// End ends the session with err. Only the first call has an effect. It returns the reason of the first call.
func (l *Lifecycle) End(err error) error {
	l.end(err)
	return l.Err()
}
