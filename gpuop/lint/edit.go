package lint

import (
	"fmt"
	"slices"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/input"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fix"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// Settings reads a values file, which may be empty, with --set arguments on top. Findings are what could not be read.
func Settings(name string, data []byte, sets []string) ([]chart.Setting, []report.Row) {
	var out []chart.Setting
	reader := &fields.Reader{}
	if len(stripComments(data)) > 0 {
		root := reader.Document(trimBOM(data))
		if inner, instead := ValuesOf(root); instead != "" {
			reader.Add("no-values", report.Failed, root, "", "the file is "+instead+", want values of the chart", "write its values to a file of their own")
		} else if root != nil {
			for _, s := range flatten(reader, "", 0, nil, withoutEnabledBelow(root, inner)) {
				out = append(out, s.Setting)
			}
		}
	}
	for i := range reader.Findings {
		reader.Findings[i].File = name
	}
	for _, s := range sets {
		assignments, err := parseSet(s, true)
		if err != nil {
			reader.Findings = append(reader.Findings, report.Row{ID: "set-syntax", State: report.Failed, Subject: "--set " + s, Reason: err.Error(), Source: sourceHelm})
		}
		for _, a := range assignments {
			out = append(out, chart.Setting{Path: a.path, Value: a.value})
		}
	}
	return out, reader.Findings
}

// ValuesOf returns the operator's values in a document: all of it, or what an umbrella chart has
// below the chart's name. instead says what else the document is; "" for values.
func ValuesOf(root *yaml.Node) (inner *yaml.Node, instead string) {
	kind := fields.Text(root, "kind")
	switch inner := fields.Get(root, operatorNamespace); {
	case fields.Text(root, "apiVersion") != "" && kind != "":
		return nil, "a " + kind
	case root != nil && input.CarrierOf(root) != nil:
		return nil, "a " + input.Helmfile
	case inner != nil && inner.Kind == yaml.MappingNode:
		return inner, ""
	}
	return root, ""
}

// withoutEnabledBelow is what the operator's chart reads of an umbrella chart's values.
func withoutEnabledBelow(root, inner *yaml.Node) *yaml.Node {
	if inner == root {
		return inner
	}
	return withoutEnabled(inner)
}

// An Edit is one change that makes a values file right for a release, and why.
type Edit struct {
	fix.Edit
	Finding report.Row
}

// Edits judges a values file for a release and returns what to change. Settings that are only
// without effect stay, since what they depend on may be switched on again, and so does what equals
// a default of another release: it is what the user wrote.
func Edits(table *chart.Table, name string, data []byte, v chart.Version) ([]Edit, []report.Row) {
	reader := &fields.Reader{}
	root := reader.Document(trimBOM(data))
	for i := range reader.Findings {
		reader.Findings[i].File = name
	}
	if root == nil {
		return nil, reader.Findings
	}
	inner, _ := ValuesOf(root)
	if inner == nil {
		return nil, reader.Findings
	}
	in := &installation{table: table, version: v, settings: flatten(reader, name, 0, nil, withoutEnabledBelow(root, inner))}
	in.judge()
	in.keepWritten()
	edits, rest := in.edits(func(*setting) bool { return true })
	return edits, append(rest, reader.Findings...)
}

// edits are those of the settings that are wanted, and the findings that lead to none.
func (in *installation) edits(wanted func(*setting) bool) (edits []Edit, rest []report.Row) {
	done := map[*setting]bool{}
	for _, m := range in.mistakes {
		before := len(edits)
		if e, ok := in.groupRename(m); ok && wanted(m.settings[0]) && !done[m.settings[0]] {
			edits = append(edits, Edit{e, m.Row})
			for _, s := range m.settings {
				done[s] = true
			}
		}
		for _, s := range m.settings {
			if e := s.correction(); !done[s] && e.Changes() && wanted(s) {
				done[s] = true
				edits = append(edits, Edit{e, m.Row})
			}
		}
		if len(edits) == before {
			rest = append(rest, m.Row)
		}
	}
	return edits, rest
}

// groupRename is the edit of a group's name that is wrong for all settings below it.
func (in *installation) groupRename(m mistake) (fix.Edit, bool) {
	var from, to chart.Path
	for _, s := range m.settings {
		at := 0
		for at < len(s.Path)-1 && at < len(s.edit.Rename)-1 && s.Path[at] == s.edit.Rename[at] {
			at++
		}
		same := len(s.Path) == len(s.edit.Rename) && at < len(s.Path)-1 && slices.Equal(s.Path[at+1:], s.edit.Rename[at+1:])
		if !same || s.edit.Drop || from != nil && !(slices.Equal(s.Path[:at+1], from) && slices.Equal(s.edit.Rename[:at+1], to)) {
			return fix.Edit{}, false
		}
		from, to = s.Path[:at+1], s.edit.Rename[:at+1]
	}
	if from == nil || len(in.below(to.String())) > 0 || len(in.below(from.String())) != len(m.settings) {
		return fix.Edit{}, false
	}
	return fix.Edit{Path: from, Rename: to}, true
}

// keepWritten takes back the drops of settings that the release reads. An image that the release
// does not have there gets the release's own name or version, since with the old one it cannot be
// pulled.
func (in *installation) keepWritten() {
	for _, m := range in.mistakes {
		for _, s := range m.settings {
			switch {
			case m.ID == "dead-setting", m.ID == "operand-version", s.name() == "migManager.config.name":
				s.edit.Drop = false
			case m.ID == "gfd-image":
				made, known := in.table.Operand(in.version, "gfd")
				s.rewrite(made, known)
			case m.ID == "old-default":
				current, known := in.table.Default(in.version, s.name())
				s.rewrite(scalarText(current), known)
			}
		}
	}
}

// rewrite gives a setting that was to be dropped a value that works, where one is known.
func (s *setting) rewrite(value string, known bool) {
	if s.edit.Drop && known && value != "" {
		s.edit.Drop, s.edit.Value = false, &value
	}
}

// ParseSet reads one --set argument by Helm's grammar.
func ParseSet(s string) ([]chart.Setting, error) {
	assignments, err := parseSet(s, true)
	if err != nil {
		return nil, fmt.Errorf("--set %s: %w", s, err)
	}
	out := make([]chart.Setting, len(assignments))
	for i, a := range assignments {
		out[i] = chart.Setting{Path: a.path, Value: a.value}
	}
	return out, nil
}
