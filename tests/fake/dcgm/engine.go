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

// The environment of a process that loads the library.
const (
	envLibrary  = "LD_LIBRARY_PATH"
	envScript   = "FAKEDCGM_SCRIPT"
	envCounters = "FAKEDCGM_COUNTERS"
)

// Main is a TestMain: it builds the library, runs the test binary again with the library in place,
// and returns the exit code of m. Without gcc the tests run without the library, and New skips.
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

// environment returns what a process needs to load the library, with a folder of its own for the
// script and the counters.
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

// An Engine is the script that the library plays and the counters that it keeps. The library is one
// per process, so tests that use it cannot run in parallel.
type Engine struct {
	t        testing.TB
	script   string
	counters string
	boot     int
	lines    []string
	first    map[string]int64
}

// New returns an engine that plays the given lines, fresh from boot. A process without the library
// skips the test, or fails it where CI is "true".
func New(t testing.TB, lines ...string) *Engine {
	t.Helper()
	Require(t)
	return newEngine(t, os.Getenv(envScript), os.Getenv(envCounters), lines)
}

// Require skips the test in a process without the library, and fails it where CI is "true": a
// machine that runs CI has a compiler.
func Require(t testing.TB) {
	t.Helper()
	if os.Getenv(envScript) != "" {
		return
	}
	Need(t, ErrNoCompiler)
}

// Need ends the test if the library could not be built: it skips where there is no compiler, and
// fails everywhere else and where CI is true.
func Need(t testing.TB, err error) {
	t.Helper()
	switch {
	case err == nil:
	case errors.Is(err, ErrNoCompiler) && os.Getenv("CI") != "true":
		material.Skip(t, "compiler-absent", err)
	default:
		t.Fatalf("the test library: %v", err)
	}
}

// NewFor is New for another process: it returns the engine and the environment that the process
// needs.
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

// Play replaces the script. The engine stays the same one.
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

// Remove takes every line that starts with prefix out of the script.
func (e *Engine) Remove(prefix string) {
	e.t.Helper()
	e.Play(slices.DeleteFunc(slices.Clone(e.lines), func(line string) bool {
		return strings.HasPrefix(line, prefix)
	})...)
}

// Replace puts new in the place of the text old in every line.
func (e *Engine) Replace(old, new string) {
	e.t.Helper()
	lines := slices.Clone(e.lines)
	for i := range lines {
		lines[i] = strings.ReplaceAll(lines[i], old, new)
	}
	e.Play(lines...)
}

// Restart makes it another engine: the connections of the old one are dead.
func (e *Engine) Restart() {
	e.t.Helper()
	e.boot++
	e.Play(e.lines...)
}

// Count returns a counter's change since New: "calls.FUNCTION", "live.reads", "unbounded.watches",
// or "log.LEVEL" for each start with libdcgm's log on.
func (e *Engine) Count(name string) int64 {
	e.t.Helper()
	return e.read()[name] - e.first[name]
}

// Calls returns how often each function of the library was called since New.
func (e *Engine) Calls() map[string]int64 {
	calls := map[string]int64{}
	for name, n := range e.read() {
		if f, ok := strings.CutPrefix(name, "calls."); ok && n != e.first[name] {
			calls[f] = n - e.first[name]
		}
	}
	return calls
}

// Open returns how many handles are open, by kind: "init", "embedded", "connections", "groups",
// "fieldgroups", "watches". Kinds with none are left out.
func (e *Engine) Open() map[string]int64 {
	open := map[string]int64{}
	for name, n := range e.read() {
		if kind, ok := strings.CutPrefix(name, "open."); ok && n != 0 {
			open[kind] = n
		}
	}
	return open
}

// Blocked returns how many calls do not return at present.
func (e *Engine) Blocked() int64 { return e.read()["blocked"] }

// Held returns how many calls take their time at present, for a slow GPU or an engine that is down.
func (e *Engine) Held() int64 { return e.read()["held"] }

// Address returns the address of the latest attempt to connect. That of a unix socket begins with
// "unix socket ".
func (e *Engine) Address() string {
	data, err := os.ReadFile(e.counters)
	if err != nil || len(data) < fileSize {
		return ""
	}
	return cString(data[maxCounters*counterSize:])
}

// The layout of the counters' file (library/world.c).
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
		return counters // nothing was called yet
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
