package material

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
)

// A recorder keeps how a test failed, and ends its goroutine alone.
type recorder struct {
	testing.TB
	failed string
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.failed = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func TestPath(t *testing.T) {
	root := folder.Of(t, map[string]string{"repo/go.mod": "module x\n", "repo/a/b/c.go": "package b\n", "shared/data/x.json": "{}"})
	lines := filepath.Join(root, "skipped")
	t.Chdir(filepath.Join(root, "repo", "a", "b"))
	t.Setenv(require, "")
	t.Setenv(counter, lines)
	if got := string(Read(t, "data/x.json")); got != "{}" {
		t.Errorf("read %q", got)
	}
	// A folder that cannot be looked into is no absence.
	if _, err := find("data/x.json/y"); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("below a file: %v", err)
	}
	for range 2 {
		t.Run("absent", func(t *testing.T) {
			Path(t, "data/none.json")
			t.Error("a path of nothing")
		})
	}
	text, err := os.ReadFile(lines)
	want := "shared-material-absent material.TestPath/absent\nshared-material-absent material.TestPath/absent#01\n"
	if err != nil || string(text) != want {
		t.Errorf("counted %q, %v; want %q", text, err, want)
	}
	t.Setenv(require, "1")
	r, done := &recorder{TB: t}, make(chan struct{})
	go func() {
		defer close(done)
		Path(r, "data/none.json")
	}()
	<-done
	if !strings.HasPrefix(r.failed, "REQUIRE_SHARED_MATERIAL is 1: ") {
		t.Errorf("a required one: %q", r.failed)
	}
}
