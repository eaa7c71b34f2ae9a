// Package folder reads and writes files in tests. It can also build a folder once, as root, for all tests of a package.
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
		Write(t, filepath.Join(dir, name), text)
	}
	return dir
}

// Write writes a file, and creates its folder if necessary.
func Write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Read returns the content of a file.
func Read(t testing.TB, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Files returns the paths that match a pattern, sorted. The test ends if there are none.
func Files(t testing.TB, pattern ...string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(pattern...))
	if err != nil || len(files) == 0 {
		t.Fatalf("no file matches %s (error %v)", filepath.Join(pattern...), err)
	}
	return files
}

// RunAsRoot is like Run. It returns 1 if the user is not root.
func RunAsRoot(m *testing.M, name string, build func(folder string) error) int {
	return Run(m, name, func(folder string) error {
		if os.Getuid() != 0 {
			return errors.New("these tests need root: they build, install and run programs")
		}
		return build(folder)
	})
}

// Run calls build with a new folder, runs the tests and removes the folder. It returns the exit code, which is 1 if
// build fails. name is the package's name in messages.
func Run(m *testing.M, name string, build func(folder string) error) int {
	flag.Parse()
	folder, err := os.MkdirTemp("", "dcgm-exporter-"+name+"-")
	if err == nil {
		defer os.RemoveAll(folder)
		err = build(folder)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		return 1
	}
	return m.Run()
}
