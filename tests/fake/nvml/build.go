package nvml

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Soname is the file name of the library.
const Soname = "libnvidia-ml.so.1"

// ErrNoCompiler says that this machine has no gcc.
var ErrNoCompiler = errors.New("no C compiler")

//go:embed lib/nvml.c
var source []byte

// Build compiles the library into dir and returns its path. The library does
// not export the symbols that are named in without, as an older driver would
// not. The error wraps ErrNoCompiler where there is no gcc.
func Build(dir string, without ...string) (string, error) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoCompiler, err)
	}
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/NVIDIA/go-nvml").Output()
	if err != nil {
		return "", fmt.Errorf("find go-nvml: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "nvml.c"), source, 0o600); err != nil {
		return "", err
	}
	script := "{ local: " + strings.Join(append([]string{"none"}, without...), "; ") + "; };\n"
	if err := os.WriteFile(filepath.Join(dir, "exports"), []byte(script), 0o600); err != nil {
		return "", err
	}
	cmd := exec.Command(gcc, "-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-fPIC", "-shared", "-pthread",
		"-DNVML_NO_UNVERSIONED_FUNC_DEFS=1", "-I", filepath.Join(strings.TrimSpace(string(out)), "gen", "nvml"),
		"-Wl,-soname,"+Soname, "-Wl,--version-script,exports", "-o", Soname, "nvml.c")
	cmd.Dir = dir // whose name may hold what a compiler splits options at
	if msg, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compile %s: %w\n%s", Soname, err, msg)
	}
	return filepath.Join(dir, Soname), nil
}

// Need ends the test if the library could not be built: it skips where there
// is no compiler, and fails everywhere else and where CI is true.
func Need(t testing.TB, err error) {
	t.Helper()
	switch {
	case err == nil:
	case errors.Is(err, ErrNoCompiler) && os.Getenv("CI") != "true":
		t.Skipf("SKIP compiler-absent: %v", err)
	default:
		t.Fatal(err)
	}
}
