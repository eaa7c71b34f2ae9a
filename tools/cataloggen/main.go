// Command cataloggen writes two generated files of package catalog: the entries, and the constants for field IDs.
//
// It reads IDs and names from the go-dcgm module in the module cache. facts.csv and names.csv have what go-dcgm lacks:
// levels, units, ranges, help texts and newer names. "go generate ./internal/catalog" runs the command.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"go/format"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// module is the Go module that defines the IDs and names of fields.
const module = "github.com/NVIDIA/go-dcgm"

func main() {
	out := flag.String("o", "entries_gen.go", "Go `file` to write the entries to")
	ids := flag.String("ids", "ids_gen.go", "Go `file` to write the IDs to")
	facts := flag.String("facts", "../../tools/cataloggen", "`folder` with facts.csv and names.csv")
	flag.Parse()
	if err := run(*out, *ids, *facts); err != nil {
		fmt.Fprintln(os.Stderr, "cataloggen:", err)
		os.Exit(1)
	}
}

func run(out, ids, facts string) error {
	dir, version, err := moduleDir()
	if err != nil {
		return err
	}
	fields, err := readModule(filepath.Join(dir, "pkg", "dcgm"))
	if err != nil {
		return fmt.Errorf("read %s: %w", module, err)
	}
	if err := applyFacts(fields, filepath.Join(facts, "facts.csv")); err != nil {
		return err
	}
	if err := applyNames(fields, filepath.Join(facts, "names.csv")); err != nil {
		return err
	}
	for path, write := range map[string]func(io.Writer){
		out: func(w io.Writer) { writeEntries(w, fields, version) },
		ids: func(w io.Writer) { writeIDs(w, fields, version) },
	} {
		var code bytes.Buffer
		write(&code)
		source, err := format.Source(code.Bytes())
		if err != nil {
			return fmt.Errorf("format %s: %w", path, err)
		}
		if err := os.WriteFile(path, source, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// moduleDir returns the directory and version of the module, as required by go.mod.
func moduleDir() (dir, version string, err error) {
	output, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}\n{{.Version}}", module).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return "", "", fmt.Errorf("find %s: %s", module, bytes.TrimSpace(exit.Stderr))
		}
		return "", "", fmt.Errorf("find %s: %w", module, err)
	}
	dir, version, _ = strings.Cut(strings.TrimSpace(string(output)), "\n")
	if dir == "" {
		return "", "", fmt.Errorf("%s is not in the module cache: run go mod download", module)
	}
	return dir, version, nil
}
