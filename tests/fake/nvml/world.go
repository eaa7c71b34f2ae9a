package nvml

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A World holds the files of a fake library: the script that it runs, and the ledger in which it counts calls.
type World struct {
	dir string
}

// NewFor writes the script for the library in another process. The test must start that process with the environment
// Env.
func NewFor(t testing.TB, script ...string) *World {
	t.Helper()
	w := &World{dir: t.TempDir()}
	w.Play(t, script...)
	return w
}

// NewWorld runs the script for the library in this process until the test ends. Tests that call it cannot be parallel.
func NewWorld(t testing.TB, script ...string) *World {
	t.Helper()
	w := NewFor(t, script...)
	for _, env := range w.Env() {
		name, value, _ := strings.Cut(env, "=")
		t.Setenv(name, value)
	}
	return w
}

// Env returns the environment that makes the library in another process run this script.
func (w *World) Env() []string {
	return []string{
		"FAKENVML_SCRIPT=" + filepath.Join(w.dir, "script"),
		"FAKENVML_LEDGER=" + filepath.Join(w.dir, "ledger"),
	}
}

// Play atomically replaces the script.
func (w *World) Play(t testing.TB, script ...string) {
	t.Helper()
	path := filepath.Join(w.dir, "script")
	next := path + ".next"
	if err := os.WriteFile(next, []byte(strings.Join(script, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
}

// Layout of a ledger entry: a name and a 64-bit count.
const (
	nameSize  = 56
	entrySize = nameSize + 8
)

// Ledger returns the counts by name. It is empty before the first nvmlInit.
func (w *World) Ledger(t testing.TB) map[string]uint64 {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(w.dir, "ledger"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	counts := map[string]uint64{}
	for ; len(data) >= entrySize; data = data[entrySize:] {
		name, _, _ := bytes.Cut(data[:nameSize], []byte{0})
		if len(name) == 0 {
			break
		}
		counts[string(name)] = binary.NativeEndian.Uint64(data[nameSize:])
	}
	return counts
}

// OpenHandles returns the number of open inits, event sets and GPM samples.
func (w *World) OpenHandles(t testing.TB) int {
	t.Helper()
	open := 0
	for name, n := range w.Ledger(t) {
		if strings.HasPrefix(name, "open-") {
			open += int(n)
		}
	}
	return open
}
