// Package input parses what people use to install the GPU Operator: shell scripts, Terraform files, and files of other
// tools that contain chart values.
//
// Unknown parts of a text, such as variables, are kept as written. The package runs no program and opens no file.
// Inputs that are too large or nested too deeply are rejected with a reason.
package input

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
)

// Word is an argument of a command, as the shell would pass it to a program.
type Word struct {
	Value     string
	Raw       string // the argument as written
	Line, Col int
	// Start is the offset of Raw in the script, or -1 if the script does not contain it literally.
	Start   int
	Dynamic bool // the shell computes the value, so it is unknown
	Splits  bool // the word is dynamic and can expand to any number of arguments, such as $OPTIONS
	Perhaps bool // the word is present only in some branches of the script
}

// Command is a simple command of a script.
type Command struct {
	Words []Word
	Stdin *Document // the text on standard input, or nil if it is unknown
	// Start and End are the offsets of the command in the script, without redirections.
	Start, End int
	Namespaced bool // an environment variable sets the namespace
}

// Document is a text in a script, such as a here-document.
type Document struct {
	Text   string
	Line   int  // number of lines of the script before the document
	Judged bool // the document is checked together with the command that reads it
	Holes  bool // the shell fills in parts of the text
	Open   bool // the script appends unknown text to the file
}

// add appends a later text; nil is unknown. Empty lines between the texts keep the line numbers of both.
func (d *Document) add(later *Document) {
	if later == nil {
		d.Open = true
		return
	}
	d.Text += strings.Repeat("\n", max(0, later.Line-d.Line-strings.Count(d.Text, "\n"))) + later.Text
	d.Holes, d.Open = d.Holes || later.Holes, d.Open || later.Open
}

// Script is a parsed shell script.
type Script struct {
	Text        string
	Commands    []Command
	Files       map[string]*Document // the files that the script writes
	Findings    []check.Finding
	Corrections []Correction
}

// Correction replaces the bytes from Start to End of the script.
type Correction struct {
	Start, End int
	Text       string
}

var (
	// ours matches the beginning of a command that gpuop checks.
	ours = regexp.MustCompile(`(?m)^[ \t]*(?:(?:sudo|env)[ \t]+(?:\S+[ \t]+)*?)?` +
		`(?:\S*[/.])?(?:helm3?|kubectl|oc|microk8s|k3s)[ \t]`)
	// prompt matches a command after a prompt. foreign matches a line that is continued as in PowerShell or cmd.
	prompt  = regexp.MustCompile(`(?m)^\s*\$ \S`)
	foreign = regexp.MustCompile("(?m) [`^]$")
	// templated matches a statement of Jinja, which makes the lines below it conditional.
	templated = regexp.MustCompile(`(?m)^\s*\{%`)
)

// skipReason returns why a script is not parsed, or "". A text with prompts also contains output.
func skipReason(text string) string {
	switch {
	case templated.MatchString(text):
		return "the script is a template; skipped"
	case prompt.MatchString(text) && !ours.MatchString(text):
		return "the commands follow a prompt ($); skipped"
	case foreign.MatchString(text) && !strings.Contains(text, "\\\n"):
		return "lines are continued as in PowerShell or cmd; skipped"
	}
	return tooComplex(text)
}

// ParseScript parses a script, and reports what it cannot parse. line is the number of lines before it in its file.
func ParseScript(text string, line int) *Script {
	text = strings.TrimSuffix(strings.ReplaceAll(text, "\r\n", "\n"), "\\")
	s := &Script{Text: text, Files: map[string]*Document{}}
	f := check.Finding{Check: Skipped, Severity: check.Note, Reason: skipReason(text)}
	if f.Reason == "" {
		r := scriptReader{Script: s, line: line + 1, col: 1, variables: map[string]variable{}}
		err := r.parse(text)
		if err == nil {
			return s
		}
		// Only an unterminated quote or here-document is an error, because bash accepts most of the rest.
		f.Reason = "the rest was not checked: "
		if syntax.IsIncomplete(err) && ours.MatchString(text) {
			f = check.Finding{Check: shellSyntax, Severity: check.Error, Reason: "the shell cannot parse this: "}
		}
		var parse syntax.ParseError
		_ = errors.As(err, &parse) // errors of other types have no position
		f.Reason += cmp.Or(parse.Text, err.Error())
		f.Line, f.Column = line+int(parse.Pos.Line()), int(parse.Pos.Col())
	}
	s.Findings = append(s.Findings, f)
	return s
}

