// Command metrics writes pages of the documentation from the catalog and the exporter's code:
//
//   - docs/metrics.md lists every family that the exporter can serve.
//   - docs/operations.md gets the columns "type" and "labels" of its tables.
//   - docs/flags.md lists every setting.
//
// "make generate" runs it in the root of the repository. It needs cgo to find out which fields the sources read.
package main

import (
	"fmt"
	"go/token"
	"os"
	"path/filepath"
)

// writer writes the pages and keeps the first error.
type writer struct {
	err   error
	files *token.FileSet // positions in the Go files that walkCode visits
}

func (w *writer) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
}

func main() {
	w := &writer{}
	for name, text := range map[string]string{
		"metrics.md": w.reference(), "operations.md": w.operations(), "flags.md": w.flags(),
	} {
		if w.err == nil {
			w.err = os.WriteFile(filepath.Join("docs", name), []byte(text), 0o644)
		}
	}
	if w.err != nil {
		fmt.Fprintln(os.Stderr, w.err)
		os.Exit(1)
	}
}
