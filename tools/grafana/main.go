//go:build generate

// Command grafana writes the Grafana dashboards in grafana/. The Helm chart contains symbolic links to them.
//
// Each dashboard has its own file with its variables, rows and panels. query.go has the PromQL that dashboards share,
// such as a DCGM field in either vocabulary, the owner of a series and the name of a node. panel.go and board.go build
// Grafana's model with grafana-foundation-sdk.
//
// The package has the build tag "generate", which keeps that module out of the programs. "go generate" runs the
// command, and tests/dashboards tests its output.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

//go:generate go run -tags generate . ../../grafana

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: grafana FOLDER")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "grafana:", err)
		os.Exit(1)
	}
}

func boards() []board {
	return []board{fleet(), node(), workload(), mig(), reliability(), exporter()}
}

func run(folder string) error {
	all := boards()
	for _, b := range all {
		text, err := b.render()
		if err != nil {
			return fmt.Errorf("%s: %w", b.file, err)
		}
		text = []byte(strings.NewReplacer(b.listURLs(all)...).Replace(string(text)))
		if i := bytes.Index(text, []byte("{{list ")); i >= 0 {
			return fmt.Errorf("%s: link to an unknown panel: %.60s", b.file, text[i:])
		}
		if err := os.WriteFile(filepath.Join(folder, b.file+".json"), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// encode returns v as indented JSON. It does not escape HTML, so that PromQL stays readable.
func encode(v any) ([]byte, error) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return text.Bytes(), nil
}
