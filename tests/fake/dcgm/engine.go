package dcgm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/material"
)

// Environment variables for a process that loads the library.
const (
	envLibrary  = "LD_LIBRARY_PATH"
	envScript   = "FAKEDCGM_SCRIPT"
	envCounters = "FAKEDCGM_COUNTERS"
)

// Main implements TestMain. It builds the library, runs the test binary again with the library, and returns the exit
// code. Without gcc, the tests run without the library, and New skips them.
func Main(m *testing.M) int {
	if os.Getenv(envScript) != "" {
		return m.Run()
	}
	env, err := environment()
	if errors.Is(err, ErrNoCompiler) {
		return m.Run()
	}
	if err == nil {
		err = syscall.Exec("/proc/self/exe", os.Args, append(os.Environ(), env...))
	}
	fmt.Fprintln(os.Stderr, "fakedcgm:", err)
	return 1
}

// environment builds the library and returns the variables that a process needs to load it. The script and the counters
// are in a new folder.
func environment() ([]string, error) {
	dir, err := Build()
	if err != nil {
		return nil, err
	}
	files, err := os.MkdirTemp("", "fakedcgm-")
	if err != nil {
		return nil, err
	}
	return []string{
		envLibrary + "=" + dir,
		envScript + "=" + filepath.Join(files, "script"),
		envCounters + "=" + filepath.Join(files, "counters"),
	}, nil
}

// An Engine is a script that the library runs, and the counters that it keeps. There is one library in a process, so
// tests that use it cannot run in parallel.
type Engine struct {
	t        testing.TB
	script   string
	counters string
	boot     int
	lines    []string
	first    map[string]int64
}

// New returns an engine that has just started and runs the given lines. Without the library it skips the test, or fails
// it if CI is "true".
func New(t testing.TB, lines ...string) *Engine {
	t.Helper()
	Require(t)
	return newEngine(t, os.Getenv(envScript), os.Getenv(envCounters), lines)
}

// Require skips the test if the process does not have the library. It fails the test if CI is "true", because CI
// machines have a compiler.
func Require(t testing.TB) {
	t.Helper()
	if os.Getenv(envScript) != "" {
		return
	}
	Need(t, ErrNoCompiler)
}

// Need ends the test if the library could not be built. It skips the test if there is no compiler and CI is not "true".
// Otherwise it fails the test.
func Need(t testing.TB, err error) {
	t.Helper()
	switch {
	case err == nil:
	case errors.Is(err, ErrNoCompiler) && os.Getenv("CI") != "true":
		material.Skip(t, "compiler-absent", err)
	default:
		t.Fatalf("building the test library: %v", err)
	}
}

// NewFor is like New, for another process. It returns the engine and the environment that the process needs.
func NewFor(t testing.TB, lines ...string) (*Engine, []string) {
	t.Helper()
	dir, err := Build()
	Need(t, err)
	files := t.TempDir()
	e := newEngine(t, filepath.Join(files, "script"), filepath.Join(files, "counters"), lines)
	return e, []string{envLibrary + "=" + dir, envScript + "=" + e.script, envCounters + "=" + e.counters}
}

func newEngine(t testing.TB, script, counters string, lines []string) *Engine {
	e := &Engine{t: t, script: script, counters: counters, boot: int(time.Now().UnixNano() % 1e9)}
	e.first = e.read()
	e.Play(lines...)
	return e
}

// Play replaces the script without restarting the engine.
func (e *Engine) Play(lines ...string) {
	e.t.Helper()
	e.lines = slices.Clone(lines)
	text := fmt.Sprintf("boot %d\n%s\n", e.boot, strings.Join(lines, "\n"))
	temporary := e.script + ".new"
	if err := os.WriteFile(temporary, []byte(text), 0o600); err != nil {
		e.t.Fatal(err)
	}
	if err := os.Rename(temporary, e.script); err != nil {
		e.t.Fatal(err)
	}
}

// Add appends lines to the script.
func (e *Engine) Add(lines ...string) {
	e.t.Helper()
	e.Play(append(slices.Clone(e.lines), lines...)...)
}

// Remove removes all lines that begin with the prefix from the script.
func (e *Engine) Remove(prefix string) {
	e.t.Helper()
	e.Play(slices.DeleteFunc(slices.Clone(e.lines), func(line string) bool {
		return strings.HasPrefix(line, prefix)
	})...)
}

// Replace replaces old with new in every line.
func (e *Engine) Replace(old, new string) {
	e.t.Helper()
	lines := slices.Clone(e.lines)
	for i := range lines {
		lines[i] = strings.ReplaceAll(lines[i], old, new)
	}
	e.Play(lines...)
}

// Restart restarts the engine, which closes its connections.
func (e *Engine) Restart() {
	e.t.Helper()
	e.boot++
	e.Play(e.lines...)
}

// Count returns how much a counter has grown since New. Counters include "calls.FUNCTION", "live.reads",
// "unbounded.watches", and "log.LEVEL", the number of times that libdcgm was started with the log level.
func (e *Engine) Count(name string) int64 {
	e.t.Helper()
	return e.read()[name] - e.first[name]
}

// Calls returns the number of calls of each library function since New. It omits functions that were not called.
func (e *Engine) Calls() map[string]int64 {
	calls := map[string]int64{}
	for name, n := range e.read() {
		if f, ok := strings.CutPrefix(name, "calls."); ok && n != e.first[name] {
			calls[f] = n - e.first[name]
		}
	}
	return calls
}

// Open returns the number of open handles by kind: "init", "embedded", "connections", "groups", "fieldgroups",
// "watches". Kinds without open handles are left out.
func (e *Engine) Open() map[string]int64 {
	open := map[string]int64{}
	for name, n := range e.read() {
		if kind, ok := strings.CutPrefix(name, "open."); ok && n != 0 {
			open[kind] = n
		}
	}
	return open
}

// Blocked returns the number of calls that wait because of the script's block lines.
func (e *Engine) Blocked() int64 { return e.read()["blocked"] }

// Held returns the number of calls that are delayed by a slow GPU or an engine that is down.
func (e *Engine) Held() int64 { return e.read()["held"] }

// Address returns the address of the latest attempt to connect. Addresses of Unix sockets have the prefix "unix socket
// ".
func (e *Engine) Address() string {
	data, err := os.ReadFile(e.counters)
	if err != nil || len(data) < fileSize {
		return ""
	}
	return cString(data[maxCounters*counterSize:])
}

// Layout of the counters file (library/world.c).
const (
	maxCounters = 96
	nameSize    = 56
	counterSize = nameSize + 8
	fileSize    = maxCounters*counterSize + 512
)

func (e *Engine) read() map[string]int64 {
	counters := map[string]int64{}
	data, err := os.ReadFile(e.counters)
	if err != nil || len(data) < fileSize {
		return counters // no call yet
	}
	for i := range maxCounters {
		entry := data[i*counterSize:][:counterSize]
		if name := cString(entry[:nameSize]); name != "" {
			counters[name] = int64(binary.LittleEndian.Uint64(entry[nameSize:]))
		}
	}
	return counters
}

func cString(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}
