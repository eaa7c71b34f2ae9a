package check

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
)

// WriteJSON writes v as indented JSON with a final newline.
func WriteJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// MarshalJSON adds the summary, and encodes an empty list of findings as [] instead of null.
func (r Report) MarshalJSON() ([]byte, error) {
	type plain Report
	if r.Findings == nil {
		r.Findings = []Finding{}
	}
	return json.Marshal(struct {
		plain
		Summary string `json:"summary"`
	}{plain(r), r.Summary()})
}

// MarshalJSON adds the source of the check to the finding.
func (f Finding) MarshalJSON() ([]byte, error) {
	type plain Finding
	return json.Marshal(struct {
		plain
		Source string `json:"source"`
	}{plain(f), f.Check.Source})
}

type object = map[string]any

// WriteSARIF writes the findings that are not OK as a SARIF 2.1.0 log.
func (r *Report) WriteSARIF(w io.Writer, tool, version string) error {
	rules, results, checks := []object{}, []object{}, []*Check{}
	for _, f := range r.Findings {
		if f.Severity == OK {
			continue
		}
		if !slices.Contains(checks, f.Check) {
			checks = append(checks, f.Check)
			rules = append(rules, object{"id": f.Check, "shortDescription": object{"text": f.Check.Title},
				"help": object{"text": f.Check.Help}})
		}
		result := object{"ruleId": f.Check, "ruleIndex": slices.Index(checks, f.Check), "level": f.Severity,
			"message": object{"text": f.sentence()}}
		if f.File != "" {
			place := object{"artifactLocation": object{"uri": uriOf(f.File)}}
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

// uriOf returns the name of a file as a URI reference.
func uriOf(name string) string {
	uri := url.URL{Path: filepath.ToSlash(filepath.Clean(name))}
	if filepath.IsAbs(name) {
		uri.Scheme = "file"
	}
	return uri.String()
}

// sentence formats the finding as one message: nodes, subject, reason, fix and source.
func (f *Finding) sentence() string {
	parts := []string{cmp.Or(f.Node, f.Nodes), f.Subject, f.Reason}
	text := strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), ": ")
	if f.Fix != "" {
		text += fmt.Sprintf(" (fix: %s)", strings.ReplaceAll(f.Fix, "\n", "; "))
	}
	return text + fmt.Sprintf(" [%s]", f.Check.Source)
}
