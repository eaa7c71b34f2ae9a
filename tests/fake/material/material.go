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

// The variables that change what an absence does.
const (
	require = "REQUIRE_SHARED_MATERIAL"
	counter = "SKIPPED_CHECKS"
)

// reason is the type of the skip.
const reason = "shared-material-absent"

// Path returns where something of the material lies, by its slash-separated name below the folder
// shared that lies beside the repository. It ends the test where there is nothing of that name.
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

// errNoModule is for a test that runs outside the repository.
var errNoModule = errors.New("no go.mod in this folder or above it")

// find returns the path of a name, and an error that wraps fs.ErrNotExist where there is none.
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

// absent ends the test: a skip that is counted, or a failure.
func absent(t testing.TB, err error) {
	t.Helper()
	if !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err) // it is there and cannot be read
	}
	if os.Getenv(require) == "1" {
		t.Fatalf("%s is 1: %v", require, err)
	}
	Skip(t, reason, err)
}

// count appends a line. Several test binaries append to one file: a line is one write.
func count(path, reason, test string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	program := strings.TrimSuffix(filepath.Base(os.Args[0]), ".test")
	_, err = fmt.Fprintf(f, "%s %s.%s\n", reason, program, test)
	return errors.Join(err, f.Close())
}

// Skip ends a test that lacks a program or something else of the machine, with a typed reason of a
// word or several with dashes, and counts it as Path does.
func Skip(t testing.TB, reason string, why error) {
	t.Helper()
	if path := os.Getenv(counter); path != "" {
		if err := count(path, reason, t.Name()); err != nil {
			t.Fatalf("%s: %v", counter, err)
		}
	}
	t.Skipf("SKIP %s: %v", reason, why)
}
