package gpu

// A Lifecycle records when and why a session ended. Sessions embed one, made by NewLifecycle.
type Lifecycle struct {
	done chan struct{}
	err  error // written before done is closed
}

// NewLifecycle returns the Lifecycle of a running session.
func NewLifecycle() Lifecycle { return Lifecycle{done: make(chan struct{})} }

// Done returns a channel that is closed when the session ends: the engine or driver is gone, or the set of entities
// changed.
func (l *Lifecycle) Done() <-chan struct{} { return l.done }

// Err returns nil while the session runs, and then the reason for its end, which wraps an error of this package. It is
// safe for concurrent use.
func (l *Lifecycle) Err() error {
	select {
	case <-l.done:
		return l.err
	default:
		return nil
	}
}

// End ends the session with err. Only the first call has an effect. It returns the reason of the first call. Only the
// goroutine that calls Read may call it.
func (l *Lifecycle) End(err error) error {
	if l.Err() == nil {
		l.err = err
		close(l.done)
	}
	return l.err
}
