package lint

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fix"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/input"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"
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
	if !f.drop && f.name == f.written && f.rewritten == "" && !slices.ContainsFunc(f.settings, edited) {
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
	case f.drop, len(f.settings) > 0 && len(same) == 0:
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
