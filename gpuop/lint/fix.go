package lint

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/input"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fix"
)

// A Drop is a setting that a correction leaves out, with the proof that it does nothing.
type Drop struct {
	Subject string `json:"subject"`
	Proof   string `json:"proof"`
	// Instead are settings that take its place.
	Instead []string `json:"instead,omitempty"`
}

func (r *run) correct(start, end int, text string) {
	r.corrections = append(r.corrections, input.Correction{Start: start, End: end, Text: text})
}

// corrected applies the corrections. Of those that overlap the first is made; the others wait for the next round.
func (r *run) corrected() string {
	slices.SortStableFunc(r.corrections, func(a, b input.Correction) int { return cmp.Or(a.Start-b.Start, b.End-a.End) })
	var out strings.Builder
	at := 0
	for _, c := range r.corrections {
		if c.Start >= at && c.End >= c.Start && c.End <= len(r.source) {
			out.WriteString(r.source[at:c.Start] + c.Text)
			at = c.End
		}
	}
	return out.String() + r.source[at:]
}

// replace corrects one word of the script.
func (r *run) replace(w input.Word, value string) {
	if w.Raw != "" && w.Start >= 0 {
		r.correct(w.Start, w.Start+len(w.Raw), input.Quote(value))
	}
}

// fixInstallation corrects the flags of a command, and the here-documents that it reads.
func (r *run) fixInstallation(h *helmCommand, in *installation) {
	done := map[*model.Setting]bool{}
	for _, f := range h.flags {
		if r.fixFlag(in, f) {
			for _, s := range f.settings {
				done[s] = true
			}
		}
	}
	read := map[*input.Document]bool{}
	for _, s := range in.Settings {
		d := s.From
		if d == nil || d.End == 0 || read[d] {
			continue
		}
		read[d] = true
		var edits []fix.Edit
		list, _ := in.edits(func(s *model.Setting) bool { return s.From == d })
		for _, e := range list {
			edits = append(edits, e.Edit)
		}
		text, err := fix.Apply([]byte(r.source[d.Start:d.End]), nil, edits)
		if err != nil || len(edits) == 0 {
			continue
		}
		r.correct(d.Start, d.End, string(text))
		for _, s := range in.Settings {
			done[s] = done[s] || s.From == d
		}
	}
	if len(h.missing) > 0 {
		between := " "
		if strings.Contains(r.source[h.Start:h.End], "\\\n") {
			between = " \\\n  "
		}
		r.correct(h.End, h.End, between+strings.Join(h.missing, between))
	}
	for _, m := range in.mistakes {
		for _, s := range m.settings {
			if c := in.correction(s); done[s] && c.Drop {
				r.dropped = append(r.dropped, Drop{Subject: s.Name(), Proof: m.Reason, Instead: written(c.Add)})
				done[s] = false // told
			}
		}
	}
}

// fixFlag writes a flag with its settings as they should be, and reports whether it could.
func (r *run) fixFlag(in *installation, f *flagUse) bool {
	edited := func(s *model.Setting) bool { c := in.correction(s); return c.changes() }
	if !f.drop && f.name == f.written && f.rewritten == "" && !slices.ContainsFunc(f.settings, edited) {
		return true
	}
	last := f.words[len(f.words)-1]
	start, end := f.words[0].Start, last.Start+len(last.Raw)
	if start < 0 || last.Start < start {
		return false
	}
	var same, texts []string
	for _, s := range f.settings {
		c := in.correction(s)
		same = append(same, written(c.Add)...)
		switch {
		case c.Drop:
		case c.asString:
			texts = append(texts, " --set-string "+input.Quote(s.Assignment(c.Rename, c.Value)))
		case f.name == "--set-json" && !slices.Contains(same, f.value.Value):
			same = append(same, f.value.Value)
		case f.name != "--set-json":
			same = append(same, s.Assignment(c.Rename, c.Value))
		}
	}
	text := f.name
	switch {
	case f.drop, len(f.settings) > 0 && len(same) == 0:
		text = ""
	case len(f.settings) > 0:
		text += " " + input.Quote(strings.Join(same, ","))
	case f.rewritten != "":
		text += " " + f.rewritten
	case f.hasValue:
		text += " " + f.value.Raw
	}
	if text += strings.Join(texts, ""); text == "" {
		start = len(strings.TrimRight(r.source[:start], " \t\n\\"))
	}
	r.correct(start, end, strings.TrimPrefix(text, " "))
	return true
}
