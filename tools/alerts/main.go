// Command alerts writes texts that are derived from the table of XIDs in internal/catalog and from the rules in
// internal/verdict. These are the group gpu-xids in deployment/rules/alerts-gpu.yml, the table of XIDs in
// docs/runbooks.md, the tables in docs/verdict.md, and the XIDs in gpuop's glossary. "make generate" runs it in the
// root of the repository.
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := run("."); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(root string) error {
	parts, err := derived()
	if err != nil {
		return err
	}
	for _, p := range parts {
		path := filepath.Join(root, p.file)
		old, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		text, err := p.replaceIn(old)
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// part is a generated text that goes between two markers in a file.
type part struct{ file, begin, end, text string }

// replaceIn returns content with the text between the markers replaced. It returns an error if a marker is missing.
func (p *part) replaceIn(content []byte) ([]byte, error) {
	head, rest, begins := bytes.Cut(content, []byte(p.begin))
	_, tail, ends := bytes.Cut(rest, []byte(p.end))
	if !begins || !ends {
		return nil, fmt.Errorf("%s: expected the markers %q and %q", p.file, p.begin, p.end)
	}
	return bytes.Join([][]byte{head, []byte(p.begin + p.text + p.end), tail}, nil), nil
}
