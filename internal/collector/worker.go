package collector

// A worker is the one goroutine that calls the driver. A cgo call cannot be
// cancelled, so the Loop waits for it with a deadline instead of calling
// itself, and never hands over a second call while one is under way.
type worker struct {
	calls chan func()
	done  chan struct{} // a token per finished call
}

func newWorker() *worker {
	w := &worker{calls: make(chan func()), done: make(chan struct{}, 1)}
	go func() {
		for call := range w.calls {
			call()
			w.done <- struct{}{}
		}
	}()
	return w
}

// start hands a call over. Receive from done before the next start.
func (w *worker) start(call func()) { w.calls <- call }

// stop ends the goroutine once the call under way, if any, has returned.
func (w *worker) stop() { close(w.calls) }
