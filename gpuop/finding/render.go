package finding

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"sigs.k8s.io/yaml"
)

// WriteJSON writes v as indented JSON with a final newline.
func WriteJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// WriteYAML writes v as YAML, with the names of its JSON form.
func WriteYAML(w io.Writer, v any) error {
	data, err := yaml.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(data)
	return err
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

type junitSuites struct {
	XMLName xml.Name     `xml:"testsuites"`
	Suites  []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Name    string        `xml:"name,attr"`
	Class   string        `xml:"classname,attr"`
	File    string        `xml:"file,attr,omitempty"`
	Line    int           `xml:"line,attr,omitempty"`
	Failure *junitFailure `xml:"failure"`
}

type junitFailure struct {
	Type    string `xml:"type,attr"`
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// WriteJUnit writes the report in the JUnit form that CI systems read: a case for each finding,
// failed when it is at least as severe as failOn. A report without findings is one passed case.
func (r *Report) WriteJUnit(w io.Writer, suite string, failOn Severity) error {
	s := junitSuite{Name: suite}
	for _, f := range r.Findings {
		c := junitCase{Name: xmlText(strings.TrimSpace(f.ID + " " + f.Subject)), Class: suite, File: xmlText(f.File), Line: f.Line}
		if f.Severity >= failOn {
			c.Failure = &junitFailure{Type: f.Severity.String(), Message: xmlText(f.Reason), Text: xmlText(f.Fix)}
			s.Failures++
		}
		s.Cases = append(s.Cases, c)
	}
	if len(s.Cases) == 0 {
		s.Cases = []junitCase{{Name: "no findings", Class: suite}}
	}
	s.Tests = len(s.Cases)
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(junitSuites{Suites: []junitSuite{s}}); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// xmlText drops the characters that XML 1.0 cannot carry.
func xmlText(s string) string { return strings.TrimSpace(OneLine(strings.ToValidUTF8(s, "�"))) }

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
