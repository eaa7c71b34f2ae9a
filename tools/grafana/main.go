//go:build generate

// Command gen writes the Grafana dashboards in grafana/. The Helm chart's copies of them are made
// by make chart.
//
// A dashboard is a file here: its variables, its rows, its panels. query.go has the PromQL that
// they share: a DCGM field in either vocabulary, the owner of a series, the name of a node.
// panel.go and board.go turn them into Grafana's model with grafana-foundation-sdk, which nothing
// else of the repository needs. go generate runs it; tests/dashboards tests what it writes.
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
		fmt.Fprintln(os.Stderr, "gen FOLDER writes the dashboards to FOLDER")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

// boards are the dashboards in the order in which they are linked.
func boards() []board {
	return []board{fleet(), node(), workload(), mig(), reliability(), exporter()}
}

func run(folder string) error {
	var links []string // placeholders of panels and their ids
	for _, b := range boards() {
		links = append(links, b.panelIDs()...)
	}
	for _, b := range boards() {
		text, err := b.render()
		if err != nil {
			return fmt.Errorf("%s: %w", b.file, err)
		}
		text = []byte(strings.NewReplacer(links...).Replace(string(text)))
		if i := bytes.Index(text, []byte("{{panel ")); i >= 0 {
			return fmt.Errorf("%s: a link to an unknown panel: %.60s", b.file, text[i:])
		}
		if err := os.WriteFile(filepath.Join(folder, b.file+".json"), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// encode writes JSON as it is read most easily: indented, with the characters of PromQL as they
// are.
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
