package report

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

// state colors word by the state's severity.
func (s Style) state(v State, word string) string {
	codes := [...]string{OK: "32", Note: "34", Waiting: "33", Unknown: "33", Warning: "33", Failed: "31"}
	return s.paint(codes[v], word)
}

// textWidth is the width of text output, in runes.
const textWidth = 112

// WriteText writes the report for people.
//
// Findings in files have the form of compilers, "file:line:column: severity: message [check]", followed by the line with a
// caret, and by the fix after an arrow. For a cluster, each node has a heading, and nodes with the same rows share one. Each
// row has its state, subject, age, reason and fix. Unless verbose is set, passed checks are only counted. An empty report
// writes nothing.
func (r *Report) WriteText(w io.Writer, style Style, verbose bool) error {
	out := bufio.NewWriter(w)
	if first := r.first(); first != "" {
		fmt.Fprintf(out, "%s %s\n\n", style.Bold("start here:"), OneLine(first))
	}
	if !r.Judged {
		for _, row := range r.Rows {
			writeFinding(out, style, row)
		}
		return out.Flush()
	}
	for _, b := range r.branches() {
		fmt.Fprintln(out, style.Bold(OneLine(b.heading())))
		ok := 0
		for _, row := range b.rows {
			if row.State == OK && !verbose {
				ok++
				continue
			}
			r.writeRow(out, style, row)
		}
		if ok > 0 {
			checks := "checks"
			if ok == 1 {
				checks = "check"
			}
			fmt.Fprintf(out, "  %s %s\n", style.state(OK, fmt.Sprintf("%-7s", OK)), style.Dim(fmt.Sprintf("%d %s as intended", ok, checks)))
		}
	}
	return out.Flush()
}

// writeFinding writes a finding in a file or a command.
func writeFinding(out *bufio.Writer, style Style, row Row) {
	place := row.File
	switch {
	case place == "":
	case row.Line > 0 && row.Column > 0:
		place = fmt.Sprintf("%s:%d:%d", place, row.Line, row.Column)
	case row.Line > 0:
		place = fmt.Sprintf("%s:%d", place, row.Line)
	}
	if place != "" {
		fmt.Fprintf(out, "%s ", style.Bold(OneLine(place)+":"))
	}
	message := row.Reason
	if row.Subject != "" {
		message = row.Subject + ": " + message
	}
	fmt.Fprintf(out, "%s %s %s\n", style.state(row.State, row.State.Severity()+":"), OneLine(message), style.Dim("["+string(row.ID)+"]"))
	writeSource(out, style, row)
	mark := style.Green("→")
	for line := range strings.SplitSeq(strings.TrimRight(row.Fix, "\n"), "\n") {
		if row.Fix != "" {
			fmt.Fprintf(out, "  %s %s\n", mark, OneLine(line))
		}
		mark = " "
	}
}

// maxSource is the longest line of a file that is shown, in runes.
const maxSource = 160

// writeSource writes the line of a finding, with a caret below the column.
func writeSource(out *bufio.Writer, style Style, row Row) {
	text := strings.TrimRight(row.Text, " \t\r")
	if strings.TrimSpace(text) == "" || utf8.RuneCountInString(text) > maxSource {
		return
	}
	number := strconv.Itoa(row.Line)
	fmt.Fprintf(out, "  %s %s\n", style.Dim(number+" |"), OneLine(text))
	if at := row.Column - 1; at >= 0 && at < len(text) {
		word := len(text[at:]) - len(strings.TrimLeftFunc(text[at:], inWord))
		fmt.Fprintf(out, "  %s %s%s\n", style.Dim(strings.Repeat(" ", len(number))+" |"),
			strings.Repeat(" ", utf8.RuneCountInString(text[:at])), style.Green("^"+strings.Repeat("~", max(word-1, 0))))
	}
}

// inWord reports whether a rune is part of a key or flag.
func inWord(r rune) bool {
	return r == '-' || r == '_' || r == '.' || unicode.IsLetter(r) || unicode.IsDigit(r)
}

