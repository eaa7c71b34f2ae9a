package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"
)

const (
	maxFileBytes = 4 << 20          // maximum size of a configuration file
	pipeWait     = 10 * time.Second // how long to wait for the writer of a pipe
	// lookEvery is the interval at which files are checked. Polling costs microseconds, and also works for symbolic
	// links, files mounted individually and network file systems.
	lookEvery = time.Second
)

// A retryable error does not prove that the settings are wrong, so the reload is retried.
type retryable struct{ error }

func (r retryable) Unwrap() error { return r.error }

// A Reader reads configuration files of at most 4 MiB, and pipes, such as -f <(make-counters). A pipe can be read only
// once, so the Reader keeps its content.
type Reader struct {
	pipes   map[string][]byte
	started bool          // pipes are no longer read, since a reload must not wait for a writer
	wait    time.Duration // how long to wait for the writer of a pipe; 0 means pipeWait
}

// ReadFile is like os.ReadFile. It is not safe for concurrent use.
func (r *Reader) ReadFile(path string) ([]byte, error) {
	if content, known := r.pipes[path]; known {
		return content, nil
	}
	content, err := r.read(path)
	if err != nil {
		return nil, retryable{err}
	}
	return content, nil
}

func (r *Reader) read(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe would wait for a writer
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	switch {
	case err != nil:
		return nil, err
	case info.Mode().IsRegular():
		return readAll(file)
	case r.started || info.Mode()&os.ModeNamedPipe == 0:
		return nil, fmt.Errorf("%s: not a regular file", path)
	}
	content, err := readPipe(file, cmp.Or(r.wait, pipeWait))
	if err == nil {
		if r.pipes == nil {
			r.pipes = map[string][]byte{}
		}
		r.pipes[path] = content
	}
	return content, err
}

// readPipe returns what is written to a pipe until its writers close it. It returns an error if nothing is written in
// the given time.
func readPipe(pipe *os.File, wait time.Duration) ([]byte, error) {
	deadline := time.Now().Add(wait)
	if err := pipe.SetReadDeadline(deadline); err != nil {
		return nil, err
	}
	for {
		content, err := readAll(pipe)
		switch {
		case len(content) > 0 && err == nil:
			return content, nil
		case errors.Is(err, os.ErrDeadlineExceeded), err == nil && time.Now().After(deadline):
			return nil, fmt.Errorf("%s: no complete file was written to this pipe within %v", pipe.Name(), wait)
		case err != nil:
			return nil, err
		}
		time.Sleep(20 * time.Millisecond) // a pipe without a writer reads as empty
	}
}

func readAll(file *os.File) ([]byte, error) {
	content, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	if err == nil && len(content) > maxFileBytes {
		err = fmt.Errorf("%s: more than %d bytes", file.Name(), maxFileBytes)
	}
	return content, err
}

// A fileWatch detects changed files.
type fileWatch struct {
	mu    sync.Mutex
	infos map[string]fs.FileInfo // info of each file at the last check; nil if the file is inaccessible
}

// follow replaces the list of files. Call it before reading the files, so that no change is missed.
func (w *fileWatch) follow(files []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	infos := make(map[string]fs.FileInfo, len(files))
	for _, f := range files {
		info, known := w.infos[f]
		if !known {
			info, _ = os.Stat(f)
		}
		infos[f] = info
	}
	w.infos = infos
}

// run calls changed after a file has changed and all files have stayed the same for one interval, since editors write
// in pieces. It returns when ctx is done.
func (w *fileWatch) run(ctx context.Context, changed func()) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	pending := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		differs := w.differs()
		if pending && !differs {
			changed()
		}
		pending = differs
	}
}

// differs reports whether a file has changed since the last check, and records the current state.
func (w *fileWatch) differs() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	differs := false
	for f, before := range w.infos {
		now, _ := os.Stat(f) // nil if it is inaccessible
		differs = differs || !isSame(before, now)
		w.infos[f] = now
	}
	return differs
}

// isSame reports whether two infos describe the same file with the same content.
func isSame(a, b fs.FileInfo) bool {
	if a == nil || b == nil {
		return a == b
	}
	return os.SameFile(a, b) && a.Mode() == b.Mode() && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}
