package finding

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// WriteJSON writes v as indented JSON with a final newline.
func WriteJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// MarshalJSON writes an empty list, never null, for an empty report.
func (r Report) MarshalJSON() ([]byte, error) {
	findings := r.Findings
	if findings == nil {
		findings = []Finding{}
	}
	return json.Marshal(struct {
		Findings []Finding `json:"findings"`
		Summary  string    `json:"summary"`
	}{findings, r.Summary()})
}

// object is one of JSON.
type object = map[string]any

// WriteSARIF writes the report as a SARIF 2.1.0 log (OASIS standard) of one run by the named tool.
func (r *Report) WriteSARIF(w io.Writer, tool, version string) error {
	levels := [...]string{Info: "note", Warning: "warning", Error: "error"}
	rules, results := []object{}, []object{}
	index := map[string]int{}
	for _, f := range r.Findings {
		at, known := index[f.ID]
		if !known {
			at = len(rules)
			index[f.ID] = at
			rules = append(rules, object{"id": f.ID})
		}
		result := object{"ruleId": f.ID, "ruleIndex": at, "level": levels[f.Severity], "message": object{"text": f.sentence()}}
		if f.File != "" {
			place := object{"artifactLocation": object{"uri": f.File}}
			if f.Line > 0 {
				place["region"] = object{"startLine": f.Line, "startColumn": max(f.Column, 1)}
			}
			result["locations"] = []object{{"physicalLocation": place}}
		}
		results = append(results, result)
	}
	driver := object{"name": tool, "version": version, "rules": rules}
	return WriteJSON(w, object{"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0",
		"runs": []object{{"tool": object{"driver": driver}, "results": results}}})
}

// sentence is the finding as one message: subject, reason, fix and source.
func (f Finding) sentence() string {
	text := f.Reason
	if f.Subject != "" {
		text = f.Subject + ": " + text
	}
	if f.Fix != "" {
		text += fmt.Sprintf(" (fix: %s)", strings.ReplaceAll(f.Fix, "\n", "; "))
	}
	if f.Source != "" {
		text += fmt.Sprintf(" [%s]", f.Source)
	}
	return text
}
