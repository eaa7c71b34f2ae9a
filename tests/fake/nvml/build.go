package nvml

import (
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/material"
)

// Soname is the file name of the library.
const Soname = "libnvidia-ml.so.1"

// ErrNoCompiler is returned if gcc is not installed.
var ErrNoCompiler = errors.New("no C compiler")

//go:embed lib/nvml.c
var source []byte

// Build links the library into dir and returns its path. The library does not export the symbols in without, like an
// older driver. If gcc is not installed, the error wraps ErrNoCompiler.
func Build(dir string, without ...string) (string, error) {
	gcc, object, err := compiled()
	if err != nil {
		return "", err
	}
	script := "{ local: " + strings.Join(append([]string{"none"}, without...), "; ") + "; };\n"
	if err := os.WriteFile(filepath.Join(dir, "exports"), []byte(script), 0o600); err != nil {
		return "", err
	}
	cmd := exec.Command(gcc, "-shared", "-pthread", "-Wl,-soname,"+Soname, "-Wl,--version-script,exports", "-o", Soname,
		object)
	cmd.Dir = dir // dir may contain characters at which gcc splits options
	if msg, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("link %s: %w\n%s", Soname, err, msg)
	}
	return filepath.Join(dir, Soname), nil
}

// compiled returns the compiler and the object file to link. The object file is compiled only if the machine has none
// for this source.
func compiled() (gcc, object string, err error) {
	if gcc, err = exec.LookPath("gcc"); err != nil {
		return "", "", fmt.Errorf("%w: %w", ErrNoCompiler, err)
	}
	object, err = compile(gcc)
	return gcc, object, err
}

// headers returns the folder of go-nvml's C headers in the module cache.
var headers = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/NVIDIA/go-nvml").Output()
	if err != nil {
		return "", fmt.Errorf("find go-nvml: %w", err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "gen", "nvml"), nil
})

func compile(gcc string) (string, error) {
	include, err := headers()
	if err != nil {
		return "", err
	}
	args := []string{
		"-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-fPIC", "-pthread", "-DNVML_NO_UNVERSIONED_FUNC_DEFS=1",
		"-I", include,
	}
	hash := sha256.Sum256(fmt.Appendf(nil, "%s %q %s", gcc, args, source))
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("fakenvml-%d-%x", os.Getuid(), hash[:8]))
	object := filepath.Join(dir, "nvml.o")
	if _, err := os.Stat(object); err == nil {
		return object, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	// Several test binaries may compile at the same time. A rename makes sure that none of them links a partial object
	// file.
	work, err := os.MkdirTemp(dir, "work-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	if err := os.WriteFile(filepath.Join(work, "nvml.c"), source, 0o600); err != nil {
		return "", err
	}
	cmd := exec.Command(gcc, append(args, "-c", "-o", "nvml.o", "nvml.c")...)
	cmd.Dir = work
	if msg, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compile nvml.c: %w\n%s", err, msg)
	}
	return object, os.Rename(filepath.Join(work, "nvml.o"), object)
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
		t.Fatal(err)
	}
}
