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

// Edits judges a values file for a release and returns what to change. Settings that are only without effect stay, since
// what they depend on may be switched on again, and so does what equals a default of another release: it is what the
// user wrote.
func Edits(table *chart.Table, name string, data []byte, v chart.Version) ([]Edit, []report.Row) {
	reader := &fields.Reader{}
	root := reader.Document(model.TrimBOM(data))
	for i := range reader.Findings {
		reader.Findings[i].File = name
	}
	inner, _ := model.ValuesOf(root)
	if inner == nil {
		return nil, reader.Findings
	}
	in := newInstallation(table, v, model.Flatten(reader, name, 0, nil, inner))
	in.keep = true
	in.judge()
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
			c := in.correction(s)
			c.Drop = c.Drop && !(c.idle && in.keep)
			if !done[s] && c.Changes() && wanted(s) {
				done[s] = true
				edits = append(edits, Edit{c.Edit, m.Row})
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
		renamed := in.correction(s).Rename
		at := 0
		for at < min(len(s.Path), len(renamed))-1 && s.Path[at] == renamed[at] {
			at++
		}
		if len(s.Path) != len(renamed) || at == len(s.Path)-1 || !slices.Equal(s.Path[at+1:], renamed[at+1:]) ||
			from != nil && !(slices.Equal(s.Path[:at+1], from) && slices.Equal(renamed[:at+1], to)) {
			return fix.Edit{}, false
		}
		from, to = s.Path[:at+1], renamed[:at+1]
	}
	if from == nil || len(in.Below(to.String())) > 0 || len(in.Below(from.String())) != len(m.settings) {
		return fix.Edit{}, false
	}
	return fix.Edit{Path: from, Rename: to}, true
}
