package lint

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

var (
	// action is what Helm, Ansible, Terraform and their like replace in a template. What is between
	// ${ and } stands as it is: a shell's variables look the same.
	action = regexp.MustCompile(`(?s)\{\{.*?\}\}|\{%.*?%\}|%\{~?\s*(?:if|else|endif|for|endfor)\b[^}]*\}`)
	// control is an action that writes nothing itself.
	control = regexp.MustCompile(`^\{\{-?\s*(if|else|end|range|with|define|block|template|/\*|\$\w+\s*:?=)`)
)

// filled begins what stands for the output of an action: a value that another program fills in.
const filled = "$___"

// untemplated makes YAML of a template, as far as that goes: actions that stand in a line become
// values that are not known, all others go. Every place stays where it is. ok is false for what is
// no template.
func untemplated(data []byte) (out []byte, ok bool) {
	if !action.Match(data) {
		return data, false
	}
	out = slices.Clone(data)
	for _, m := range action.FindAllIndex(data, -1) {
		start, end := m[0], m[1]
		text := data[start:end]
		before := data[bytes.LastIndexByte(data[:start], '\n')+1 : start]
		after, _, _ := bytes.Cut(data[end:], []byte("\n"))
		alone := len(bytes.TrimSpace(before)) == 0 && len(bytes.TrimSpace(after)) == 0
		if alone || text[0] == '%' || text[1] == '%' || bytes.ContainsRune(text, '\n') || control.Match(text) {
			for i, c := range text {
				if c != '\n' {
					out[start+i] = ' '
				}
			}
			continue
		}
		copy(out[start:end], "$"+strings.Repeat("_", len(text)-1))
	}
	return out, true
}

// inTemplate are findings that a branch or an included text of a template may answer.
var inTemplate = []string{fields.RuleDuplicate, "missing-field"}

// manyFilledIn is how many values of a template are named that another program fills in.
const manyFilledIn = 3

// ofTemplates drops what was found wrong with the templates instead of with what comes of them.
func (r *run) ofTemplates() {
	values := map[string]int{}
	for _, f := range r.findings {
		if isFilledIn(f) {
			values[f.File]++
		}
	}
	for _, file := range names(values) {
		n := values[file]
		if n <= manyFilledIn || !r.templates[file] {
			continue
		}
		r.findings = slices.DeleteFunc(r.findings, func(f report.Row) bool { return f.File == file && isFilledIn(f) })
		r.findings = append(r.findings, report.Row{ID: "not-judged", State: report.Note, File: file, Subject: "{{ … }}",
			Reason: fmt.Sprintf("%d values are filled in by another program, so they are not judged", n)})
	}
	r.findings = slices.DeleteFunc(r.findings, func(f report.Row) bool {
		return r.templates[f.File] && (slices.Contains(inTemplate, f.ID) || strings.Contains(f.Subject, filled))
	})
}

func isFilledIn(f report.Row) bool { return f.ID == "not-judged" && f.Reason == filledIn }

// notRendered notes a template that is no YAML even without its actions.
func (r *run) notRendered(file string) {
	note := report.Row{ID: "not-judged", State: report.Note, File: file, Subject: "{{ … }}",
		Reason: "a template that is no YAML before it is rendered, so it is not judged", Fix: "judge what it becomes: helm template … | gpuop lint -"}
	if !slices.Contains(r.findings, note) {
		r.findings = append(r.findings, note)
	}
}

// valueFilledIn makes a note of a finding about a value that another program fills in.
func valueFilledIn(f *report.Row, lines [][]byte) {
	if f.Line < 1 || f.Line > len(lines) {
		return
	}
	value := substituted.FindString(strings.TrimSpace(string(lines[f.Line-1])))
	if value == "" || !strings.Contains(f.Reason, value) {
		return
	}
	f.ID, f.State, f.Reason, f.Fix, f.Source = "not-judged", report.Note, filledIn, "", ""
}
