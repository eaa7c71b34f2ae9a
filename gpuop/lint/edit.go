package lint

import (
	"slices"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fix"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

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
	root := reader.Document(model.TrimBOM(data))
	for i := range reader.Findings {
		reader.Findings[i].File = name
	}
	if root == nil {
		return nil, reader.Findings
	}
	inner, _ := model.ValuesOf(root)
	if inner == nil {
		return nil, reader.Findings
	}
	in := newInstallation(table, v, model.Flatten(reader, name, 0, nil, model.WithoutEnabledBelow(root, inner)))
	in.judge()
	in.keepWritten()
	edits, rest := in.edits(func(*model.Setting) bool { return true })
	return edits, append(rest, reader.Findings...)
}

// edits are those of the settings that are wanted, and the findings that lead to none.
func (in *installation) edits(wanted func(*model.Setting) bool) (edits []Edit, rest []report.Row) {
	done := map[*model.Setting]bool{}
	for _, m := range in.mistakes {
		before := len(edits)
		if e, ok := in.groupRename(m); ok && wanted(m.settings[0]) && !done[m.settings[0]] {
			edits = append(edits, Edit{e, m.Row})
			for _, s := range m.settings {
				done[s] = true
			}
		}
		for _, s := range m.settings {
			if e := s.Correction(); !done[s] && e.Changes() && wanted(s) {
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
		for at < len(s.Path)-1 && at < len(s.Edit.Rename)-1 && s.Path[at] == s.Edit.Rename[at] {
			at++
		}
		same := len(s.Path) == len(s.Edit.Rename) && at < len(s.Path)-1 && slices.Equal(s.Path[at+1:], s.Edit.Rename[at+1:])
		if !same || s.Edit.Drop || from != nil && !(slices.Equal(s.Path[:at+1], from) && slices.Equal(s.Edit.Rename[:at+1], to)) {
			return fix.Edit{}, false
		}
		from, to = s.Path[:at+1], s.Edit.Rename[:at+1]
	}
	if from == nil || len(in.Below(to.String())) > 0 || len(in.Below(from.String())) != len(m.settings) {
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
			case m.ID == "dead-setting", m.ID == "operand-version", s.Name() == "migManager.config.name":
				s.Edit.Drop = false
			case m.ID == "gfd-image":
				made, known := in.Table.Operand(in.Version, "gfd")
				s.Rewrite(made, known)
			case m.ID == "old-default":
				current, known := in.Table.Default(in.Version, s.Name())
				s.Rewrite(model.ScalarText(current), known)
			}
		}
	}
}
