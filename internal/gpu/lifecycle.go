package gpu

// A Lifecycle says when a session is over, and why. Sessions embed one; NewLifecycle makes it.
type Lifecycle struct {
	done chan struct{}
	err  error // written before done is closed
}

// NewLifecycle returns the Lifecycle of a session that is not over.
func NewLifecycle() Lifecycle { return Lifecycle{done: make(chan struct{})} }

// Done is closed when the session is over: the engine or the driver is gone, or the set of entities changed.
func (l *Lifecycle) Done() <-chan struct{} { return l.done }

// Err says why Done is closed, wrapping an error of this package; nil while it is open. Any goroutine may call it.
func (l *Lifecycle) Err() error {
	select {
	case <-l.done:
		return l.err
	default:
		return nil
	}
}

// End closes Done because of err and returns the reason; the first one stays. It belongs to the goroutine of Read.
func (l *Lifecycle) End(err error) error {
	if l.Err() == nil {
		l.err = err
		close(l.done)
	}
	return l.err
}
