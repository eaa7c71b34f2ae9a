package report

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// ErrCheck is returned for unknown checks.
var ErrCheck = errors.New("unknown check")

// Ignore selects the findings to ignore: all with an ID, or those about one subject.
type Ignore struct {
	ID      ID
	Subject string
}

// ParseIgnore parses ID or ID:SUBJECT.
func ParseIgnore(text string) (Ignore, error) {
	id, subject, _ := strings.Cut(text, ":")
	var known []string
	for _, c := range Codes() {
		known = append(known, string(c.ID))
	}
	if !slices.Contains(known, id) {
		return Ignore{}, fmt.Errorf("%w %q, %s", ErrCheck, id, Suggest(id, known, "gpuop explain lists none of this name"))
	}
	return Ignore{ID(id), subject}, nil
}

// matches reports whether a row is ignored.
func (i Ignore) matches(row Row) bool {
	return row.ID == i.ID && (i.Subject == "" || i.Subject == row.Subject)
}

// Ignore removes the rows that match the list, and counts them. Passed checks stay.
func (r *Report) Ignore(list []Ignore) {
	r.drop(func(row Row) bool { return slices.ContainsFunc(list, func(i Ignore) bool { return i.matches(row) }) })
}

func (r *Report) drop(isIgnored func(Row) bool) {
	before := len(r.Rows)
	r.Rows = slices.DeleteFunc(r.Rows, func(row Row) bool { return row.State != OK && isIgnored(row) })
	r.Ignored += before - len(r.Rows)
}

// ignoreComment matches a comment that ignores checks. It applies to its own line. Alone on a line, it applies to the
// next.
var ignoreComment = regexp.MustCompile(`#[ \t]*gpuop:ignore[ \t]+([a-z][a-z0-9, -]*)`)

// IgnoreComments removes the rows that a comment "# gpuop:ignore ID" in their file ignores, and counts them. lines has
// the lines of each file.
func (r *Report) IgnoreComments(lines map[string][]string) {
	ignores := func(line string, id ID) bool {
		m := ignoreComment.FindStringSubmatch(line)
		return m != nil && slices.Contains(strings.FieldsFunc(m[1], func(c rune) bool { return c == ',' || c == ' ' }), string(id))
	}
	r.drop(func(row Row) bool {
		file := lines[row.File]
		if row.Line < 1 || row.Line > len(file) {
			return false
		}
		above := ""
		if row.Line > 1 {
			above = strings.TrimSpace(file[row.Line-2])
		}
		return ignores(file[row.Line-1], row.ID) || strings.HasPrefix(above, "#") && ignores(above, row.ID)
	})
}

// ShowLines adds the lines of files to the rows about them.
func (r *Report) ShowLines(lines map[string][]string) {
	for i := range r.Rows {
		if row := &r.Rows[i]; row.Line >= 1 && row.Line <= len(lines[row.File]) {
			row.Text = lines[row.File][row.Line-1]
		}
	}
}
