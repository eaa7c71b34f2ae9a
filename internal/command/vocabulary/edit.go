package vocabulary

import (
	"cmp"
	"slices"
	"strings"
)

// An edit replaces a part of a text; an empty span inserts.
type edit struct {
	span
	text string
}

// apply returns the held text with the edits and with its variables put back. Edits never touch a
// variable that they do not delete, and never overlap.
func (h *substituted) apply(edits []edit) string {
	all := slices.Clone(edits)
	for _, v := range h.vars {
		if !slices.ContainsFunc(edits, func(e edit) bool { return e.overlaps(v.span) }) {
			all = append(all, edit{v.span, v.original})
		}
	}
	slices.SortStableFunc(all, func(a, b edit) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end))
	})
	var out strings.Builder
	at := 0
	for _, e := range all {
		out.WriteString(h.text[at:e.start])
		out.WriteString(e.text)
		at = e.end
	}
	out.WriteString(h.text[at:])
	return out.String()
}