// variable is a variable that the script assigns.
type variable struct {
	text    string
	words   []Word // the elements of an array, or nil for another variable
	unknown bool   // the value cannot be determined, for example because it depends on input or a command
}

// scriptReader walks a script, or a text that the script passes to another shell. It expands the script's variables.
type scriptReader struct {
	*Script
	offset, line, col int    // position of the text in the script
	mark              string // unescape, or "" if the text has no marks
	variables         map[string]variable
	branched          bool // whether the current node is in a branch
	// from has the statement whose output a statement reads, and written the text that a statement writes.
	from    map[*syntax.Stmt]*syntax.Stmt
	written map[*syntax.Stmt]*Document
}

func (s *scriptReader) parse(text string) error {
	s.from, s.written = map[*syntax.Stmt]*syntax.Stmt{}, map[*syntax.Stmt]*Document{}
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(fill(text)), "")
	if file != nil {
		syntax.Walk(file, s.visit)
	}
	return err
}

func (s *scriptReader) visit(n syntax.Node) bool {
	switch n := n.(type) {
	case *syntax.IfClause, *syntax.CaseClause:
		inner := *s
		inner.branched = true
		syntax.Walk(n, func(below syntax.Node) bool { return below == n || inner.visit(below) })
		return false
	case *syntax.BinaryCmd:
		if n.Op == syntax.Pipe || n.Op == syntax.PipeAll {
			s.from[n.Y] = n.X
			if earlier, is := n.X.Cmd.(*syntax.BinaryCmd); is {
				s.from[n.Y] = earlier.Y
			}
		}
	case *syntax.Stmt:
		if call, is := n.Cmd.(*syntax.CallExpr); is && len(call.Args) > 0 {
			s.statement(n, call)
		}
	case *syntax.WordIter:
		s.variables[n.Name.Value] = variable{unknown: true}
	case *syntax.Assign:
		if n.Name != nil && !n.Naked {
			s.assign(n)
		}
	}
	return true
}

// statement records a simple command. Words that begin with a hyphen are probably flags of the command above.
func (s *scriptReader) statement(stmt *syntax.Stmt, call *syntax.CallExpr) {
	_, _, start := s.place(call.Args[0].Pos())
	c := Command{Stdin: s.written[s.from[stmt]], Start: start, End: s.offset + int(call.End().Offset())}
	for _, w := range call.Args {
		c.Words = append(c.Words, s.words(w)...)
	}
	if len(c.Words) == 0 {
		return
	}
	s.redirections(stmt, &c)
	_, exported := s.variables[helmNamespace]
	c.Namespaced = exported || strings.Contains(s.source(call), helmNamespace+"=")
	if n := len(s.Commands); n > 0 && strings.HasPrefix(c.Words[0].Raw, "-") {
		if last := &s.Commands[n-1]; ours.MatchString(s.Text[last.Start:max(last.Start, last.End)]) {
			s.broken(last, c)
		}
		return
	}
	if c.Words[0].Value == "read" {
		for _, w := range c.Words[1:] {
			s.variables[w.Value] = variable{unknown: true}
		}
	}
	s.Commands = append(s.Commands, c)
	s.shell(c)
}

var passing = []string{"cat", "tee", "envsubst", "sed"}

// redirections records the here-document that a command reads, and the text that it writes, unless that is unknown.
func (s *scriptReader) redirections(stmt *syntax.Stmt, c *Command) {
	to, appends := "", false
	name, last := c.Words[0].Value, c.Words[len(c.Words)-1]
	if name == "tee" {
		to = last.Value
	}
	for _, redirect := range stmt.Redirs {
		switch redirect.Op {
		case syntax.Hdoc, syntax.DashHdoc:
			c.Stdin = s.hereDocument(redirect)
		case syntax.RdrOut, syntax.RdrAll, syntax.AppOut:
			if list := s.words(redirect.Word); len(list) == 1 && (redirect.N == nil || redirect.N.Value == "1") {
				to, appends = list[0].Value, redirect.Op == syntax.AppOut
			}
		}
	}
	var text *Document
	switch {
	case slices.Contains(passing, name):
		text = c.Stdin
	case (name == "echo" || name == "printf") && strings.Contains(last.Value, "\n"):
		text = &Document{Text: last.Value + "\n", Line: last.Line - 1}
	}
	s.written[stmt] = text
	if before := s.Files[to]; before != nil && appends {
		before.add(text)
	} else if text != nil && to != "" {
		s.Files[to] = text
	}
}

