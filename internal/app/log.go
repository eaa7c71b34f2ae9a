package app

import (
	"bytes"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
)

func newLogger(c config.Log, w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: slog.LevelInfo}
	if c.Debug {
		options.Level = slog.LevelDebug
	}
	if c.Format == config.LogJSON {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// A startLog keeps log lines until the exporter serves, so that a blocked standard error cannot prevent the start.
type startLog struct {
	mu   sync.Mutex
	to   io.Writer     // receives the lines
	kept *bytes.Buffer // lines that were not written yet; nil after release
}

func (l *startLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.kept != nil {
		return l.kept.Write(line)
	}
	return l.to.Write(line)
}

// release writes the lines that were kept. Later lines are written immediately.
func (l *startLog) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.kept != nil {
		_, _ = l.kept.WriteTo(l.to) // there is no other place to report a failed log write
		l.kept = nil
	}
}

// end is release with a timeout, for a process that is about to exit.
func (l *startLog) end() {
	over := make(chan struct{})
	go func() {
		l.release()
		close(over)
	}()
	select {
	case <-over:
	case <-time.After(time.Second):
	}
}
