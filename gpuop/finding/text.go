package finding

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// A Style paints words for a terminal. The zero value paints nothing.
type Style struct{ Color bool }

// Bold, Dim, Red, Yellow, Green and Blue wrap s in the matching escape sequence, or return it as it
// is.
func (s Style) Bold(text string) string   { return s.paint("1", text) }
func (s Style) Dim(text string) string    { return s.paint("2", text) }
func (s Style) Red(text string) string    { return s.paint("31", text) }
func (s Style) Yellow(text string) string { return s.paint("33", text) }
func (s Style) Green(text string) string  { return s.paint("32", text) }
func (s Style) Blue(text string) string   { return s.paint("34", text) }

func (s Style) paint(code, text string) string {
	if !s.Color || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Severity returns the name of a severity in its color.
func (s Style) Severity(v Severity) string {
	switch v {
	case Error:
		return s.Red(v.String())
	case Warning:
		return s.Yellow(v.String())
	default:
		return s.Blue(v.String())
	}
}

// TextWidth is the width of the text for a human, in runes.
const TextWidth = 112

// WriteText writes the report for a human: a heading for each file, then for each finding its
// severity, subject and line (unless all are on the first), the reason, and the fix after an arrow;
// long sentences are folded. An empty report writes nothing.
func (r *Report) WriteText(w io.Writer, style Style) error {
	out := bufio.NewWriter(w)
	lines := map[string]int{}
	for _, f := range r.Findings {
		lines[f.File] = max(lines[f.File], f.Line)
	}
	for i, f := range r.Findings {
		if i == 0 || f.File != r.Findings[i-1].File {
			if i > 0 {
				out.WriteByte('\n')
			}
			if f.File != "" {
				fmt.Fprintln(out, style.Bold(OneLine(f.File)))
			}
		}
		f.writeText(out, style, lines[f.File] > 1)
	}
	return out.Flush()
}

// writeText writes one finding; lines says whether its line is worth naming.
func (f *Finding) writeText(out *bufio.Writer, style Style, lines bool) {
	subject := cmp.Or(f.Subject, f.ID)
	out.WriteString(style.Severity(f.Severity))
	out.WriteString(strings.Repeat(" ", 7-len(f.Severity.String())))
	out.WriteString(style.Bold(OneLine(subject)))
	if f.Line > 0 && lines {
		out.WriteString(style.Dim(fmt.Sprintf("  line %d", f.Line)))
	}
	out.WriteByte('\n')
	for _, line := range Fold(OneLine(f.Reason), TextWidth-7) {
		fmt.Fprintf(out, "       %s\n", line)
	}
	for j, line := range strings.Split(strings.TrimRight(f.Fix, "\n"), "\n") {
		if f.Fix == "" {
			break
		}
		mark := style.Green("→")
		if j > 0 {
			mark = " "
		}
		fmt.Fprintf(out, "     %s %s\n", mark, line)
	}
}

// Summary counts the findings: "2 errors, 1 warning", or "no findings".
func (r *Report) Summary() string {
	var parts []string
	for _, level := range []struct {
		severity Severity
		one      string
		many     string
	}{{Error, "error", "errors"}, {Warning, "warning", "warnings"}, {Info, "note", "notes"}} {
		switch n := r.Count(level.severity); n {
		case 0:
		case 1:
			parts = append(parts, "1 "+level.one)
		default:
			parts = append(parts, fmt.Sprintf("%d %s", n, level.many))
		}
	}
	if len(parts) == 0 {
		return "no findings"
	}
	return strings.Join(parts, ", ")
}

// OneLine keeps control characters of an input out of the terminal.
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

// Fold breaks s between words into lines of at most width runes; a longer word gets a line of its
// own.
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