var (
	shells = []string{"sh", "bash", "dash", "ash", "zsh", "su"}
	dashC  = regexp.MustCompile(`^-[a-z]*c$`)
	// escaped matches escaped characters inside double quotes, and escapedHere those in a here-document.
	escaped     = regexp.MustCompile("\\\\([\"$`\\\\])")
	escapedHere = regexp.MustCompile("\\\\([$`\\\\])")
	leadingTabs = regexp.MustCompile(`(?m)^\t+`)
)

// shell parses the command in an argument of a shell: bash -c "helm …".
func (s *scriptReader) shell(c Command) {
	isShell := func(w Word) bool { return slices.Contains(shells, path.Base(w.Value)) }
	for i, w := range c.Words {
		if i < 2 || !dashC.MatchString(c.Words[i-1].Value) || !slices.ContainsFunc(c.Words[:i-1], isShell) ||
			w.Start < 0 || len(w.Raw) < 2 || !strings.ContainsRune(`'"`, rune(w.Raw[0])) {
			continue
		}
		inner, text := *s, w.Raw[1:len(w.Raw)-1]
		inner.offset, inner.line, inner.col, inner.mark = w.Start+1, w.Line, w.Col+1, ""
		if w.Raw[0] == '"' {
			inner.mark, text = unescape, escaped.ReplaceAllString(text, unescape+"$1")
		}
		_ = inner.parse(text) // errors are ignored: the outer shell may expand the text first
	}
}

// place converts a position in the text to the line, column and offset in the script.
func (s *scriptReader) place(p syntax.Pos) (line, col, offset int) {
	line, col = s.line+int(p.Line())-1, int(p.Col())
	if p.Line() == 1 {
		col += s.col - 1
	}
	return line, col, s.offset + int(p.Offset())
}

func (s *scriptReader) source(n syntax.Node) string {
	return s.Text[s.offset+int(n.Pos().Offset()) : s.offset+int(n.End().Offset())]
}

// broken reports flags in c that a missing line continuation cuts off from the command last. It adds them to last,
// unless quotes, parentheses or redirections are in between.
func (s *scriptReader) broken(last *Command, c Command) {
	w := c.Words[0]
	f := check.Finding{Check: brokenContinuation, Severity: check.Error, Line: w.Line, Column: w.Col, Subject: w.Value,
		Reason: "the line before does not end with \\, so the shell runs this as a command of its own",
		Fix:    "move it into the command above"}
	joins := last.End <= c.Start && between.MatchString(s.Text[last.End:c.Start])
	switch {
	case joins && strings.Contains(s.Text[last.End:c.Start], "#"):
		f.Reason = "the comment ends the command, so the shell runs what follows as a command of its own"
		f.Fix = "move the comment above the command"
	case joins:
		f.Fix = "end the line before with \\"
		s.Corrections = append(s.Corrections, Correction{last.End, c.Start, " \\\n  "})
	}
	s.Findings = append(s.Findings, f)
	if joins {
		last.Words, last.End = append(last.Words, c.Words...), c.End
	}
}

// assign records the value of a variable. An array that is assigned in branches gets the elements of all branches. A
// string that is assigned again is unknown, because the script may be in a branch or a loop.
func (s *scriptReader) assign(n *syntax.Assign) {
	before, again := s.variables[n.Name.Value]
	v := variable{}
	if n.Array != nil {
		v.words = []Word{}
		if n.Append || s.branched {
			v.words = append(v.words, before.words...)
		}
		for _, e := range n.Array.Elems {
			for _, w := range s.words(e.Value) {
				w.Perhaps = w.Perhaps || s.branched
				v.words = append(v.words, w)
			}
		}
	} else if n.Value != nil {
		text, known := s.literal(n.Value.Parts)
		v = variable{text: text, unknown: !known || n.Append || again}
	}
	s.variables[n.Name.Value] = v
}

// config sets HOME, because the expander would otherwise look up the user of this machine.
func (s *scriptReader) config() *expand.Config {
	return &expand.Config{Env: expand.FuncEnviron(func(name string) string {
		if user, isHome := strings.CutPrefix(name, "HOME"); isHome && s.variables[name].text == "" {
			return "~" + strings.TrimSpace(user)
		}
		return s.variables[name].text
	})}
}

