package lint

import (
	"slices"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fix"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"
)

// Edit is a correction of a values file, with the finding that is its reason.
type Edit struct {
	fix.Edit
	Finding check.Finding
}

// Edits checks a values file against a release. It returns the corrections, and the findings without a correction.
// Settings that a switch disables are kept, because the switch may be enabled again. Former default images are replaced
// by the current ones.
func Edits(table *chart.Table, name string, data []byte, v chart.Version) ([]Edit, []check.Finding) {
	reader := &fields.Reader{}
	root := reader.Document(data)
	for i := range reader.Findings {
		reader.Findings[i].File = name
	}
	inner, _ := model.ValuesOf(root)
	if inner == nil {
		return nil, reader.Findings
	}
	in := newInstallation(table, v, model.Flatten(reader, name, 0, nil, inner))
	in.keep = true
	in.runRules()
	edits, rest := in.edits()
	return edits, append(rest, reader.Findings...)
}

// edits returns the corrections, and the findings without a correction.
func (in *installation) edits() (edits []Edit, rest []check.Finding) {
	done := map[*model.Setting]bool{}
	for _, m := range in.mistakes {
		before := len(edits)
		group, renames := in.groupRename(m)
		if renames = renames && !done[m.settings[0]]; renames {
			edits = append(edits, Edit{group, m.Finding})
		}
		for _, s := range m.settings {
			c := in.correction(s)
			c.Drop = c.Drop && !(c.idle && in.keep)
			if !renames && !done[s] && c.Changes() {
				edits = append(edits, Edit{c.Edit, m.Finding})
			}
			done[s] = done[s] || renames || c.Changes()
		}
		if len(edits) == before {
			rest = append(rest, m.Finding)
		}
	}
	return edits, rest
}

// groupRename returns an edit that renames a group, if all its settings move to the same new and empty group.
func (in *installation) groupRename(m mistake) (e fix.Edit, ok bool) {
	for _, s := range m.settings {
		renamed := in.correction(s).Rename
		if m.names == 0 || m.names == len(s.Path) || len(renamed) < m.names {
			return e, false
		}
		group, rest := renamed[:m.names], renamed[m.names:]
		if !slices.Equal(rest, s.Path[m.names:]) || e.Rename != nil && !slices.Equal(e.Rename, group) {
			return e, false
		}
		e.Path, e.Rename = s.Path[:m.names], group
	}
	return e, e.Rename != nil && len(in.Below(e.Rename.String())) == 0
}
