package lint

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/input"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// inTemplate are findings that a branch or an included text of a template may answer.
var inTemplate = []report.ID{fields.RuleDuplicate, "missing-field"}

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
	for _, file := range slices.Sorted(maps.Keys(values)) {
		n := values[file]
		if n <= manyFilledIn || !r.templates[file] {
			continue
		}
		r.findings = slices.DeleteFunc(r.findings, func(f report.Row) bool { return f.File == file && isFilledIn(f) })
		r.findings = append(r.findings, report.Row{ID: "not-judged", State: report.Note, File: file, Subject: "{{ … }}",
			Reason: fmt.Sprintf("%d values are filled in by another program, so they are not judged", n)})
	}
	r.findings = slices.DeleteFunc(r.findings, func(f report.Row) bool {
		return r.templates[f.File] && (slices.Contains(inTemplate, f.ID) || strings.Contains(f.Subject, input.Filled))
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
	value := model.Substituted.FindString(strings.TrimSpace(string(lines[f.Line-1])))
	if value == "" || !strings.Contains(f.Reason, value) {
		return
	}
	f.ID, f.State, f.Reason, f.Fix, f.Source = "not-judged", report.Note, filledIn, "", ""
}
