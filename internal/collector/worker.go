package collector

// A worker is the one goroutine that calls the driver. A cgo call cannot be canceled, so the Loop
// waits for it with a deadline instead of calling itself, and never hands over a second call while
// one is under way.
type worker struct {
	calls chan func() error
	done  chan error // of every call, once it has returned
}

func newWorker() *worker {
	w := &worker{calls: make(chan func() error), done: make(chan error, 1)}
	go func() {
		for call := range w.calls {
			w.done <- recovered(call)
		}
	}()
	return w
}

// start hands a call over. Receive from done before the next start.
func (w *worker) start(call func() error) { w.calls <- call }

// stop ends the goroutine once the call under way, if any, has returned.
func (w *worker) stop() { close(w.calls) }
