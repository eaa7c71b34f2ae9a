package collector

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// panicError is the error of a function that panicked. It wraps gpu.ErrPanic.
type panicError struct {
	value any
	stack []byte
}

func (p *panicError) Error() string { return fmt.Sprintf("%v: %v", gpu.ErrPanic, p.value) }

func (p *panicError) Unwrap() error { return gpu.ErrPanic }

// recovered calls f and returns its error, or a *panicError if it panics.
func recovered(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{value: v, stack: debug.Stack()}
		}
	}()
	return f()
}

// withStack returns log attributes for an error, with the stack if it was a panic.
func withStack(err error) []any {
	var p *panicError
	if errors.As(err, &p) {
		return []any{"error", err, "stack", string(p.stack)}
	}
	return []any{"error", err}
}
