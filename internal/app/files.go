package app

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
)

// maxFileBytes is the maximum size of a configuration file.
const maxFileBytes = 4 << 20

// A retryable error does not prove that the settings are wrong, so the reload is retried.
type retryable struct{ error }

func (r retryable) Unwrap() error { return r.error }

func isRetryable(err error) bool {
	var r retryable
	return errors.As(err, &r)
}

// ReadFile is like os.ReadFile for regular configuration files of at most 4 MiB. It never waits for the writer of a
// pipe.
func ReadFile(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, retryable{err}
	}
	defer file.Close()
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s: not a regular file", path)
	}
	if err != nil {
		return nil, retryable{err}
	}
	return readAll(file)
}

func readAll(file *os.File) ([]byte, error) {
	content, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	if err == nil && len(content) > maxFileBytes {
		err = fmt.Errorf("%s: more than %d bytes", file.Name(), maxFileBytes)
	}
	if err != nil {
		return nil, retryable{err}
	}
	return content, nil
}

// A Reader reads configuration files and pipes, such as -f <(make-counters). A pipe can be read only once, so the
// Reader keeps its content.
type Reader struct {
	pipes   map[string][]byte
	started bool          // pipes are no longer read, since a reload must not wait for a writer
	wait    time.Duration // how long to wait for the writer of a pipe; 0 means pipeWait
}

const pipeWait = 10 * time.Second

// ReadFile is like the function ReadFile, and also reads pipes. It is not safe for concurrent use.
func (r *Reader) ReadFile(path string) ([]byte, error) {
	if content, known := r.pipes[path]; known {
		return content, nil
	}
	if info, err := os.Stat(path); r.started || err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		return ReadFile(path)
	}
	content, err := readPipe(path, cmp.Or(r.wait, pipeWait))
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
func readPipe(path string, wait time.Duration) ([]byte, error) {
	pipe, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // otherwise it would wait for a writer
	if err != nil {
		return nil, retryable{err}
	}
	defer pipe.Close()
	deadline := time.Now().Add(wait)
	if err := pipe.SetReadDeadline(deadline); err != nil {
		return nil, retryable{err}
	}
	for {
		content, err := readAll(pipe)
		switch {
		case len(content) > 0 && err == nil:
			return content, nil
		case errors.Is(err, os.ErrDeadlineExceeded), err == nil && time.Now().After(deadline):
			return nil, retryable{fmt.Errorf("%s: no complete file was written to this pipe within %v", path, wait)}
		case err != nil:
			return nil, err
		}
		time.Sleep(20 * time.Millisecond) // a pipe without a writer reads as empty
	}
}
