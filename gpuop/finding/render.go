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

type sarifLog struct {
	Schema  string     `json:"$schema"`
	Version string     `json:"version"`
	Runs    []sarifRun `json:"runs"`
}

type sarifRun struct {
	Tool    sarifTool     `json:"tool"`
	Results []sarifResult `json:"results"`
}

type sarifTool struct {
	Driver sarifDriver `json:"driver"`
}

type sarifDriver struct {
	Name    string      `json:"name"`
	Version string      `json:"version,omitempty"`
	Rules   []sarifRule `json:"rules"`
}

type sarifRule struct {
	ID string `json:"id"`
}

type sarifMessage struct {
	Text string `json:"text"`
}

type sarifResult struct {
	RuleID    string          `json:"ruleId"`
	RuleIndex int             `json:"ruleIndex"`
	Level     string          `json:"level"`
	Message   sarifMessage    `json:"message"`
	Locations []sarifLocation `json:"locations,omitempty"`
}

type sarifLocation struct {
	Physical sarifPhysical `json:"physicalLocation"`
}

type sarifPhysical struct {
	Artifact sarifArtifact `json:"artifactLocation"`
	Region   *sarifRegion  `json:"region,omitempty"`
}

type sarifArtifact struct {
	URI string `json:"uri"`
}

type sarifRegion struct {
	StartLine   int `json:"startLine"`
	StartColumn int `json:"startColumn,omitempty"`
}

// WriteSARIF writes the report as a SARIF 2.1.0 log (OASIS standard) of one run by the named tool.
func (r *Report) WriteSARIF(w io.Writer, tool, version string) error {
	levels := [...]string{Info: "note", Warning: "warning", Error: "error"}
	run := sarifRun{Tool: sarifTool{sarifDriver{Name: tool, Version: version, Rules: []sarifRule{}}}, Results: []sarifResult{}}
	index := map[string]int{}
	for _, f := range r.Findings {
		at, known := index[f.ID]
		if !known {
			at = len(run.Tool.Driver.Rules)
			index[f.ID] = at
			run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, sarifRule{f.ID})
		}
		result := sarifResult{RuleID: f.ID, RuleIndex: at, Level: levels[f.Severity], Message: sarifMessage{f.sentence()}}
		if f.File != "" {
			place := sarifPhysical{Artifact: sarifArtifact{f.File}}
			if f.Line > 0 {
				place.Region = &sarifRegion{f.Line, f.Column}
			}
			result.Locations = []sarifLocation{{place}}
		}
		run.Results = append(run.Results, result)
	}
	return WriteJSON(w, sarifLog{
		Schema:  "https://json.schemastore.org/sarif-2.1.0.json",
		Version: "2.1.0",
		Runs:    []sarifRun{run},
	})
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
