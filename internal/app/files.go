package app

import (
	"errors"
	"fmt"
	"io"
	"os"
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
