// Package folder makes folders for tests: of files that a test spells out, or of what root has built for
// a whole package.
package folder

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// Of writes files, each under its path within it, into a folder that goes with the test.
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

// Run has build fill a new folder, runs the tests and removes the folder. It returns the exit code:
// 1 where the process is not root's or build fails. Name is that of the package in messages.
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
		return 0, errors.New("these tests build, install and run as root")
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
