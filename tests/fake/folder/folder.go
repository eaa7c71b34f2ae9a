// Package folder creates folders for tests: with files given by a test, or built once by root for all tests of a
// package.
package folder

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// Of writes files into a temporary folder and returns it. The keys are paths relative to the folder.
func Of(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Run calls build with a new folder, runs the tests and removes the folder. It returns the exit code, which is 1 if the
// user is not root or build fails. name is the package's name in messages.
func Run(m *testing.M, name string, build func(folder string) error) int {
	flag.Parse()
	code, err := run(m, name, build)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		return 1
	}
	return code
}

func run(m *testing.M, name string, build func(string) error) (int, error) {
	if os.Getuid() != 0 {
		return 0, errors.New("these tests need root: they build, install and run programs")
	}
	folder, err := os.MkdirTemp("", "dcgm-exporter-"+name+"-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(folder)
	if err := build(folder); err != nil {
		return 0, err
	}
	return m.Run(), nil
}