// writeRow writes one row about a cluster or node.
func (r *Report) writeRow(out *bufio.Writer, style Style, row Row) {
	lead := fmt.Sprintf("  %-8s", row.State)
	margin := strings.Repeat(" ", len(lead))
	after := ""
	if !row.Since.IsZero() && !r.At.IsZero() {
		after = "  for " + r.At.Sub(row.Since).Round(time.Second).String()
	}
	fmt.Fprintf(out, "%s%s%s\n", style.state(row.State, lead), style.Bold(OneLine(cmp.Or(row.Subject, string(row.ID)))), style.Dim(after))
	say := func(text string, paint func(string) string) {
		for _, line := range Fold(OneLine(text), textWidth-len(margin)) {
			fmt.Fprintf(out, "%s%s\n", margin, paint(line))
		}
	}
	plain := func(s string) string { return s }
	say(row.Reason, plain)
	if e := row.Evidence; e.Kind == "event" && !strings.Contains(row.Reason, e.Text) {
		of := fmt.Sprintf("%s of %s", e.Kind, e.Object)
		if age := r.At.Sub(e.Time); !e.Time.IsZero() && !r.At.IsZero() && age >= 0 {
			of += fmt.Sprintf(", %s ago", age.Round(time.Second))
		}
		say(of+": "+e.Text, style.Dim)
	}
	if row.Nodes != "" {
		say("on "+row.Nodes, plain)
	}
	if row.Fix == "" {
		return
	}
	mark := style.Green("→")
	for line := range strings.SplitSeq(strings.TrimRight(row.Fix, "\n"), "\n") {
		fmt.Fprintf(out, "%s%s %s\n", margin[2:], mark, OneLine(line))
		mark = " "
	}
}

// branch holds the rows below one heading.
type branch struct {
	nodes []string // empty for files and for the cluster
	rows  []Row
}

func (b branch) heading() string {
	switch n := len(b.nodes); {
	case n == 0:
		return "cluster"
	case n <= 3:
		return strings.Join(b.nodes, ", ")
	default:
		return fmt.Sprintf("%s, %s and %d more nodes", b.nodes[0], b.nodes[1], n-2)
	}
}

// branches groups the sorted rows by file or by node. Nodes with the same rows share a branch. The cluster comes first,
// then the nodes with problems.
func (r *Report) branches() []branch {
	var all []branch
	known := map[string]int{} // maps the text of the rows to an index in all
	for rows := r.Rows; len(rows) > 0; {
		first, n := rows[0], 1
		for n < len(rows) && rows[n].Node == first.Node && rows[n].File == first.File {
			n++
		}
		b := branch{rows: rows[:n:n]}
		rows = rows[n:]
		if first.Node != "" {
			b.nodes = []string{first.Node}
			name := alike(b.rows)
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
		return cmp.Compare(worst(b.rows), worst(a.rows))
	})
	return all
}

// alike returns a key that is equal for nodes whose rows look the same.
func alike(rows []Row) string {
	var key strings.Builder
	node := rows[0].Node
	for _, row := range rows {
		if row.Evidence.Time, row.Node = (time.Time{}), ""; row.Evidence.Kind != "event" {
			row.Evidence = Evidence{} // not shown in text
		}
		fmt.Fprintf(&key, "%+v\n", row)
	}
	return strings.ReplaceAll(key.String(), node, "\x00")
}

func worst(rows []Row) State {
	return slices.MaxFunc(rows, func(a, b Row) int { return cmp.Compare(a.State, b.State) }).State
}

// Summary counts the rows: "2 errors, 1 warning" for files, "2 failed, 1 warning, 40 ok" for a cluster.
func (r *Report) Summary() string {
	var count [len(states)]int
	for _, row := range r.Rows {
		count[row.State]++
	}
	var parts []string
	for s, word := range slices.Backward(states[:]) {
		switch {
		case count[s] == 0:
		case r.Judged:
			parts = append(parts, fmt.Sprintf("%d %s", count[s], word))
		default:
			parts = append(parts, Count(count[s], State(s).Severity()))
		}
	}
	if r.Ignored > 0 {
		if len(parts) == 0 {
			parts = append(parts, "no findings")
		}
		parts = append(parts, fmt.Sprintf("%d ignored", r.Ignored))
	}
	switch {
	case len(parts) > 0:
		return strings.Join(parts, ", ")
	case r.Judged:
		return "nothing was judged"
	}
	return "no findings"
}

// Count returns a number with its word: "1 input", "2 inputs".
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

// Fold breaks s at word boundaries into lines of at most width runes. A longer word gets its own line.
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
