package lint

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/input"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// answeredByTemplate reports whether a branch, an included text or an action of a template may be the answer to a row.
func answeredByTemplate(f report.Row) bool {
	return slices.Contains([]report.ID{fields.RuleDuplicate, "missing-field", "no-pod-spec", "broken-continuation", "shell-syntax"}, f.ID) || strings.Contains(f.Subject, input.Filled)
}

// filledIn is the note that a value is not judged, at the place of a row; of a template all such are one.
func (r *run) filledIn(file string, at report.Row) report.Row {
	if r.templates[file] {
		return report.Row{ID: "not-judged", State: report.Note, Subject: "{{ … }}", Reason: "values that another program fills in are not judged"}
	}
	return report.Row{ID: "not-judged", State: report.Note, Line: at.Line, Column: at.Column, Subject: at.Subject, Reason: "the value is filled in by another program, so it is not judged"}
}

// unknownIn are the scalars of a value that another program fills in.
func unknownIn(n *yaml.Node) (out []*yaml.Node) {
	switch {
	case n == nil:
	case model.UnknownNode(n):
		return []*yaml.Node{n}
	default:
		for _, c := range n.Content {
			out = append(out, unknownIn(c)...)
		}
	}
	return out
}
