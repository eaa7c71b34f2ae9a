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
	ErrNotSupported = errors.New("not supported")               // hardware, driver or engine lacks it
	ErrPermission   = errors.New("no permission")               // it exists, but this process may not read it
	ErrLost         = errors.New("lost")                        // the GPU, the engine or the driver went away
	ErrTimeout      = errors.New("timeout")                     // no answer before the deadline
	ErrWedged       = errors.New("driver call does not return") // only a restart of the process can help
	ErrUnavailable  = errors.New("unavailable")                 // the library, engine, driver or socket is missing
	ErrVersion      = errors.New("version mismatch")            // library and engine versions are incompatible
	ErrOpening      = errors.New("opening")                     // a session is being opened, which can take long
	ErrStalled      = errors.New("the collection is stalled")   // no cycle has finished in time
	ErrPanic        = errors.New("panic")                       // a bug in the exporter; the log has the stack
	ErrPIDNamespace = errors.New("not in the host's PID namespace")
	ErrNeedsDCGM    = errors.New("DCGM is needed")
	ErrNeedsAdmin   = errors.New("the capability SYS_ADMIN is needed")
	ErrTopology     = errors.New("topology changed") // ends a session; never a reason in a health series
)

// reasons maps errors to values of the reason label. The first match wins if an error wraps several.
var reasons = [...]struct {
	err           error
	word, meaning string
}{
	{ErrNeedsDCGM, "needs_dcgm", "only DCGM can read it on this machine"},
	{ErrNeedsAdmin, "needs_sys_admin", "reading it needs root and the capability SYS_ADMIN"},
	{ErrNotSupported, "not_supported", "the hardware, driver or engine does not support it"},
	{ErrPermission, "permission", "the exporter has no permission to read it"},
	{ErrLost, "lost", "the GPU, engine or driver stopped answering"},
	{ErrWedged, "wedged", "a driver call does not return"},
	{ErrTimeout, "timeout", "no answer within the deadline"},
	{context.DeadlineExceeded, "timeout", "no answer within the deadline"},
	{ErrVersion, "version", "the library and the engine have incompatible versions"},
	{ErrOpening, "opening", "the source is being opened"},
	{ErrStalled, "stalled", "no collection cycle has finished within the allowed time"},
	{ErrPanic, "panic", "a bug in the exporter; the log has the stack"},
	{ErrPIDNamespace, "pid_namespace", "the exporter is not in the host's PID namespace"},
	{ErrUnavailable, "unavailable", "the library, engine or driver is missing"},
}

// otherReason is the reason of an error that wraps none of the errors in reasons.
const otherReason = "error"

// Reason returns the value of the reason label for err: a key of Reasons, or "" if err is nil.
func Reason(err error) string {
	if err == nil {
		return ""
	}
	for _, r := range reasons {
		if errors.Is(err, r.err) {
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
