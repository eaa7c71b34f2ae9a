package lint

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fix"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/input"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"
)

func (s *script) correct(start, end int, text string) {
	s.Corrections = append(s.Corrections, input.Correction{Start: start, End: end, Text: text})
}

// corrected returns the script with all corrections. If corrections overlap, the one that starts first wins.
func (s *script) corrected() string {
	slices.SortStableFunc(s.Corrections, func(a, b input.Correction) int {
		return cmp.Or(a.Start-b.Start, b.End-a.End)
	})
	var out strings.Builder
	at := 0
	for _, c := range s.Corrections {
		if c.Start >= at && c.End >= c.Start && c.End <= len(s.Text) {
			out.WriteString(s.Text[at:c.Start] + c.Text)
			at = c.End
		}
	}
	return out.String() + s.Text[at:]
}

// replace adds a correction that replaces a word.
func (s *script) replace(w input.Word, value string) {
	if w.Raw != "" && w.Start >= 0 {
		s.correct(w.Start, w.Start+len(w.Raw), input.Quote(value))
	}
}

// setFlag adds a correction that replaces the value of a flag.
func (s *script) setFlag(f *flagUse, value string) {
	switch len(f.words) {
	case 1:
		s.replace(f.words[0], f.name+"="+value)
	case 2:
		s.replace(f.words[1], value)
	}
}

// fixFlag rewrites a flag if any of its settings has a correction. It removes the flag if all its settings are dropped.
// It skips --set-json, and values that contain variables.
func (s *script) fixFlag(in *installation, f *flagUse) {
	first, last, changes := f.words[0], f.words[len(f.words)-1], false
	var list []string
	for _, st := range f.settings {
		c := in.correction(st)
		changes = changes || c.Changes()
		if !c.Drop {
			list = append(list, st.Assignment(c.Rename, c.Value))
		}
	}
	if !changes || f.value.Dynamic || f.name == "--set-json" || first.Start < 0 || last.Start < first.Start {
		return
	}
	start, text := first.Start, f.name+" "+input.Quote(strings.Join(list, ","))
	if len(list) == 0 {
		start, text = len(strings.TrimRight(s.Text[:start], " \t\n\\")), ""
	}
	s.correct(start, last.Start+len(last.Raw), text)
}

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

// groupRename returns an edit that renames a group. ok is true if all settings of the group get the new name, and the
// new group has no settings yet.
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
