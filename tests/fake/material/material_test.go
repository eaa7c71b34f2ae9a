package material

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// A repository in a temporary folder, with material beside it; the working directory is a package
// of it.
func repository(t *testing.T) {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{"repo/go.mod": "module x\n", "repo/a/b/c.go": "package b\n", "shared/data/x.json": "{}"} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(filepath.Join(root, "repo", "a", "b"))
	t.Setenv(require, "")
	t.Setenv(counter, "")
}

// outcome runs a check, and returns how it ended.
func outcome(t *testing.T, check func(t testing.TB)) *recorder {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		check(r)
		r.passed = true
	}()
	<-done
	return r
}

// A recorder keeps how a test ended, and ends its goroutine alone.
type recorder struct {
	testing.TB
	passed          bool
	skipped, failed string
}

func TestPath(t *testing.T) {
	repository(t)
	if r := outcome(t, func(t testing.TB) { _ = string(Read(t, "data/x.json")) }); !r.passed {
		t.Errorf("what is there: %+v", r)
	}
	lines := filepath.Join(t.TempDir(), "skipped")
	t.Setenv(counter, lines)
	for range 2 {
		if r := outcome(t, func(t testing.TB) { Path(t, "data/none.json") }); !strings.HasPrefix(r.skipped, "SKIP shared-material-absent: ") {
			t.Errorf("what is not there: %+v", r)
		}
	}
	text, err := os.ReadFile(lines)
	if want := strings.Repeat("shared-material-absent material.TestPath\n", 2); err != nil || string(text) != want {
		t.Errorf("counted %q, %v; want %q", text, err, want)
	}
	t.Setenv(require, "1")
	if r := outcome(t, func(t testing.TB) { Path(t, "data/none.json") }); !strings.HasPrefix(r.failed, "REQUIRE_SHARED_MATERIAL is 1: ") {
		t.Errorf("what is required: %+v", r)
	}
}

// A folder that cannot be looked into is no absence.
func TestUnreadable(t *testing.T) {
	repository(t)
	if r := outcome(t, func(t testing.TB) { Path(t, "data/x.json/y") }); r.failed == "" || r.skipped != "" {
		t.Errorf("below a file: %+v", r)
	}
}

func (r *recorder) Helper() {}

func (r *recorder) Skipf(format string, args ...any) {
	r.skipped = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.failed = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Fatal(args ...any) {
	r.failed = fmt.Sprint(args...)
	runtime.Goexit()
}
