package lint

import (
	"errors"
	"regexp"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpuop/finding"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpuop/sharing"
)

// A word is one argument of a command as the shell would pass it.
type word struct {
	value string
	// raw is the argument as it is written.
	raw  string
	line int
	col  int
	// dynamic says that the shell computes the value, so that it cannot be known here.
	dynamic bool
}

// A command is a simple command of a pasted script.
type command struct {
	words []word
	// stdin is the here-document that the command, or the one before it in a pipe, reads; nil without one.
	stdin *document
	line  int
	// start and end are the offsets of the command in the script, without its redirections.
	start, end int
	// dangling are words that the shell takes for the file of a redirection: <node>.
	dangling []word
}

// A document is text inside a script, from a line on.
type document struct {
	text string
	line int // the line in the script before the first of the document
	// route is how the document, a device plugin config, reaches the plugin, where a command says so.
	route sharing.Route
}

// A script is a pasted text of shell commands.
type script struct {
	commands []command
	// files are those that the script itself writes with a here-document, by name.
	files    map[string]document
	findings []finding.Finding
}

const sourceShell = "POSIX shell command language"

var prompt = regexp.MustCompile(`(?m)^(\s*)[$#] (\s*(?:helm|kubectl|cat|sudo|kubernetes|oc)\b)`)

// lookalikes are characters that word processors and blogs put in the place of ASCII ones.
var lookalikes = []struct{ found, meant string }{{"“", `"`}, {"”", `"`}, {"‘", "'"}, {"’", "'"}, {"–", "--"}, {"—", "--"}, {"\u00a0", " "}}

// parseScript reads the commands of a script. What it cannot read it reports; what could be read is returned.
func parseScript(text string) *script {
	s := &script{files: map[string]document{}}
	text = prompt.ReplaceAllString(text, "$1  $2")
	for i, line := range strings.Split(text, "\n") {
		for _, l := range lookalikes {
			if at := strings.Index(line, l.found); at >= 0 {
				s.findings = append(s.findings, finding.Finding{
					ID: "lookalike", Severity: finding.Error, Line: i + 1, Column: at + 1, Subject: l.found,
					Reason: "a character that a web page put in the place of an ASCII one; the shell does not know it", Fix: "write " + l.meant, Source: sourceShell,
				})
			}
		}
	}
	parser := syntax.NewParser(syntax.Variant(syntax.LangBash))
	file, err := parser.Parse(strings.NewReader(text), "")
	if err != nil {
		f := finding.Finding{ID: "shell-syntax", Severity: finding.Error, Reason: "the shell cannot read this: " + err.Error(), Source: sourceShell}
		var parse syntax.ParseError
		if errors.As(err, &parse) {
			f.Reason, f.Line, f.Column = "the shell cannot read this: "+parse.Text, int(parse.Pos.Line()), int(parse.Pos.Col())
		}
		s.findings = append(s.findings, f)
	}
	if file != nil {
		for _, stmt := range file.Stmts {
			s.statement(text, stmt, nil)
		}
	}
	return s
}

// statement collects the simple commands of a statement; stdin is what a pipe brings.
func (s *script) statement(text string, stmt *syntax.Stmt, stdin *document) *document {
	if stmt == nil {
		return nil
	}
	here, dangling := s.redirections(text, stmt)
	if here != nil {
		stdin = here
	}
	switch cmd := stmt.Cmd.(type) {
	case *syntax.CallExpr:
		c := command{stdin: stdin, line: int(cmd.Pos().Line()), start: int(cmd.Pos().Offset()), end: int(cmd.End().Offset()), dangling: dangling}
		for _, w := range cmd.Args {
			c.words = append(c.words, readWord(text, w))
		}
		if len(c.words) == 0 {
			return nil
		}
		s.commands = append(s.commands, c)
		if c.words[0].value == "cat" && len(c.words) == 1 {
			return stdin
		}
	case *syntax.BinaryCmd:
		out := s.statement(text, cmd.X, stdin)
		if cmd.Op == syntax.Pipe || cmd.Op == syntax.PipeAll {
			return s.statement(text, cmd.Y, out)
		}
		s.statement(text, cmd.Y, nil)
	case *syntax.Subshell:
		for _, inner := range cmd.Stmts {
			s.statement(text, inner, nil)
		}
	case *syntax.Block:
		for _, inner := range cmd.Stmts {
			s.statement(text, inner, nil)
		}
	}
	return nil
}

// redirections returns the statement's here-document, notes the file that it is written to, and collects the words
// that stand for redirections by mistake.
func (s *script) redirections(text string, stmt *syntax.Stmt) (here *document, dangling []word) {
	to := ""
	for _, r := range stmt.Redirs {
		switch r.Op {
		case syntax.Hdoc, syntax.DashHdoc:
			if r.Hdoc != nil {
				start, end := int(r.Hdoc.Pos().Offset()), int(r.Hdoc.End().Offset())
				if start >= 0 && end <= len(text) && start <= end {
					here = &document{text: withoutDelimiter(text[start:end], readWord(text, r.Word).value), line: int(r.Hdoc.Pos().Line()) - 1}
				}
			}
		case syntax.RdrOut, syntax.RdrAll, syntax.AppOut:
			to = readWord(text, r.Word).value
			dangling = append(dangling, readWord(text, r.Word))
		case syntax.RdrIn:
			dangling = append(dangling, readWord(text, r.Word))
		}
	}
	if here != nil && to != "" {
		s.files[to] = *here
		return nil, nil
	}
	return here, dangling
}

// withoutDelimiter drops the line that ends a here-document, where the text has it.
func withoutDelimiter(text, delimiter string) string {
	body, last, found := cutLast(strings.TrimRight(text, "\n"), "\n")
	if !found {
		body, last = "", body
	}
	if strings.TrimSpace(last) == delimiter && delimiter != "" {
		return body + "\n"
	}
	return text
}

// readWord unquotes a word as the shell does; expansions make it dynamic.
func readWord(text string, w *syntax.Word) word {
	if w == nil {
		return word{}
	}
	out := word{line: int(w.Pos().Line()), col: int(w.Pos().Col())}
	if start, end := int(w.Pos().Offset()), int(w.End().Offset()); start >= 0 && end <= len(text) && start <= end {
		out.raw = text[start:end]
	}
	var value strings.Builder
	for _, part := range w.Parts {
		switch part := part.(type) {
		case *syntax.Lit:
			value.WriteString(unescape(part.Value, false))
		case *syntax.SglQuoted:
			value.WriteString(part.Value)
		case *syntax.DblQuoted:
			for _, inner := range part.Parts {
				if lit, isLit := inner.(*syntax.Lit); isLit {
					value.WriteString(unescape(lit.Value, true))
				} else {
					out.dynamic = true
				}
			}
		default:
			out.dynamic = true
		}
	}
	out.value = value.String()
	if out.dynamic {
		out.value = out.raw
	}
	return out
}

// unescape removes backslashes as the shell does outside quotes, or inside double quotes.
func unescape(s string, quoted bool) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			if s[i+1] == '\n' {
				i++
				continue
			}
			if !quoted || strings.IndexByte("$`\"\\", s[i+1]) >= 0 {
				i++
			}
		}
		out.WriteByte(s[i])
	}
	return out.String()
}

// quote writes s so that the shell passes it as it is.
func quote(s string) string {
	if s != "" && strings.IndexFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:=,@%+", r))
	}) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
