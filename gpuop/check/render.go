package check

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"strings"
)

// WriteJSON writes v as indented JSON with a final newline.
func WriteJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// MarshalJSON encodes a report without findings as an empty list instead of null.
func (r Report) MarshalJSON() ([]byte, error) {
	type plain Report
	if r.Rows == nil {
		r.Rows = []Finding{}
	}
	return json.Marshal(struct {
		plain
		Summary string `json:"summary"`
	}{plain(r), r.Summary()})
}

// MarshalJSON adds the source of the check.
func (r Finding) MarshalJSON() ([]byte, error) {
	type plain Finding
	return json.Marshal(struct {
		plain
		Source string `json:"source"`
	}{plain(r), r.Check.Source})
}

// object is a JSON object.
type object = map[string]any

// WriteSARIF writes the findings that are not OK as a SARIF 2.1.0 log.
func (r *Report) WriteSARIF(w io.Writer, tool, version string) error {
	rules, results := []object{}, []object{}
	index := map[*Check]int{}
	for _, row := range r.Rows {
		if row.Severity == OK {
			continue
		}
		at, known := index[row.Check]
		if !known {
			at = len(rules)
			index[row.Check] = at
			rules = append(rules, object{
				"id": row.Check, "shortDescription": object{"text": row.Check.Title}, "help": object{"text": row.Check.Help},
			})
		}
		result := object{
			"ruleId": row.Check, "ruleIndex": at, "level": row.Severity, "message": object{"text": row.sentence()},
		}
		if row.File != "" {
			place := object{"artifactLocation": object{"uri": uriOf(row.File)}}
			if row.Line > 0 {
				place["region"] = object{"startLine": row.Line, "startColumn": max(row.Column, 1)}
			}
			result["locations"] = []object{{"physicalLocation": place}}
		}
		results = append(results, result)
	}
	driver := object{"name": tool, "version": version, "rules": rules}
	return WriteJSON(w, object{"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0",
		"runs": []object{{"tool": object{"driver": driver}, "results": results}}})
}

// uriOf returns the name of a file as a URI reference.
func uriOf(name string) string {
	name = filepath.ToSlash(filepath.Clean(name))
	if strings.HasPrefix(name, "/") {
		return (&url.URL{Scheme: "file", Path: name}).String()
	}
	return (&url.URL{Path: name}).EscapedPath()
}

// sentence returns the finding as one message: nodes, subject, reason, fix and source.
func (r *Finding) sentence() string {
	text := r.Reason
	if r.Subject != "" {
		text = r.Subject + ": " + text
	}
	if on := cmp.Or(r.Node, r.Nodes); on != "" {
		text = on + ": " + text
	}
	if r.Fix != "" {
		text += fmt.Sprintf(" (fix: %s)", strings.ReplaceAll(r.Fix, "\n", "; "))
	}
	return text + fmt.Sprintf(" [%s]", r.Check.Source)
}
