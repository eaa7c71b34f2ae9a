// Command metrics writes docs/metrics.md, which lists every family that the exporter can serve, and the columns "type"
// and "labels" in docs/operations.md. It reads the catalog and the exporter's code. "make generate" runs it in the root
// of the repository. It needs cgo to find out which fields the sources read.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// writer writes the pages and keeps the first error.
type writer struct{ err error }

func (w *writer) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
}

func main() {
	w := &writer{}
	for name, text := range map[string]string{"metrics.md": w.reference(), "operations.md": w.operations()} {
		if w.err == nil {
			w.err = os.WriteFile(filepath.Join("docs", name), []byte(text), 0o644)
		}
	}
	if w.err != nil {
		fmt.Fprintln(os.Stderr, w.err)
		os.Exit(1)
	}
}