// known reports whether the script determines the value of a part.
func (s *scriptReader) known(part syntax.WordPart) bool {
	for n := range syntax.Preorder(part) {
		switch n := n.(type) {
		case *syntax.CmdSubst, *syntax.ProcSubst, *syntax.ArithmExp, *syntax.ExtGlob:
			return false
		case *syntax.ParamExp:
			v, assigned := s.variables[n.Param.Value]
			hasDefault := n.Exp != nil && (n.Exp.Op == syntax.DefaultUnset || n.Exp.Op == syntax.DefaultUnsetOrNull)
			if n.Excl || n.Repl != nil || n.Slice != nil || !assigned && !hasDefault || v.unknown || v.words != nil {
				return false
			}
		}
	}
	return true
}

// holes returns the parts without marks, and with the source text of unknown ones.
func (s *scriptReader) holes(parts []syntax.WordPart) (out []syntax.WordPart, known bool) {
	known = true
	for _, p := range parts {
		switch q := p.(type) {
		case *syntax.DblQuoted:
			inner, all := s.holes(q.Parts)
			p, known = &syntax.DblQuoted{Parts: inner}, known && all
		case *syntax.Lit:
			p = &syntax.Lit{Value: strings.ReplaceAll(q.Value, s.mark, "")}
		case *syntax.SglQuoted:
			if source := s.source(p); !q.Dollar {
				p = &syntax.SglQuoted{Value: source[1 : len(source)-1]}
			}
		default:
			if !s.known(p) {
				p, known = &syntax.SglQuoted{Value: s.source(p)}, false
			}
		}
		out = append(out, p)
	}
	return out, known
}

// literal expands parts to one text, or "" if that fails or is too long. Unknown parts are kept as written.
func (s *scriptReader) literal(parts []syntax.WordPart) (text string, known bool) {
	parts, known = s.holes(parts)
	text, err := expand.Literal(s.config(), &syntax.Word{Parts: parts})
	if err != nil || len(text) > maxWord {
		return "", false
	}
	return text, known
}

// words expands a word as the shell does. A word with an unknown part or braces is not split.
func (s *scriptReader) words(w *syntax.Word) []Word {
	if w == nil {
		return nil
	}
	line, col, start := s.place(w.Pos())
	out := Word{Line: line, Col: col, Start: start, Raw: s.source(w)}
	list := several.FindStringSubmatch(out.Raw)
	if list != nil && s.variables[list[1]].words != nil {
		return slices.Clone(s.variables[list[1]].words)
	}
	parts, known := s.holes(w.Parts)
	_, quoted := w.Parts[0].(*syntax.DblQuoted)
	out.Splits = !known && out.Raw[0] != '<' && (list != nil || len(w.Parts) == 1 && !quoted)
	values, err := []string{""}, error(nil)
	if !known || syntax.SplitBraces(&syntax.Word{Parts: w.Parts}) {
		values[0], err = expand.Literal(s.config(), &syntax.Word{Parts: parts})
	} else {
		values, err = expand.Fields(s.config(), &syntax.Word{Parts: parts})
	}
	if err != nil || len(strings.Join(values, "")) > maxWord {
		values, known = []string{out.Raw}, false
	}
	words := make([]Word, len(values))
	for i, value := range values {
		words[i] = out
		words[i].Value, words[i].Dynamic = value, !known || strings.Contains(value, Filled)
		if len(values) > 1 {
			words[i].Raw, words[i].Start = Quote(words[i].Value), -1
		}
	}
	return words
}

