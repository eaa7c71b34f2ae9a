package gpu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"syscall"
)

// The errors that a source reports, typed at the edge so that no caller matches a text. Wrap them
// with what happened; test with errors.Is.
var (
	// ErrNotSupported: this hardware, driver or engine cannot give it.
	ErrNotSupported = errors.New("not supported")
	// ErrPermission: it exists, and this process may not read it.
	ErrPermission = errors.New("no permission")
	// ErrLost: the GPU, the engine or the driver went away.
	ErrLost = errors.New("lost")
	// ErrTimeout: no answer within the deadline.
	ErrTimeout = errors.New("timeout")
	// ErrWedged: a driver call has not returned for so long that only a restart of the process can
	// help.
	ErrWedged = errors.New("driver call does not return")
	// ErrUnavailable: the library, engine, driver or socket is not there.
	ErrUnavailable = errors.New("unavailable")
	// ErrTopology: the set of entities is no longer the one the session knows. It never reaches a
	// health series; it only ends a session.
	ErrTopology = errors.New("topology changed")
	// ErrVersion: library and engine do not understand each other.
	ErrVersion = errors.New("version mismatch")
	// ErrOpening: a session is being opened, which can take long.
	ErrOpening = errors.New("opening")
	// ErrStalled: the collection itself has not ended a cycle for too long.
	ErrStalled = errors.New("the collection is stalled")
	// ErrPanic: the exporter made a mistake, and the log has the stack.
	ErrPanic = errors.New("panic")
	// ErrPIDNamespace: process ids are those of another namespace than ours.
	ErrPIDNamespace = errors.New("not in the host's PID namespace")
)

// Reason returns the word for err in the reason label of the health series: one of "not_supported",
// "permission", "lost", "timeout", "wedged", "unavailable", "version", "opening", "stalled",
// "panic", "pid_namespace" and, for everything else, "error". It is "" for nil.
func Reason(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, ErrNotSupported):
		return "not_supported"
	case errors.Is(err, ErrPermission):
		return "permission"
	case errors.Is(err, ErrLost):
		return "lost"
	case errors.Is(err, ErrWedged):
		return "wedged"
	case errors.Is(err, ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, ErrVersion):
		return "version"
	case errors.Is(err, ErrOpening):
		return "opening"
	case errors.Is(err, ErrStalled):
		return "stalled"
	case errors.Is(err, ErrPanic):
		return "panic"
	case errors.Is(err, ErrPIDNamespace):
		return "pid_namespace"
	case errors.Is(err, ErrUnavailable):
		return "unavailable"
	default:
		return "error"
	}
}

// Typed wraps an error of the file system or of a socket in the one of this package's that it
// means; what means none is returned as it is.
func Typed(err error) error {
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

// Reasons lists every word that Reason can return for an error.
func Reasons() []string {
	return []string{"not_supported", "permission", "lost", "timeout", "wedged", "unavailable", "version", "opening", "stalled", "panic", "pid_namespace", "error"}
}
