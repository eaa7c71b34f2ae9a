package app

import (
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
)

// A LogWriter keeps lines of a log until they are written, so that a standard error which is never
// drained blocks nothing but itself: 1024 lines and 1 MiB at most. What comes beyond that is
// dropped and counted. Lines are written in their order.
type LogWriter struct {
	out     io.Writer
	lines   chan logLine
	waiting atomic.Int64 // bytes in lines, and in the one being written
	dropped atomic.Uint64
	closed  chan struct{}
}

const (
	maxLogLines = 1024
	maxLogBytes = 1 << 20
)

// A logLine is a line, or the request to say when all before it are written.
type logLine struct {
	text    []byte
	written chan<- struct{}
}

// NewLogWriter returns a LogWriter over out, which it calls from one goroutine until Close.
func NewLogWriter(out io.Writer) *LogWriter {
	w := &LogWriter{out: out, lines: make(chan logLine, maxLogLines), closed: make(chan struct{})}
	go func() {
		for {
			select {
			case line := <-w.lines:
				w.write(line)
			case <-w.closed:
				return
			}
		}
	}()
	return w
}

// Close ends the goroutine, as soon as out lets it. It is called once, after Flush; what is written
// later goes nowhere.
func (w *LogWriter) Close() { close(w.closed) }

func (w *LogWriter) write(line logLine) {
	if line.written != nil {
		close(line.written)
		return
	}
	if _, err := w.out.Write(line.text); err != nil {
		w.dropped.Add(1)
	}
	w.waiting.Add(-int64(len(line.text)))
}

// Write takes a copy of a line, or drops it. It never waits and never fails.
func (w *LogWriter) Write(line []byte) (int, error) {
	size := int64(len(line))
	if w.waiting.Add(size) > maxLogBytes {
		w.waiting.Add(-size)
		w.dropped.Add(1)
		return len(line), nil
	}
	select {
	case w.lines <- logLine{text: append([]byte(nil), line...)}:
	default:
		w.waiting.Add(-size)
		w.dropped.Add(1)
	}
	return len(line), nil
}

// Flush waits until what was taken so far is written, but no longer than limit.
func (w *LogWriter) Flush(limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	written := make(chan struct{})
	select {
	case w.lines <- logLine{written: written}:
	case <-timer.C:
		return
	}
	select {
	case <-written:
	case <-timer.C:
	}
}

// Dropped returns how many lines were dropped, or could not be written.
func (w *LogWriter) Dropped() uint64 { return w.dropped.Load() }

// lastLines is how long the end of Run waits for the log.
const lastLines = 200 * time.Millisecond

// logTo returns a logger that never blocks, over a LogWriter of its own unless out is one, and what
// is to be called at the end.
func logTo(out io.Writer, c config.Log, reg prometheus.Registerer) (log *slog.Logger, finish func()) {
	lines, given := out.(*LogWriter)
	finish = func() { lines.Flush(lastLines) }
	if !given {
		lines = NewLogWriter(out)
		finish = func() {
			lines.Flush(lastLines)
			lines.Close()
		}
	}
	reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "dcgm_exporter_log_lines_dropped_total",
		Help: "Lines of the log that were dropped since standard error took no more.",
	}, func() float64 { return float64(lines.Dropped()) }))
	return newLogger(c, lines), finish
}

func newLogger(c config.Log, w io.Writer) *slog.Logger {
	level := slog.LevelInfo
	if c.Debug {
		level = slog.LevelDebug
	}
	options := &slog.HandlerOptions{Level: level}
	if c.Format == config.LogJSON {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}
