// Package exporter runs the exporter within a test, like main does, on a free loopback port.
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

// A Log holds the output of a program. It is safe for concurrent use.
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

// An Exporter is a running exporter.
type Exporter struct {
	Address string       // host:port
	Log     *Log         // what the exporter has logged
	Result  <-chan error // receives the result of Run
	Cancel  func()       // stops the exporter
}

// Start runs the exporter until the test ends. It waits at most patience until the exporter listens. The address is a
// free loopback port unless p.Args has another. The environment is empty if p.Env is nil. Start replaces Out, Err,
// Start, Version and Listening of p. If the test fails, the log is printed.
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
			t.Logf("log of the exporter:\n%s", e.Log)
		}
	})
	select {
	case a := <-listening:
		e.Address = a.String()
	case err := <-result:
		t.Fatalf("Run: %v\n%s", err, e.Log)
	case <-time.After(patience):
		t.Fatalf("exporter does not listen:\n%s", e.Log)
	}
	return e
}
