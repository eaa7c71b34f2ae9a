package gpu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"syscall"
)

// The errors at the edge. Wrap them with what happened; test with errors.Is.
var (
	ErrNotSupported = errors.New("not supported")               // by this hardware, driver or engine
	ErrPermission   = errors.New("no permission")               // it exists, and this process may not read it
	ErrLost         = errors.New("lost")                        // the GPU, the engine or the driver went away
	ErrTimeout      = errors.New("timeout")                     // no answer within the deadline
	ErrWedged       = errors.New("driver call does not return") // only a restart of the process can help
	ErrUnavailable  = errors.New("unavailable")                 // library, engine, driver or socket is not there
	ErrVersion      = errors.New("version mismatch")            // library and engine do not understand each other
	ErrOpening      = errors.New("opening")                     // a session is being opened, which can take long
	ErrStalled      = errors.New("the collection is stalled")   // no cycle ended for too long
	ErrPanic        = errors.New("panic")                       // a mistake of the exporter; the log has the stack
	ErrPIDNamespace = errors.New("not in the host's PID namespace")
	ErrTopology     = errors.New("topology changed") // ends a session; it is in no health series
)

// reasons are the words of the reason label. Of an error that wraps several the first counts.
var reasons = [...]struct {
	err  error
	word string
}{
	{ErrNotSupported, "not_supported"},
	{ErrPermission, "permission"},
	{ErrLost, "lost"},
	{ErrWedged, "wedged"},
	{ErrTimeout, "timeout"},
	{context.DeadlineExceeded, "timeout"},
	{ErrVersion, "version"},
	{ErrOpening, "opening"},
	{ErrStalled, "stalled"},
	{ErrPanic, "panic"},
	{ErrPIDNamespace, "pid_namespace"},
	{ErrUnavailable, "unavailable"},
}

// Reason returns the word for err in the reason label of the health series: one of Reasons, or "" for nil.
func Reason(err error) string {
	if err == nil {
		return ""
	}
	for _, r := range reasons {
		if errors.Is(err, r.err) {
			return r.word
		}
	}
	return "error"
}

// Reasons lists every word that Reason can return for an error, each once.
func Reasons() []string {
	words := []string{"error"}
	for _, r := range reasons {
		if !slices.Contains(words, r.word) {
			words = append(words, r.word)
		}
	}
	return words
}

// Typed wraps an error of the file system or of a socket in its typed error; any other is returned as it is.
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
