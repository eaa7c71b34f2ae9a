package gpu

// A Lifecycle is when a session is over, and why. A session embeds one that NewLifecycle made.
type Lifecycle struct {
	done chan struct{}
	err  error // written before done is closed
}

// NewLifecycle returns the Lifecycle of a session that is not over.
func NewLifecycle() Lifecycle { return Lifecycle{done: make(chan struct{})} }

// Done is closed when the session is over: the engine or the driver is gone, or the set of entities
// is another one.
func (l *Lifecycle) Done() <-chan struct{} { return l.done }

// Err says why Done is closed: the error wraps ErrTopology, ErrLost or another one of this
// package's. It is nil while Done is open. Any goroutine may call it.
func (l *Lifecycle) Err() error {
	select {
	case <-l.done:
		return l.err
	default:
		return nil
	}
}

// End closes Done because of err, once: the first reason stays. It returns the reason. It belongs
// to the goroutine of the session's Read.
func (l *Lifecycle) End(err error) error {
	if l.Err() == nil {
		l.err = err
		close(l.done)
	}
	return l.err
}
