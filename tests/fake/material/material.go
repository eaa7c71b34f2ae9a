package material

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Environment variables that control what happens if material is missing.
const (
	require = "REQUIRE_SHARED_MATERIAL"
	counter = "SKIPPED_CHECKS"
)

// reason names the skips of tests whose material is missing.
const reason = "shared-material-absent"

// Path returns the path of a file or folder in the shared material. name is relative to the folder shared next to the
// repository and uses slashes. If there is no such file, Path skips the test, or fails it if REQUIRE_SHARED_MATERIAL is
// 1.
func Path(t testing.TB, name string) string {
	t.Helper()
	path, err := find(name)
	if err != nil {
		absent(t, err)
	}
	return path
}

// Read returns the content of a file of the material; see Path.
func Read(t testing.TB, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(Path(t, name))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// errNoModule is returned if a test runs outside the repository.
var errNoModule = errors.New("no go.mod in this folder or a parent")

// find returns the path for a name. If there is no such file or folder, the error wraps fs.ErrNotExist.
func find(name string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errNoModule
		}
		dir = parent
	}
	path := filepath.Join(filepath.Dir(dir), "shared", filepath.FromSlash(name))
	_, err = os.Stat(path)
	return path, err
}

// absent skips the test and counts the skip, or fails the test.
func absent(t testing.TB, err error) {
	t.Helper()
	if !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err) // it exists but cannot be read, or the test runs outside the repository
	}
	if os.Getenv(require) == "1" {
		t.Fatalf("%s is 1: %v", require, err)
	}
	Skip(t, reason, err)
}

// count appends a line with the reason and the test. It writes it in one call, because several test binaries append to
// the file.
func count(path, reason, test string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	program := strings.TrimSuffix(filepath.Base(os.Args[0]), ".test")
	_, err = fmt.Fprintf(f, "%s %s.%s\n", reason, program, test)
	return errors.Join(err, f.Close())
}

// Skip skips a test that needs a program or something else that the machine does not have. The reason is one word, or
// several joined with dashes. If SKIPPED_CHECKS is set, the skip is appended to that file; see the package comment.
func Skip(t testing.TB, reason string, why error) {
	t.Helper()
	if path := os.Getenv(counter); path != "" {
		if err := count(path, reason, t.Name()); err != nil {
			t.Fatalf("%s: %v", counter, err)
		}
	}
	t.Skipf("SKIP %s: %v", reason, why)
}
