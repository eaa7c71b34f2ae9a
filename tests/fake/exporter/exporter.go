// Package exporter runs the exporter within a test, as main would, on a port of loopback that is
// free.
package exporter

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
)

// A Log is what a program wrote so far. Any goroutine may read and write it.
type Log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write appends to the log.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// String returns the log so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// An Exporter is a running one.
type Exporter struct {
	Address string       // host:port that it serves on
	Log     *Log         // what it says
	Result  <-chan error // gets what Run returned
	Cancel  func()       // ends it
}

// Start runs the exporter until the test ends, and waits until it listens, for patience at most. Of
// p it sets what a test has no wish for: the address unless Args name another, the outputs, the
// start and the version. The log of a test that fails is shown.
func Start(t testing.TB, patience time.Duration, p app.Process) *Exporter {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	result, listening := make(chan error, 1), make(chan net.Addr, 1)
	e := &Exporter{Log: &Log{}, Result: result, Cancel: cancel}
	p.Args = append([]string{"--address=127.0.0.1:0"}, p.Args...)
	if p.Env == nil {
		p.Env = func(string) (string, bool) { return "", false }
	}
	p.Out, p.Err, p.Start, p.Version = io.Discard, e.Log, time.Now(), "test"
	p.Listening = func(a net.Addr) { listening <- a }
	go func() { result <- app.Run(ctx, p) }()
	t.Cleanup(func() {
		cancel()
		if t.Failed() {
			t.Logf("the exporter's log:\n%s", e.Log)
		}
	})
	select {
	case a := <-listening:
		e.Address = a.String()
	case err := <-result:
		t.Fatalf("Run: %v\n%s", err, e.Log)
	case <-time.After(patience):
		t.Fatalf("does not listen\n%s", e.Log)
	}
	return e
}
