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

// corrected applies the edits. If edits overlap, the first wins.
func (s *script) corrected() string {
	slices.SortStableFunc(s.Corrections, func(a, b input.Correction) int { return cmp.Or(a.Start-b.Start, b.End-a.End) })
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

// replace adds an edit that replaces one word.
func (s *script) replace(w input.Word, value string) {
	if w.Raw != "" && w.Start >= 0 {
		s.correct(w.Start, w.Start+len(w.Raw), input.Quote(value))
	}
}

// setFlag adds an edit that replaces the value of a flag.
func (s *script) setFlag(f *flagUse, value string) {
	last := f.words[len(f.words)-1]
	if len(f.words) == 1 {
		value = f.name + "=" + value
	}
	s.replace(last, value)
}

// fixFlag rewrites a flag with the corrected settings.
func (s *script) fixFlag(in *installation, f *flagUse) {
	first, last := f.words[0], f.words[len(f.words)-1]
	changed := slices.ContainsFunc(f.settings, func(st *model.Setting) bool { c := in.correction(st); return c.Changes() })
	if !changed || f.value.Dynamic || f.name == "--set-json" || first.Start < 0 || last.Start < first.Start {
		return
	}
	var list []string
	for _, st := range f.settings {
		c := in.correction(st)
		if !c.Drop {
			list = append(list, st.Assignment(c.Rename, c.Value))
		}
	}
	start, text := first.Start, ""
	if len(list) > 0 {
		text = f.name + " " + input.Quote(strings.Join(list, ","))
	} else {
		start = len(strings.TrimRight(s.Text[:start], " \t\n\\"))
	}
	s.correct(start, last.Start+len(last.Raw), text)
}

// Edit is one correction of a values file, with its reason.
type Edit struct {
	fix.Edit
	Finding check.Finding
}

// Edits checks a values file against a release and returns the corrections. It keeps settings that a switch disables,
// because the switch may be enabled again. It keeps old defaults, because the user wrote them.
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
	in.judge()
	edits, rest := in.edits()
	return edits, append(rest, reader.Findings...)
}

// edits returns the edits, and the findings that have none.
func (in *installation) edits() (edits []Edit, rest []check.Finding) {
	done := map[*model.Setting]bool{}
	for _, m := range in.mistakes {
		before := len(edits)
		if e, ok := in.groupRename(m); ok && !done[m.settings[0]] {
			edits = append(edits, Edit{e, m.Finding})
			for _, s := range m.settings {
				done[s] = true
			}
		}
		for _, s := range m.settings {
			c := in.correction(s)
			c.Drop = c.Drop && !(c.idle && in.keep)
			if !done[s] && c.Changes() {
				done[s] = true
				edits = append(edits, Edit{c.Edit, m.Finding})
			}
		}
		if len(edits) == before {
			rest = append(rest, m.Finding)
		}
	}
	return edits, rest
}

// groupRename returns the edit that renames a group for all settings in it.
func (in *installation) groupRename(m mistake) (e fix.Edit, ok bool) {
	for _, s := range m.settings {
		renamed := in.correction(s).Rename
		if e.Path = s.Path[:m.names]; m.names == 0 || m.names == len(s.Path) || len(renamed) < m.names || !slices.Equal(renamed[m.names:], s.Path[m.names:]) ||
			e.Rename != nil && !slices.Equal(e.Rename, renamed[:m.names]) {
			return e, false
		}
		e.Rename = renamed[:m.names]
	}
	return e, e.Rename != nil && len(in.Below(e.Rename.String())) == 0
}
