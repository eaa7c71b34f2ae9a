package lint

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fix"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/input"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

func (s *script) correct(start, end int, text string) {
	s.Corrections = append(s.Corrections, input.Correction{Start: start, End: end, Text: text})
}

// corrected applies the corrections. Of those that overlap the first is made.
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

// replace corrects one word of the script.
func (s *script) replace(w input.Word, value string) {
	if w.Raw != "" && w.Start >= 0 {
		s.correct(w.Start, w.Start+len(w.Raw), input.Quote(value))
	}
}

// setFlag corrects the value of a flag.
func (s *script) setFlag(f *flagUse, value string) {
	last := f.words[len(f.words)-1]
	if len(f.words) == 1 {
		value = f.name + "=" + value
	}
	s.replace(last, value)
}

// fixFlag rewrites a flag with corrected settings.
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

// An Edit is one change that makes a values file right for a release, and why.
type Edit struct {
	fix.Edit
	Finding report.Row
}

// Edits judges a values file for a release and returns its corrections. Settings that are only without effect stay, since
// their switch may be turned on again. Settings that equal a default of another release stay, since the user wrote them.
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
	edits, rest := in.edits()
	return edits, append(rest, reader.Findings...)
}

// edits returns the edits of the settings, and the findings without an edit.
func (in *installation) edits() (edits []Edit, rest []report.Row) {
	done := map[*model.Setting]bool{}
	for _, m := range in.mistakes {
		before := len(edits)
		if e, ok := in.groupRename(m); ok && !done[m.settings[0]] {
			edits = append(edits, Edit{e, m.Row})
			for _, s := range m.settings {
				done[s] = true
			}
		}
		for _, s := range m.settings {
			c := in.correction(s)
			c.Drop = c.Drop && !(c.idle && in.keep)
			if !done[s] && c.Changes() {
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
