package app

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// maxFileBytes bounds a file of settings.
const maxFileBytes = 4 << 20

// A retryable error may pass by itself: it proves nothing about the settings, and what failed is
// tried again.
type retryable struct{ error }

func (r retryable) Unwrap() error { return r.error }

func isRetryable(err error) bool {
	var r retryable
	return errors.As(err, &r)
}

// A reader reads a file of settings: ReadFile, or one of NewReader.
type reader = func(path string) ([]byte, error)

// ReadFile is os.ReadFile for files of settings, of 4 MiB at most.
func ReadFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, retryable{err}
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	if err != nil {
		return nil, retryable{err}
	}
	if len(content) > maxFileBytes {
		return nil, retryable{fmt.Errorf("%s: more than %d bytes", path, maxFileBytes)}
	}
	return content, nil
}

// NewReader returns a ReadFile that reads a pipe once and then says what that had: the settings may
// come from a process (-f <(make-counters)) that writes them once.
func NewReader() func(path string) ([]byte, error) {
	var mu sync.Mutex
	pipes := map[string][]byte{}
	return func(path string) ([]byte, error) {
		info, err := os.Stat(path)
		isPipe := err == nil && info.Mode()&os.ModeNamedPipe != 0
		mu.Lock()
		content, known := pipes[path]
		mu.Unlock()
		if isPipe && known {
			return content, nil
		}
		content, err = ReadFile(path)
		if isPipe && err == nil {
			mu.Lock()
			defer mu.Unlock()
			pipes[path] = content
		}
		return content, err
	}
}
