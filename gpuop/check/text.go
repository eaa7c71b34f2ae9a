package check

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Style colors text for a terminal. The zero value adds no color.
type Style struct{ Color bool }

// Bold, Dim, Red, Yellow and Green wrap text in an escape sequence if Color is set.
func (s Style) Bold(text string) string   { return s.paint("1", text) }
func (s Style) Dim(text string) string    { return s.paint("2", text) }
func (s Style) Red(text string) string    { return s.paint("31", text) }
func (s Style) Yellow(text string) string { return s.paint("33", text) }
func (s Style) Green(text string) string  { return s.paint("32", text) }

func (s Style) paint(code, text string) string {
	if !s.Color || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// severity colors word by severity.
func (s Style) severity(v Severity, word string) string {
	codes := [...]string{OK: "32", Note: "34", Waiting: "33", Unknown: "33", Warning: "33", Error: "31"}
	return s.paint(codes[v], word)
}

// WriteText writes the report as text for people to read.
//
// Each finding looks like a compiler's message: "place: severity: message [check]". The place is "file:line:column" or,
// in a cluster, an object or nodes. The line of the file with a caret, the event or log that is the evidence, and the
// fix are on separate lines below. Nodes with equal findings are listed together. Passed checks of a cluster are only
// written if verbose is set. For an empty report, nothing is written.
func (r *Report) WriteText(w io.Writer, style Style, verbose bool) error {
	out := bufio.NewWriter(w)
	if !r.Judged {
		for _, f := range r.Findings {
			r.writeFinding(out, style, f, f.filePlace())
		}
		return out.Flush()
	}
	first := r.first()
	if first != nil {
		r.writeFinding(out, style, *first, first.objectPlace(first.Node))
	}
	for _, b := range r.branches() {
		for _, f := range b.findings {
			isFirst := first != nil && f.Check == first.Check && f.Subject == first.Subject &&
				slices.Contains(b.nodes, first.Node)
			isFirst = isFirst || first != nil && f == *first
			if !isFirst && (verbose || f.Severity != OK) {
				r.writeFinding(out, style, f, f.objectPlace(b.heading()))
			}
		}
	}
	return out.Flush()
}

// filePlace returns the place of a finding in a file. It returns "" for a finding about the command line.
func (f *Finding) filePlace() string {
	switch {
	case f.Line > 0 && f.Column > 0:
		return fmt.Sprintf("%s:%d:%d", f.File, f.Line, f.Column)
	case f.Line > 0:
		return fmt.Sprintf("%s:%d", f.File, f.Line)
	}
	return f.File
}

// objectPlace returns what a finding is about: the object in its subject, else its merged nodes, else the argument
// nodes, else "cluster".
func (f *Finding) objectPlace(nodes string) string {
	object, _ := f.object()
	switch {
	case object != "":
		return object
	case f.Nodes != "":
		return "Node/" + f.Nodes
	case nodes != "":
		return "Node/" + nodes
	}
	return "cluster"
}

// object splits the subject into an object, such as ClusterPolicy/cluster-policy, and the part of the object that the
// finding is about. If the subject does not name an object, part is the whole subject.
func (f *Finding) object() (object, part string) {
	object, part, _ = strings.Cut(f.Subject, " ")
	kind, _, found := strings.Cut(object, "/")
	if !found || kind == "" || !unicode.IsUpper(rune(kind[0])) || strings.Contains(object, "=") {
		return "", f.Subject
	}
	return object, part
}

// writeFinding writes a finding with its source line, evidence and fix.
func (r *Report) writeFinding(out *bufio.Writer, style Style, f Finding, place string) {
	if place != "" {
		fmt.Fprintf(out, "%s ", style.Bold(OneLine(place)+":"))
	}
	message := f.Reason
	object, part := "", f.Subject
	if r.Judged {
		object, part = f.object()
	}
	if part != "" {
		message = part + ": " + message
	}
	if on := cmp.Or(f.Nodes, f.Node); on != "" && object != "" && !strings.HasPrefix(object, "Node/") {
		message += "; on " + on
	}
	if age := r.At.Sub(f.Since); !f.Since.IsZero() && !r.At.IsZero() && age >= time.Second {
		message += fmt.Sprintf(" (for %s)", age.Round(time.Second))
	}
	severity := style.severity(f.Severity, f.Severity.String()+":")
	fmt.Fprintf(out, "%s %s %s\n", severity, OneLine(message), style.Dim("["+f.Check.ID+"]"))
	writeSource(out, style, f)
	if e := f.Evidence; (e.Kind == "event" || e.Kind == "log") && !strings.Contains(f.Reason, e.Text) {
		of := e.Kind + " of " + e.Object
		if age := r.At.Sub(e.Time); !e.Time.IsZero() && !r.At.IsZero() && age >= 0 {
			of += fmt.Sprintf(", %s ago", age.Round(time.Second))
		}
		fmt.Fprintf(out, "  %s\n", style.Dim(OneLine(of+": "+e.Text)))
	}
	mark := style.Green("→")
	for line := range strings.SplitSeq(strings.TrimRight(f.Fix, "\n"), "\n") {
		if f.Fix != "" {
			fmt.Fprintf(out, "  %s %s\n", mark, OneLine(line))
		}
		mark = " "
	}
}

// maxSource is the length of the longest source line that is written, in runes.
const maxSource = 160

// writeSource writes the source line of a finding, with a caret below the column.
func writeSource(out *bufio.Writer, style Style, f Finding) {
	text := strings.TrimRight(f.Text, " \t\r")
	if strings.TrimSpace(text) == "" || utf8.RuneCountInString(text) > maxSource {
		return
	}
	number := strconv.Itoa(f.Line)
	fmt.Fprintf(out, "  %s %s\n", style.Dim(number+" |"), OneLine(text))
	if at := f.Column - 1; at >= 0 && at < len(text) {
		word := len(text[at:]) - len(strings.TrimLeftFunc(text[at:], inWord))
		fmt.Fprintf(out, "  %s %s%s\n", style.Dim(strings.Repeat(" ", len(number))+" |"),
			strings.Repeat(" ", utf8.RuneCountInString(text[:at])),
			style.Green("^"+strings.Repeat("~", max(word-1, 0))))
	}
}

// inWord reports whether a rune is part of a key or flag.
func inWord(r rune) bool {
	return r == '-' || r == '_' || r == '.' || unicode.IsLetter(r) || unicode.IsDigit(r)
}

// branch groups the findings about the cluster, or the equal findings of one or more nodes.
type branch struct {
	nodes    []string // empty for the cluster
	findings []Finding
}

func (b branch) heading() string {
	switch n := len(b.nodes); {
	case n == 0:
		return ""
	case n <= 3:
		return strings.Join(b.nodes, ", ")
	default:
		return fmt.Sprintf("%s, %s and %d more", b.nodes[0], b.nodes[1], n-2)
	}
}

// branches groups the sorted findings by node. Nodes with equal findings share a branch. The cluster comes first, then
// the nodes with the worst findings.
func (r *Report) branches() []branch {
	var all []branch
	known := map[string]int{} // maps the text of the findings to an index in all
	for findings := r.Findings; len(findings) > 0; {
		first, n := findings[0], 1
		for n < len(findings) && findings[n].Node == first.Node && findings[n].File == first.File {
			n++
		}
		b := branch{findings: findings[:n:n]}
		findings = findings[n:]
		if first.Node != "" {
			b.nodes = []string{first.Node}
			name := alike(b.findings)
			if i, found := known[name]; found {
				all[i].nodes = append(all[i].nodes, first.Node)
				continue
			}
			known[name] = len(all)
		}
		all = append(all, b)
	}
	slices.SortStableFunc(all, func(a, b branch) int {
		if len(a.nodes) == 0 || len(b.nodes) == 0 {
			return cmp.Compare(len(a.nodes), len(b.nodes))
		}
		return cmp.Compare(worst(b.findings), worst(a.findings))
	})
	return all
}

// alike returns a key that is equal for nodes whose findings look equal.
func alike(findings []Finding) string {
	var key strings.Builder
	node := findings[0].Node
	for _, f := range findings {
		if f.Evidence.Time, f.Node = (time.Time{}), ""; f.Evidence.Kind != "event" {
			f.Evidence = Evidence{} // nodes may differ in evidence other than events
		}
		fmt.Fprintf(&key, "%+v\n", f)
	}
	return strings.ReplaceAll(key.String(), node, "\x00")
}

func worst(findings []Finding) Severity {
	return slices.MaxFunc(findings, func(a, b Finding) int { return cmp.Compare(a.Severity, b.Severity) }).Severity
}

// Summary counts the findings by severity: "2 errors, 1 warning, 40 passed".
func (r *Report) Summary() string {
	count := map[string]int{}
	for _, f := range r.Findings {
		count[f.Severity.String()]++
	}
	var parts []string
	for _, word := range []string{"error", "warning", "note"} {
		if count[word] > 0 {
			parts = append(parts, Count(count[word], word))
		}
	}
	if count["ok"] > 0 {
		parts = append(parts, fmt.Sprintf("%d passed", count["ok"]))
	}
	if len(parts) == 0 && r.Judged && r.Ignored == 0 {
		return "nothing was checked"
	}
	if len(parts) == 0 {
		parts = append(parts, "no findings")
	}
	if r.Ignored > 0 {
		parts = append(parts, fmt.Sprintf("%d ignored", r.Ignored))
	}
	return strings.Join(parts, ", ")
}

// Count formats a number with a noun: "1 input", "2 inputs".
func Count(n int, word string) string {
	if n != 1 {
		word += "s"
	}
	return fmt.Sprintf("%d %s", n, word)
}

// OneLine replaces control characters, so that an input cannot send them to the terminal.
func OneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		if r < ' ' || r == 0x7f {
			return utf8.RuneError
		}
		return r
	}, s)
}

// Fold breaks s at word boundaries into lines of at most width runes. A word that is longer gets a line of its own.
func Fold(s string, width int) []string {
	var lines []string
	line, length := "", 0
	for _, word := range strings.Fields(s) {
		n := utf8.RuneCountInString(word)
		if line != "" && length+1+n > width {
			lines = append(lines, line)
			line, length = "", 0
		}
		if line != "" {
			line, length = line+" ", length+1
		}
		line, length = line+word, length+n
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}
