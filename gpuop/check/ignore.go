package check

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// ErrCheck is returned for an unknown check ID.
var ErrCheck = errors.New("unknown check")

// Ignore selects the findings to ignore: all findings of a check, or only those about one subject.
type Ignore struct {
	Check   *Check
	Subject string
}

// ParseIgnore parses ID or ID:SUBJECT. Errors wrap ErrCheck.
func ParseIgnore(text string) (Ignore, error) {
	id, subject, _ := strings.Cut(text, ":")
	c := Find(id)
	if c == nil {
		var known []string
		for _, c := range registry {
			known = append(known, c.ID)
		}
		return Ignore{}, fmt.Errorf("%w %q, %s", ErrCheck, id, Suggest(id, known, "see docs/gpuop/checks.md"))
	}
	return Ignore{c, subject}, nil
}

// matches reports whether a finding is ignored.
func (i Ignore) matches(f Finding) bool {
	return f.Check == i.Check && (i.Subject == "" || i.Subject == f.Subject)
}

// Ignore removes the findings that match the list, and counts them. Passed checks are kept.
func (r *Report) Ignore(list []Ignore) {
	r.drop(func(f Finding) bool {
		return slices.ContainsFunc(list, func(i Ignore) bool { return i.matches(f) })
	})
}

func (r *Report) drop(isIgnored func(Finding) bool) {
	before := len(r.Findings)
	r.Findings = slices.DeleteFunc(r.Findings, func(f Finding) bool { return f.Severity != OK && isIgnored(f) })
	r.Ignored += before - len(r.Findings)
}

// ignoreComment matches a comment that ignores checks. A comment after a value applies to its line. A comment on a line
// of its own applies to the next line.
var ignoreComment = regexp.MustCompile(`#[ \t]*gpuop:ignore[ \t]+([a-z][a-z0-9, -]*)`)

// IgnoreComments removes the findings that are ignored by a comment "# gpuop:ignore ID" in their file, and counts them.
// lines maps a file to its lines.
func (r *Report) IgnoreComments(lines map[string][]string) {
	ignores := func(line string, c *Check) bool {
		m := ignoreComment.FindStringSubmatch(line)
		return m != nil &&
			slices.Contains(strings.FieldsFunc(m[1], func(r rune) bool { return r == ',' || r == ' ' }), c.ID)
	}
	r.drop(func(f Finding) bool {
		file := lines[f.File]
		if f.Line < 1 || f.Line > len(file) {
			return false
		}
		above := ""
		if f.Line > 1 {
			above = strings.TrimSpace(file[f.Line-2])
		}
		return ignores(file[f.Line-1], f.Check) || strings.HasPrefix(above, "#") && ignores(above, f.Check)
	})
}

// ShowLines sets the Text of each finding whose line is known to that line of its file.
func (r *Report) ShowLines(lines map[string][]string) {
	for i := range r.Findings {
		if f := &r.Findings[i]; f.Line >= 1 && f.Line <= len(lines[f.File]) {
			f.Text = lines[f.File][f.Line-1]
		}
	}
}
