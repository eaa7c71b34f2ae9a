package check

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
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

// WriteText writes the report as text for people to read.
//
// Each finding looks like a compiler's message: "place: severity: message [check]". The place is "file:line:column" or,
// in a cluster, an object or nodes. The line of the file with a caret, the event or log that is the evidence, and the
// fix are on separate lines below. Nodes with equal findings are listed together. Passed checks of a cluster are only
// written if verbose is set. For an empty report, nothing is written.
func (r *Report) WriteText(w io.Writer, style Style, verbose bool) error {
	out := bufio.NewWriter(w)
	findings := r.Findings
	if r.Judged {
		findings = r.byNode()
	}
	for _, f := range findings {
		if f.Severity != OK || verbose {
			r.writeFinding(out, style, f)
		}
	}
	return out.Flush()
}

// byNode returns the findings about the cluster, then those about the nodes, the worst node first. Nodes with equal
// findings share them. If Start is set, the finding to fix first is moved to the front: an error with a known cause,
// else an error without one, else a finding with the severity Waiting.
func (r *Report) byNode() []Finding {
	byNode := map[string][]Finding{}
	for _, f := range r.Findings {
		byNode[f.Node] = append(byNode[f.Node], f)
	}
	all := byNode[""]
	delete(byNode, "")
	alike := map[string][]string{} // nodes by the text of their findings
	for _, node := range slices.Sorted(maps.Keys(byNode)) {
		key := nodeKey(node, byNode[node])
		alike[key] = append(alike[key], node)
	}
	worst := func(nodes []string) Severity {
		bySeverity := func(a, b Finding) int { return cmp.Compare(a.Severity, b.Severity) }
		return slices.MaxFunc(byNode[nodes[0]], bySeverity).Severity
	}
	for _, nodes := range slices.SortedFunc(maps.Values(alike), func(a, b []string) int {
		return cmp.Or(cmp.Compare(worst(b), worst(a)), strings.Compare(a[0], b[0]))
	}) {
		for _, f := range byNode[nodes[0]] {
			f.Nodes = shortList(nodes)
			all = append(all, f)
		}
	}
	if r.Start && len(all) > 0 {
		first := slices.MaxFunc(all, func(a, b Finding) int { return urgency(a) - urgency(b) })
		if i := slices.Index(all, first); urgency(first) > 0 {
			all = slices.Insert(slices.Delete(all, i, i+1), 0, first)
		}
	}
	return all
}

func urgency(f Finding) int {
	switch {
	case f.Severity == Error && f.Cause != "":
		return 3
	case f.Severity == Error:
		return 2
	case f.Severity == Waiting:
		return 1
	}
	return 0
}

// nodeKey returns a text that is equal for nodes whose findings look equal. Only evidence from events may not differ.
func nodeKey(node string, findings []Finding) string {
	var key strings.Builder
	for _, f := range findings {
		if f.Evidence.Time, f.Node = (time.Time{}), ""; f.Evidence.Kind != "event" {
			f.Evidence = Evidence{}
		}
		fmt.Fprintf(&key, "%+v\n", f)
	}
	return strings.ReplaceAll(key.String(), node, "\x00")
}

// objectName matches a subject's object, such as ClusterPolicy/cluster-policy.
var objectName = regexp.MustCompile(`^[A-Z][^/=]*/[^=]*$`)

// writeFinding writes a finding with its source line, evidence and fix. The place of a finding about a cluster is the
// object in its subject, else its nodes, else "cluster".
func (r *Report) writeFinding(out *bufio.Writer, style Style, f Finding) {
	place, part, message := f.File, f.Subject, f.Reason
	if f.Line > 0 {
		place += fmt.Sprintf(":%d", f.Line)
	}
	if f.Column > 0 {
		place += fmt.Sprintf(":%d", f.Column)
	}
	object, rest, _ := strings.Cut(f.Subject, " ")
	on := cmp.Or(f.Nodes, f.Node)
	switch {
	case !r.Judged:
	case objectName.MatchString(object):
		place, part = object, rest
		if on != "" && !strings.HasPrefix(object, "Node/") {
			message += "; on " + on
		}
	case on != "":
		place = "Node/" + on
	default:
		place = "cluster"
	}
	if place != "" {
		fmt.Fprintf(out, "%s ", style.Bold(OneLine(place)+":"))
	}
	if part != "" {
		message = part + ": " + message
	}
	color := [...]string{OK: "32", Note: "34", Waiting: "33", Unknown: "33", Warning: "33", Error: "31"}[f.Severity]
	fmt.Fprintf(out, "%s %s %s\n", style.paint(color, f.Severity.String()+":"),
		OneLine(message+r.age(" (for %s)", f.Since)), style.Dim("["+f.Check.ID+"]"))
	writeSource(out, style, f)
	if e := f.Evidence; (e.Kind == "event" || e.Kind == "log") && !strings.Contains(f.Reason, e.Text) {
		seen := e.Kind + " of " + e.Object + r.age(", %s ago", e.Time) + ": " + e.Text
		fmt.Fprintf(out, "  %s\n", style.Dim(OneLine(seen)))
	}
	mark := style.Green("→")
	for line := range strings.Lines(f.Fix) {
		fmt.Fprintf(out, "  %s %s\n", mark, OneLine(strings.TrimSuffix(line, "\n")))
		mark = " "
	}
}

// age formats the time since a moment. It returns "" if one of the times is unknown.
func (r *Report) age(format string, since time.Time) string {
	age := r.At.Sub(since).Truncate(time.Second)
	if since.IsZero() || age <= 0 {
		return ""
	}
	return fmt.Sprintf(format, age)
}

// maxSource is the length of the longest source line that is written, in runes.
const maxSource = 160

// keyOrFlag matches what the caret below a source line underlines.
var keyOrFlag = regexp.MustCompile(`^[\pL\p{Nd}_.-]*`)

// writeSource writes the source line of a finding, with a caret below the column.
func writeSource(out *bufio.Writer, style Style, f Finding) {
	text := strings.TrimRight(f.Text, " \t\r")
	if strings.TrimSpace(text) == "" || utf8.RuneCountInString(text) > maxSource {
		return
	}
	number := strconv.Itoa(f.Line)
	fmt.Fprintf(out, "  %s %s\n", style.Dim(number+" |"), OneLine(text))
	if at := f.Column - 1; at >= 0 && at < len(text) {
		tail := strings.Repeat("~", max(len(keyOrFlag.FindString(text[at:]))-1, 0))
		fmt.Fprintf(out, "  %s %*s%s\n", style.Dim(strings.Repeat(" ", len(number))+" |"),
			utf8.RuneCountInString(text[:at]), "", style.Green("^"+tail))
	}
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
	if len(parts) == 0 && (!r.Judged || r.Ignored > 0) {
		parts = append(parts, "no findings")
	}
	if r.Ignored > 0 {
		parts = append(parts, fmt.Sprintf("%d ignored", r.Ignored))
	}
	return cmp.Or(strings.Join(parts, ", "), "nothing was checked")
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
func Fold(s string, width int) (lines []string) {
	for _, word := range strings.Fields(s) {
		last := len(lines) - 1
		if last >= 0 && utf8.RuneCountInString(lines[last])+1+utf8.RuneCountInString(word) <= width {
			lines[last] += " " + word
		} else {
			lines = append(lines, word)
		}
	}
	return lines
}
