package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

const (
	// fileLimit is how long one file of settings may take to read: a file system that hangs and a pipe
	// without a writer never answer, and a read of them cannot be canceled.
	fileLimit = 5 * time.Second
	// maxFileBytes bounds a file of settings.
	maxFileBytes = 64 << 20
)

// A passing error may pass by itself: it proves nothing about the settings, and what failed is
// tried again.
type passing struct{ error }

func (p passing) Unwrap() error { return p.error }

// passes reports whether err may pass by itself.
func passes(err error) bool {
	var p passing
	return errors.As(err, &p)
}

// Files reads files of settings, each read on a goroutine of its own and with a deadline. A read
// that does not return is left behind; a further read of the same file meanwhile waits for it, so
// that there is one at most per file.
type Files struct {
	ctx context.Context

	mu    sync.Mutex
	reads map[string]*fileRead
}

type fileRead struct {
	done    chan struct{}
	content []byte
	err     error
}

// NewFiles returns Files whose reads end with ctx.
func NewFiles(ctx context.Context) *Files {
	return &Files{ctx: ctx, reads: map[string]*fileRead{}}
}

// Read is os.ReadFile with a deadline of five seconds, which also ends with the context of the
// Files. The error for that wraps os.ErrDeadlineExceeded, or is the context's. Every error may pass
// by itself.
func (f *Files) Read(path string) ([]byte, error) {
	f.mu.Lock()
	read := f.reads[path]
	if read == nil {
		read = &fileRead{done: make(chan struct{})}
		f.reads[path] = read
		go func() {
			if read.content, read.err = readAll(path); read.err != nil {
				read.err = passing{read.err}
			}
			f.mu.Lock()
			delete(f.reads, path)
			f.mu.Unlock()
			close(read.done)
		}()
	}
	f.mu.Unlock()
	limit := time.NewTimer(fileLimit)
	defer limit.Stop()
	select {
	case <-read.done:
		return read.content, read.err
	case <-f.ctx.Done():
		return nil, f.ctx.Err()
	case <-limit.C:
		return nil, passing{fmt.Errorf("%s: not read within %v: a pipe without a writer, or a file system that hangs? %w",
			path, fileLimit, os.ErrDeadlineExceeded)}
	}
}

// check reads the file of a setting, which its error names; "" is none. What reads the file itself
// would wait for one that hangs.
func (f *Files) check(flag, path string) error {
	if path == "" {
		return nil
	}
	if _, err := f.Read(path); err != nil {
		return fmt.Errorf("%s %s: %w", flag, path, err)
	}
	return nil
}

func readAll(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	if err != nil {
		return nil, err
	}
	if len(content) > maxFileBytes {
		return nil, fmt.Errorf("%s: it has more than %d bytes, the most that is read", path, maxFileBytes)
	}
	return content, nil
}
