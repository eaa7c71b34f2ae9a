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

// A recorder records a test failure and ends only the calling goroutine.
type recorder struct {
	testing.TB
	failed string
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.failed = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func TestPath(t *testing.T) {
	root := folder.Of(t,
		map[string]string{"repo/go.mod": "module x\n", "repo/a/b/c.go": "package b\n", "shared/data/x.json": "{}"})
	lines := filepath.Join(root, "skipped")
	t.Chdir(filepath.Join(root, "repo", "a", "b"))
	t.Setenv(require, "")
	t.Setenv(counter, lines)
	if got := string(Read(t, "data/x.json")); got != "{}" {
		t.Errorf("Read = %q, want the content of the file", got)
	}
	// A path that cannot be examined is an error, not a missing file.
	if _, err := find("data/x.json/y"); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("find below a file: error %v, want one that is not fs.ErrNotExist", err)
	}
	for range 2 {
		t.Run("absent", func(t *testing.T) {
			Path(t, "data/none.json")
			t.Error("Path of a missing file returned, want it to skip the test")
		})
	}
	text, err := os.ReadFile(lines)
	want := "shared-material-absent material.TestPath/absent\nshared-material-absent material.TestPath/absent#01\n"
	if err != nil || string(text) != want {
		t.Errorf("counter file = %q, %v; want %q", text, err, want)
	}
	t.Setenv(require, "1")
	r, done := &recorder{TB: t}, make(chan struct{})
	go func() {
		defer close(done)
		Path(r, "data/none.json")
	}()
	<-done
	if !strings.HasPrefix(r.failed, "REQUIRE_SHARED_MATERIAL is 1: ") {
		t.Errorf("with REQUIRE_SHARED_MATERIAL=1: failure %q", r.failed)
	}
}
