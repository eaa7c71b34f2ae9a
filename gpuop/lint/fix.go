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

// A Drop is a setting that a correction leaves out, with the proof that it does nothing.
type Drop struct {
	Subject string `json:"subject"`
	Proof   string `json:"proof"`
	// Instead are settings that take its place.
	Instead []string `json:"instead,omitempty"`
}

func (s *script) correct(start, end int, text string) {
	s.Corrections = append(s.Corrections, input.Correction{Start: start, End: end, Text: text})
}

// corrected applies the corrections. Of those that overlap the first is made; the others wait for the next round.
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

// fixInstallation corrects the flags of a command, and the here-documents that it reads.
func (s *script) fixInstallation(h *call, in *installation) {
	done := map[*model.Setting]bool{}
	for _, f := range h.flags {
		if s.fixFlag(in, f) {
			for _, st := range f.settings {
				done[st] = true
			}
		}
	}
	read := map[*input.Document]bool{}
	for _, st := range in.Settings {
		d := st.From
		if d == nil || d.End == 0 || read[d] {
			continue
		}
		read[d] = true
		var edits []fix.Edit
		list, _ := in.edits(func(st *model.Setting) bool { return st.From == d })
		for _, e := range list {
			edits = append(edits, e.Edit)
		}
		text, err := fix.Apply([]byte(s.Text[d.Start:d.End]), nil, edits)
		if err != nil || len(edits) == 0 {
			continue
		}
		s.correct(d.Start, d.End, string(text))
		for _, st := range in.Settings {
			done[st] = done[st] || st.From == d
		}
	}
	if len(h.missing) > 0 {
		between := " "
		if strings.Contains(s.Text[h.Start:h.End], "\\\n") {
			between = " \\\n  "
		}
		s.correct(h.End, h.End, between+strings.Join(h.missing, between))
	}
	for _, m := range in.mistakes {
		for _, st := range m.settings {
			if c := in.correction(st); done[st] && c.Drop {
				s.dropped = append(s.dropped, Drop{Subject: st.Name(), Proof: m.Reason, Instead: written(c.Add)})
				done[st] = false // told
			}
		}
	}
}

// fixFlag writes a flag with its settings as they should be, and reports whether it could.
func (s *script) fixFlag(in *installation, f *flagUse) bool {
	edited := func(st *model.Setting) bool { c := in.correction(st); return c.changes() }
	if f.name == f.written && f.rewritten == "" && !slices.ContainsFunc(f.settings, edited) {
		return true
	}
	last := f.words[len(f.words)-1]
	start, end := f.words[0].Start, last.Start+len(last.Raw)
	if start < 0 || last.Start < start {
		return false
	}
	var same, texts []string
	for _, st := range f.settings {
		c := in.correction(st)
		same = append(same, written(c.Add)...)
		switch {
		case c.Drop:
		case c.asString:
			texts = append(texts, " --set-string "+input.Quote(st.Assignment(c.Rename, c.Value)))
		case f.name == "--set-json" && !slices.Contains(same, f.value.Value):
			same = append(same, f.value.Value)
		case f.name != "--set-json":
			same = append(same, st.Assignment(c.Rename, c.Value))
		}
	}
	text := f.name
	switch {
	case len(f.settings) > 0 && len(same) == 0:
		text = ""
	case f.value.Dynamic && len(f.settings) > 0: // the shell puts the value together, so that the key alone is written anew
		text += " " + strings.Replace(f.value.Raw, f.settings[0].Name()+"=", same[0][:strings.Index(same[0], "=")+1], 1)
	case len(f.settings) > 0:
		text += " " + input.Quote(strings.Join(same, ","))
	case f.rewritten != "":
		text += " " + f.rewritten
	case f.hasValue:
		text += " " + f.value.Raw
	}
	if text += strings.Join(texts, ""); text == "" {
		start = len(strings.TrimRight(s.Text[:start], " \t\n\\"))
	}
	s.correct(start, end, strings.TrimPrefix(text, " "))
	return true
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
	edits, rest := in.edits(func(*model.Setting) bool { return true })
	return edits, append(rest, reader.Findings...)
}

// edits returns the edits of the wanted settings, and the findings without an edit.
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
