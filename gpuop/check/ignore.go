package check

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Ignore selects the findings to ignore: all findings of a check, or only those about one subject.
type Ignore struct {
	Check   *Check
	Subject string
}

// ParseIgnore parses ID or ID:SUBJECT.
func ParseIgnore(text string) (Ignore, error) {
	id, subject, _ := strings.Cut(text, ":")
	if c := Find(id); c != nil {
		return Ignore{c, subject}, nil
	}
	var known []string
	for _, c := range registry {
		known = append(known, c.ID)
	}
	return Ignore{}, fmt.Errorf("unknown check %q: %s", id, Ask(id, known, "see docs/gpuop/checks.md"))
}

// Ignore removes the findings that match the list, and counts them. Passed checks are kept.
func (r *Report) Ignore(list []Ignore) {
	r.drop(func(f Finding) bool {
		return slices.Contains(list, Ignore{f.Check, ""}) || slices.Contains(list, Ignore{f.Check, f.Subject})
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
		return m != nil && slices.Contains(strings.Fields(strings.ReplaceAll(m[1], ",", " ")), c.ID)
	}
	r.drop(func(f Finding) bool {
		line, above := lineAt(lines[f.File], f.Line), strings.TrimSpace(lineAt(lines[f.File], f.Line-1))
		return ignores(line, f.Check) || strings.HasPrefix(above, "#") && ignores(above, f.Check)
	})
}

// ShowLines sets the Text of each finding to its line of the file.
func (r *Report) ShowLines(lines map[string][]string) {
	for i := range r.Findings {
		f := &r.Findings[i]
		f.Text = lineAt(lines[f.File], f.Line)
	}
}

// lineAt returns a line by its 1-based number, or "" if there is no such line.
func lineAt(lines []string, number int) string {
	if number < 1 || number > len(lines) {
		return ""
	}
	return lines[number-1]
}