// hereDocument returns a here-document in which known variables are expanded.
func (s *scriptReader) hereDocument(redirect *syntax.Redirect) *Document {
	if redirect.Hdoc == nil {
		return nil
	}
	line, _, start := s.place(redirect.Hdoc.Pos())
	out := &Document{Line: line - 1}
	for _, part := range redirect.Hdoc.Parts {
		lit, isText := part.(*syntax.Lit)
		switch {
		case !isText:
			filled, known := s.literal([]syntax.WordPart{&syntax.DblQuoted{Parts: []syntax.WordPart{part}}})
			out.Text, out.Holes = out.Text+filled, out.Holes || !known
		case strings.ContainsAny(s.source(redirect.Word), `'"\`):
			out.Text += s.Text[start : start+len(lit.Value)]
		default: // the parser joins continued lines: add empty lines to keep the line numbers
			joined := int(lit.Pos().Line()-redirect.Hdoc.Pos().Line()) - strings.Count(out.Text, "\n")
			plain := escapedHere.ReplaceAllString(lit.Value, "$1")
			out.Text += strings.Replace(plain, "\n", strings.Repeat("\n", 1+max(0, joined)), 1)
		}
	}
	if redirect.Op == syntax.DashHdoc {
		out.Text = leadingTabs.ReplaceAllString(out.Text, "")
	}
	return out
}

// Quote quotes s for the shell.
func Quote(s string) string {
	if plain.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

const (
	// unescape is a mark in place of a backslash that the outer shell removes, so that offsets stay the same.
	unescape = "\x06"
	// Filled is the beginning of a template expression of Helm, Ansible or GitHub.
	Filled = "{{"
	// helmNamespace is the environment variable that means the same as helm's --namespace.
	helmNamespace = "HELM_NAMESPACE"
)

var (
	// placeholder matches <words> that the reader of an article must replace, but not redirections such as << and 2<.
	placeholder = regexp.MustCompile(`(?:^|[\s='"/,:@{-])` +
		`(<[A-Za-z](?:[A-Za-z0-9_. ,:/|'-]{0,120}[A-Za-z0-9_.'])?>)(?:\B|$)`)
	// action matches an expression of Helm, Ansible or GitHub: {{ version }}, ${{ env.VERSION }}.
	action = regexp.MustCompile(`\$?\{\{.*?\}\}`)
	// redirected matches the end of an apparent placeholder in "<input 2>errors".
	redirected = regexp.MustCompile(` [0-9]>$`)
	// several matches "$@", "${LIST[@]}" and ${LIST[@]+"${LIST[@]}"}. Its group is the name of an array.
	several = regexp.MustCompile(`^"?\$(?:@|\{@\}|\{(\w+)\[[@*]\](?::?\+"?\$\{\w+\[[@*]\]\}"?)?\})"?$`)
	// between matches white space, backslashes and comments.
	between = regexp.MustCompile(`^(\\?\s)*(#[^\n]*\n\s*)*$`)
	plain   = regexp.MustCompile(`^[a-zA-Z0-9./:=,@%+_-]+$`)
	quoted  = regexp.MustCompile(`"[^"]*"|'[^']*'`)
	nested  = regexp.MustCompile(`[({\[` + "`" + `]|[)}\]]|\b(?:if|while|until|for|case|select)\b|\b(?:fi|done|esac)\b`)
)

// fill replaces template expressions and placeholders by variables, because the shell would read them as redirections.
func fill(text string) string {
	return placeholder.ReplaceAllStringFunc(action.ReplaceAllStringFunc(text, unassigned), func(found string) string {
		if redirected.MatchString(found) {
			return found
		}
		before, name, _ := strings.Cut(found, "<")
		return before + unassigned("<"+name)
	})
}

// unassigned returns a variable of the same length that nothing assigns.
func unassigned(text string) string { return "$" + strings.Repeat("_", len(text)-1) }

// Unquoted returns the word as written, without its quoted parts.
func (w Word) Unquoted() string { return quoted.ReplaceAllString(w.Raw, "") }

// Placeholder returns the part of a word that the reader of an article must replace, such as <node-name>, or "".
func (w Word) Placeholder() string {
	if m := placeholder.FindStringSubmatch(w.Unquoted()); m != nil {
		return m[1]
	}
	return ""
}

// These limits apply to scripts and Terraform files. The parsers are recursive, so maxDepth prevents a stack overflow.
const (
	maxSource = 1 << 20  // bytes of a script or Terraform file
	maxDepth  = 2000     // nested brackets and blocks
	maxWord   = 64 << 10 // bytes of an expanded word
)

func tooComplex(source string) string {
	if len(source) > maxSource {
		return fmt.Sprintf("the text is larger than %d MiB; skipped", maxSource>>20)
	}
	depth := 0
	for _, m := range nested.FindAllString(source, -1) {
		if strings.Contains(")}] fi done esac", m) {
			depth = max(0, depth-1)
		} else if depth++; depth > maxDepth {
			return "brackets or blocks are nested too deeply; skipped"
		}
	}
	return ""
}
