// Command metrics writes docs/metrics.md: every family that the exporter can serve, from the catalog, the
// code and docs/operations.md. "make generate" runs it in the repository's root. It needs cgo, since the
// sources say themselves which fields they read.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// A writer makes the page and keeps the first error.
type writer struct{ err error }

func (w *writer) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
}

func main() {
	w := &writer{}
	text := w.reference()
	if w.err == nil {
		w.err = os.WriteFile(filepath.Join("docs", "metrics.md"), []byte(text), 0o644)
	}
	if w.err != nil {
		fmt.Fprintln(os.Stderr, w.err)
		os.Exit(1)
	}
}
