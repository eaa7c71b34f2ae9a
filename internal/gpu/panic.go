package gpu

import (
	"fmt"
	"runtime/debug"
)

// A Panic is the error of a call that panicked. It wraps ErrPanic.
type Panic struct {
	Value any    // what was given to panic
	Stack []byte // of the goroutine, as text
}

func (p *Panic) Error() string { return fmt.Sprintf("%v: %v", ErrPanic, p.Value) }

// Unwrap returns ErrPanic.
func (p *Panic) Unwrap() error { return ErrPanic }

// Protect calls f and returns its error, or a *Panic if it panics: a mistake in one cycle must not
// end the process. f runs on the goroutine of the caller; the locks that it holds must be released
// by defer.
func Protect(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &Panic{Value: v, Stack: debug.Stack()}
		}
	}()
	return f()
}
