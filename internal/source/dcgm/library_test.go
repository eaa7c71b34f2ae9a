//go:build linux && cgo

package dcgm_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/dcgm"
	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
)

// envRemote makes TestOpenInChild open a session, in a process started with another library.
const (
	envRemote = "DCGM_TEST_OPEN"
	envLog    = "DCGM_TEST_LOG"
)

// TestOpenInChild is the child of TestLibrary.
func TestOpenInChild(t *testing.T) {
	remote, asked := os.LookupEnv(envRemote)
	if !asked {
		t.Skip("skip: only a child process of TestLibrary runs it")
	}
	src := dcgm.New(dcgm.Options{Remote: engineAt(remote), EngineLog: os.Getenv(envLog)})
	for range 2 { // a missing library is searched again
		s, err := src.Open(context.Background(), planOf(field(150, onGPU)))
		if err == nil {
			t.Log("opened")
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			continue
		}
		t.Logf("reason %s: %v", gpu.Reason(err), err)
	}
}

// openInChild runs TestOpenInChild in a child process, and returns its engine and output.
func openInChild(t *testing.T, env ...string) (*fakedcgm.Engine, string) {
	t.Helper()
	e, more := fakedcgm.NewFor(t, world()...)
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestOpenInChild$", "-test.v")
	cmd.Env = slices.Concat(os.Environ(), more, env)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("child process failed: %v\n%s", err, out)
	}
	return e, string(out)
}

// If a library is missing, broken or too old, there is a clear error, and the process never crashes.
func TestLibrary(t *testing.T) {
	fakedcgm.Require(t)
	build := func(without ...string) string {
		dir, err := fakedcgm.Build(without...)
		fakedcgm.Need(t, err)
		return dir
	}
	broken := t.TempDir()
	if err := os.WriteFile(filepath.Join(broken, "libdcgm.so.4"), []byte("no library"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		dir, remote string
		words       []string
	}{
		"whole": {build(), "", []string{"opened"}},
		"missing": {t.TempDir(), "",
			[]string{"reason unavailable", "cannot be loaded", "install DCGM 4", "LD_LIBRARY_PATH"}},
		"broken": {broken, "", []string{"reason unavailable", "cannot be loaded", broken}},
		"without a symbol that thin.h needs": {build("dcgmGetLatestValues_v2"), "",
			[]string{"reason version", "does not have dcgmGetLatestValues_v2", "DCGM 4.0 or newer"}},
		"without a symbol that go-dcgm needs": {build("dcgmGetGpuStatus"), "",
			[]string{"reason version", "does not have dcgmGetGpuStatus"}},
		"without vsock, for a vsock address": {build("dcgmConnect_v3"), "vsock://3",
			[]string{"reason version", "vsock needs DCGM 4.5"}},
		"without vsock, for a TCP address": {build("dcgmConnect_v3"), "10.0.0.9", []string{"opened"}},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "missing" && installed() {
				t.Skip("skip: this machine has a real libdcgm.so.4")
			}
			e, out := openInChild(t, "LD_LIBRARY_PATH="+tt.dir, envRemote+"="+tt.remote)
			mentions(t, out, tt.words...)
			if n := strings.Count(out, tt.words[0]); n != 2 {
				t.Errorf("%q occurs %d times, want twice:\n%s", tt.words[0], n, out)
			}
			if open := e.Open(); len(open) > 0 {
				t.Errorf("handles left open at the engine = %v, want none", open)
			}
		})
	}
}

// libdcgm's log is enabled before the library is loaded, and only if requested.
func TestEngineLog(t *testing.T) {
	for level, want := range map[string]int64{"DEBUG": 2, "": 0} {
		e, _ := openInChild(t, envRemote+"=", envLog+"="+level)
		if n := e.Count("log.DEBUG"); n != want {
			t.Errorf("level %q: starts of libdcgm with log level DEBUG = %d, want %d", level, n, want)
		}
	}
}

// installed reports whether the loader finds a real DCGM library.
func installed() bool {
	out, err := exec.Command("ldconfig", "-p").Output()
	return err == nil && strings.Contains(string(out), "libdcgm.so.4")
}

// The structures in thin.h have the same layout as those in go-dcgm's headers.
func TestABI(t *testing.T) {
	headers, err := fakedcgm.Headers()
	if err != nil {
		t.Fatal(err)
	}
	gcc, err := exec.LookPath("gcc")
	if errors.Is(err, exec.ErrNotFound) {
		fakedcgm.Require(t)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	compile := func(t *testing.T, define string) ([]byte, error) {
		cmd := exec.Command(gcc, "-fsyntax-only", "-Wall", "-Werror", "-I", headers, "-I", here, define,
			filepath.Join("testdata", "abi.c"))
		return cmd.CombinedOutput()
	}
	if out, err := compile(t, "-DABI"); err != nil {
		t.Errorf("thin.h differs from go-dcgm's headers: %v\n%s", err, out)
	}
	if out, err := compile(t, "-DABI_WRONG"); err == nil {
		t.Errorf("check accepted a wrong layout, want an error:\n%s", out)
	}
}
