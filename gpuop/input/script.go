// Package input reads what people apply the GPU Operator with: shell scripts, Terraform files and the files of
// other tools that carry values of charts. A part of a text that is not known here stays inside its word as it is written.
//
// The package judges no value, runs nothing and opens no file. Its bounds hold for any input: a text that is too large or
// too deep is not read, with the reason.
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

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// A Word is one argument of a command as the shell would pass it.
type Word struct {
	Value string
	// Raw is the argument as it is written.
	Raw  string
	Line int
	Col  int
	// Start is where Raw begins in the script; -1 for a word that is not there as it is.
	Start int
	// Dynamic says that the shell computes the value, so that it cannot be known here.
	Dynamic bool
	// Splits says that a dynamic word may become no argument or several: $OPTIONS.
	Splits bool
	// Perhaps says that the word is there on one way through the script, and not on another.
	Perhaps bool
	// Placeholder is a name in an article that its reader replaces: <node-name>.
	Placeholder string
}

// A Command is a simple command of a pasted script.
type Command struct {
	Words []Word
	// Stdin is the here-document that the command or its pipe reads; nil without.
	Stdin *Document
	Line  int
	// Start and End are the offsets of the command in the script, without its redirections.
	Start, End int
	// Namespaced says that the environment names the namespace.
	Namespaced bool
}

// A Document is text inside a script, from a line on.
type Document struct {
	Text string
	Line int // the line in the script before the first of the document
	// Judged says that a command reads the document as its values, and is judged with them.
	Judged bool
}

// A Script is a pasted text of shell commands.
type Script struct {
	Text     string
	Commands []Command
	// Files are the here-documents that the script writes to files, by name.
	Files       map[string]*Document
	Findings    []report.Row
	Corrections []Correction
}

// Correction replaces the bytes from start to end of the script.
type Correction struct {
	Start, End int
	Text       string
}

// HelmNamespace is the variable that stands for helm's flag --namespace.
const HelmNamespace = "HELM_NAMESPACE"

var (
	prompt     = regexp.MustCompile(`(?m)^(\s*)\$ (\s*\S)`)
	rootPrompt = regexp.MustCompile(`^# (\s*(?:helm|kubectl|oc)\b)`)
	// ours is a command that is judged.
	ours = regexp.MustCompile(`(?m)^[ \t]*(?:(?:sudo|env)[ \t]+(?:\S+[ \t]+)*?)?(?:\S*[/.])?(?:helm3?|kubectl|oc|microk8s|k3s)[ \t]`)
	// continued are line ends that continue a command in PowerShell and in cmd.
	continued = regexp.MustCompile("(?m)( )[`^]$")
)

// shellText is the script as a shell of Unix reads it: without prompts, carriage returns, and with
// its own line continuation. Offsets are those of the script without carriage returns.
func shellText(text string) (out string, foreign bool) {
	text = strings.TrimSuffix(strings.ReplaceAll(text, "\r\n", "\n"), "\\")
	if !ours.MatchString(text) { // # begins no comment
		text = rootPrompt.ReplaceAllString(text, "$$ $1")
	}
	text = prompt.ReplaceAllString(text, "$1  $2")
	if strings.Contains(text, "\\\n") || !continued.MatchString(text) {
		return text, false
	}
	return continued.ReplaceAllString(text, "$1\\"), true
}

// templated is a line of Jinja, which stands for a choice between the lines below.
var templated = regexp.MustCompile(`(?m)^\s*\{%`)

// ParseScript reads the commands of a script, as far as it can, and reports the rest. The script begins below so many lines
// of its file.
func ParseScript(text string, line int) *Script {
	s := &Script{Text: text, Files: map[string]*Document{}}
	if reason := tooComplex(text); reason != "" {
		s.Findings = append(s.Findings, report.Row{ID: "not-judged", State: report.Note, Reason: reason})
		return s
	}
	if templated.MatchString(text) {
		s.Findings = append(s.Findings, report.Row{ID: "not-judged", State: report.Note, Reason: "a template of a script, so it is not judged"})
		return s
	}
	foreign := false
	if s.Text, foreign = shellText(text); foreign {
		s.Findings = append(s.Findings, report.Row{ID: "not-posix", State: report.Note,
			Reason: "the lines are continued as PowerShell or cmd do it; judged as if by \\"})
	}
	r := &scriptReader{Script: s, line: line + 1, col: 1, variables: map[string]variable{}, assigned: map[string]int{}}
	if err := r.parse(s.Text); err != nil {
		// bash reads more than the parser, but no text without an end
		f := report.Row{ID: "not-judged", State: report.Note, Reason: "not read from here on: "}
		if syntax.IsIncomplete(err) && ours.MatchString(s.Text) {
			f = report.Row{ID: "shell-syntax", State: report.Failed, Reason: "the shell cannot read this: "}
		}
		var parse syntax.ParseError
		if !errors.As(err, &parse) {
			parse.Text = err.Error()
		}
		f.Reason, f.Line, f.Column = f.Reason+parse.Text, line+int(parse.Pos.Line()), int(parse.Pos.Col())
		s.Findings = append(s.Findings, f)
	}
	return s
}

// A variable is assigned by the script.
type variable struct {
	expand.Variable
	// words are the elements of an array, where they are written.
	words []Word
	// unknown says that the value depends on the way through the script, on input or on a command.
	unknown bool
}

// scriptReader walks through a script, or a part that a shell inside of it runs, and expands what the script itself says.
// It is the environment of the expansion, so nothing of this machine is.
type scriptReader struct {
	*Script
	offset, line, col int // where the part begins in the script
	variables         map[string]variable
	// assigned is how often the script assigns to a name. What it assigns twice may depend on the way through it.
	assigned map[string]int
	branched bool // the visited node is taken on one way, and not on another
	// from is the statement before a pipe, and written the text that a statement writes.
	from    map[*syntax.Stmt]*syntax.Stmt
	written map[*syntax.Stmt]*Document
}

// parse walks through a part of the script.
func (r *scriptReader) parse(text string) error {
	r.from, r.written = map[*syntax.Stmt]*syntax.Stmt{}, map[*syntax.Stmt]*Document{}
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(fill(text)), "")
	if file != nil {
		syntax.Walk(file, func(n syntax.Node) bool {
			if a, is := n.(*syntax.Assign); is && a.Name != nil {
				r.assigned[a.Name.Value]++
			}
			return true
		})
		syntax.Walk(file, r.visit)
	}
	return err
}

func (r *scriptReader) visit(n syntax.Node) bool {
	switch n := n.(type) {
	case *syntax.IfClause, *syntax.CaseClause:
		outer := r.branched
		r.branched = true
		syntax.Walk(n, func(inner syntax.Node) bool { return inner == n || r.visit(inner) })
		r.branched = outer
		return false
	case *syntax.BinaryCmd:
		if n.Op == syntax.Pipe || n.Op == syntax.PipeAll {
			r.from[n.Y] = n.X
		}
	case *syntax.Stmt:
		r.statement(n)
	case *syntax.WordIter:
		r.variables[n.Name.Value] = variable{unknown: true}
	case *syntax.Assign:
		r.assign(n)
	}
	return true
}

// passing are commands that write what they read.
var passing = []string{"cat", "tee", "envsubst", "sed"}

// output is the text that a statement before a pipe writes, where the script itself holds it.
func (r *scriptReader) output(stmt *syntax.Stmt) *Document {
	if stmt == nil {
		return nil
	}
	if pipe, ok := stmt.Cmd.(*syntax.BinaryCmd); ok {
		return r.output(pipe.Y)
	}
	return r.written[stmt]
}

// statement collects a simple command with what it reads, and notes what it writes.
func (r *scriptReader) statement(stmt *syntax.Stmt) {
	call, ok := stmt.Cmd.(*syntax.CallExpr)
	if !ok || len(call.Args) == 0 {
		return
	}
	line, _, start := r.place(call.Args[0].Pos())
	c := Command{Stdin: r.output(r.from[stmt]), Line: line, Start: start, End: r.offset + int(call.End().Offset())}
	for _, w := range call.Args {
		c.Words = append(c.Words, r.words(w)...)
	}
	if len(c.Words) == 0 {
		return
	}
	r.redirections(stmt, &c)
	_, c.Namespaced = r.variables[HelmNamespace]
	for _, a := range call.Assigns {
		c.Namespaced = c.Namespaced || a.Name != nil && a.Name.Value == HelmNamespace
	}
	if n := len(r.Commands); n > 0 && strings.HasPrefix(c.Words[0].Raw, "-") {
		if last := &r.Commands[n-1]; ours.MatchString(r.Text[last.Start:max(last.Start, last.End)]) {
			r.broken(last, c)
		}
		return
	}
	if c.Words[0].Value == "read" {
		for _, w := range c.Words[1:] {
			r.variables[w.Value] = variable{unknown: true}
		}
	}
	r.Commands = append(r.Commands, c)
	r.shell(c)
}

// redirections notes the here-document that a command reads, and the text that it writes to a file or a pipe.
func (r *scriptReader) redirections(stmt *syntax.Stmt, c *Command) {
	to, last := "", c.Words[len(c.Words)-1]
	name := c.Words[0].Value
	if name == "tee" {
		to = last.Value
	}
	for _, redirect := range stmt.Redirs {
		switch redirect.Op {
		case syntax.Hdoc, syntax.DashHdoc:
			c.Stdin = r.hereDocument(redirect)
		case syntax.RdrOut, syntax.RdrAll, syntax.AppOut:
			if list := r.words(redirect.Word); len(list) == 1 && (redirect.N == nil || redirect.N.Value == "1") {
				to = list[0].Value
			}
		}
	}
	text := c.Stdin
	switch {
	case slices.Contains(passing, name):
	case (name == "echo" || name == "printf") && strings.Contains(last.Value, "\n"):
		text = &Document{Text: last.Value + "\n", Line: last.Line - 1}
	default:
		return // the program writes something else
	}
	r.written[stmt] = text
	if text != nil && to != "" {
		r.Files[to] = text
	}
}

var (
	shells = []string{"sh", "bash", "dash", "ash", "zsh", "su"}
	// dashC is the option of a shell before the text that it runs.
	dashC = regexp.MustCompile(`^-[a-z]*c$`)
	// escaped are characters that lose their meaning behind a backslash inside of double quotes.
	escaped = regexp.MustCompile("\\\\([\"$`\\\\])")
	// escapedHere lose theirs in a here-document.
	escapedHere = regexp.MustCompile("\\\\([$`\\\\])")
)

// shell reads the text that a shell runs: bash -c "helm …".
func (r *scriptReader) shell(c Command) {
	at := slices.IndexFunc(c.Words, func(w Word) bool { return dashC.MatchString(w.Value) }) + 1
	isShell := slices.ContainsFunc(c.Words[:at], func(w Word) bool { return slices.Contains(shells, path.Base(w.Value)) })
	if !isShell || at == len(c.Words) {
		return
	}
	w := c.Words[at]
	if w.Start < 0 || len(w.Raw) < 2 || !strings.ContainsRune(`'"`, rune(w.Raw[0])) {
		return
	}
	text := w.Raw[1 : len(w.Raw)-1]
	if w.Raw[0] == '"' {
		text = escaped.ReplaceAllString(text, unescape+"$1")
	}
	inner := &scriptReader{Script: r.Script, offset: w.Start + 1, line: w.Line, col: w.Col + 1, variables: r.variables, assigned: r.assigned}
	_ = inner.parse(text) // what cannot be read may be put together by the shell around it
}

// place is where a position of the part is in the script.
func (r *scriptReader) place(p syntax.Pos) (line, col, offset int) {
	line, col = r.line+int(p.Line())-1, int(p.Col())
	if p.Line() == 1 {
		col += r.col - 1
	}
	return line, col, r.offset + int(p.Offset())
}

// between matches line ends and comments: nothing else may stand between a command and flags that belong to it.
var between = regexp.MustCompile(`^(\\?\s)*(#[^\n]*\n\s*)*$`)

// broken reports flags that stand alone since the line before does not continue, and gives them to their command. Behind
// quotes, parentheses and redirections they stay where they are.
func (r *scriptReader) broken(last *Command, c Command) {
	w := c.Words[0]
	f := report.Row{ID: "broken-continuation", State: report.Failed, Line: w.Line, Column: w.Col, Subject: w.Value,
		Reason: "the line before does not end with \\, so the shell runs this as a command of its own", Fix: "end the line before with \\"}
	defer func() { r.Findings = append(r.Findings, f) }()
	if last.End > c.Start || !between.MatchString(r.Text[last.End:c.Start]) {
		f.Fix = "move it into the command before"
		return
	}
	if comment := strings.Trim(r.Text[last.End:c.Start], " \t\n\\"); comment != "" {
		f.Reason, f.Fix = "the comment ends the command, so the shell runs what follows as a command of its own", "move the comment above the command"
	} else {
		r.Corrections = append(r.Corrections, Correction{last.End, c.Start, " \\\n  "})
	}
	last.Words = append(last.Words, c.Words...)
	last.End = c.End
}

// assign notes the value of a variable from here on. An array that a branch assigns has the elements of all ways.
func (r *scriptReader) assign(n *syntax.Assign) {
	if n.Name == nil || n.Naked {
		return
	}
	name := n.Name.Value
	v := variable{Variable: expand.Variable{Set: true, Kind: expand.String}}
	before := r.variables[name]
	switch {
	case n.Array != nil:
		if n.Append || r.branched {
			v.words = slices.Clip(before.words)
		}
		for _, e := range n.Array.Elems {
			for _, w := range r.words(e.Value) {
				w.Perhaps = w.Perhaps || r.branched
				v.words = append(v.words, w)
			}
		}
		v.Kind = expand.Indexed
		r.variables[name] = v
		return
	case n.Value != nil:
		text, known := r.literal(n.Value.Parts)
		v.Str, v.unknown = text, !known || n.Append || r.assigned[name] > 1
	}
	r.variables[name] = v
}

// Get gives the expander the script's variables. Without a home the expander would look the user up on this machine.
func (r *scriptReader) Get(name string) expand.Variable {
	if v, ok := r.variables[name]; ok && !v.unknown {
		return v.Variable
	}
	if user, home := strings.CutPrefix(name, "HOME"); home {
		return expand.Variable{Set: true, Kind: expand.String, Str: "~" + strings.TrimSpace(user)}
	}
	return expand.Variable{}
}

// Each is no part of an expansion.
func (r *scriptReader) Each(func(string, expand.Variable) bool) {}

// known reports whether the script has the value of a part: no command, no arithmetic, no variable from outside.
func (r *scriptReader) known(part syntax.WordPart) bool {
	known := true
	syntax.Walk(part, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.CmdSubst, *syntax.ProcSubst, *syntax.ArithmExp, *syntax.ExtGlob:
			known = false
		case *syntax.ParamExp:
			v, assigned := r.variables[n.Param.Value]
			hasDefault := n.Exp != nil && (n.Exp.Op == syntax.DefaultUnset || n.Exp.Op == syntax.DefaultUnsetOrNull)
			known = known && (assigned || hasDefault) && !v.unknown && v.Kind != expand.Indexed && !n.Excl && n.Repl == nil && n.Slice == nil
		}
		return known
	})
	return known
}

// source is the text of a part of the script.
func (r *scriptReader) source(n syntax.Node) string {
	return r.Text[r.offset+int(n.Pos().Offset()) : r.offset+int(n.End().Offset())]
}

// holes puts text in the place of the parts that are not known, as they are written.
func (r *scriptReader) holes(parts []syntax.WordPart) (out []syntax.WordPart, known bool) {
	known = true
	for _, p := range parts {
		if q, ok := p.(*syntax.DblQuoted); ok {
			inner, all := r.holes(q.Parts)
			out, known = append(out, &syntax.DblQuoted{Parts: inner}), known && all
		} else if q, ok := p.(*syntax.SglQuoted); ok && !q.Dollar {
			source := r.source(p)
			out = append(out, &syntax.SglQuoted{Value: source[1 : len(source)-1]})
		} else if r.known(p) {
			out = append(out, p)
		} else {
			out, known = append(out, &syntax.SglQuoted{Value: r.source(p)}), false
		}
	}
	return out, known
}

// literal expands parts to one text. Unknown parts stay as they are written.
func (r *scriptReader) literal(parts []syntax.WordPart) (text string, known bool) {
	parts, known = r.holes(parts)
	text, err := expand.Literal(&expand.Config{Env: r}, &syntax.Word{Parts: parts})
	if err != nil || len(text) > maxWord {
		return "", false
	}
	return strings.ReplaceAll(text, unescape, ""), known
}

// words expands a word as the shell does. A word of which a part is not known is dynamic.
func (r *scriptReader) words(w *syntax.Word) []Word {
	if w == nil {
		return nil
	}
	line, col, start := r.place(w.Pos())
	out := Word{Line: line, Col: col, Start: start, Raw: r.source(w), Placeholder: r.placeholderIn(w)}
	list := several(w)
	if list != nil {
		if v := r.variables[list.Param.Value]; v.Kind == expand.Indexed {
			return slices.Clone(v.words)
		}
	}
	parts, known := r.holes(w.Parts)
	braces := syntax.SplitBraces(&syntax.Word{Parts: w.Parts})
	if !known || braces {
		_, quoted := w.Parts[0].(*syntax.DblQuoted)
		out.Splits = !known && out.Placeholder == "" && (list != nil || len(w.Parts) == 1 && !quoted)
		out.Value, _ = r.literal(w.Parts)
		out.Value, out.Dynamic = cmp.Or(out.Value, out.Raw), !known
		return []Word{out}
	}
	values, err := expand.Fields(&expand.Config{Env: r}, &syntax.Word{Parts: parts})
	if err != nil || len(strings.Join(values, "")) > maxWord {
		out.Value, out.Dynamic = out.Raw, true
		return []Word{out}
	}
	words := make([]Word, len(values))
	for i, value := range values {
		words[i] = out
		words[i].Value, words[i].Dynamic = strings.ReplaceAll(value, unescape, ""), strings.Contains(value, Filled)
		if len(values) > 1 {
			words[i].Raw, words[i].Start = Quote(words[i].Value), -1
		}
	}
	return words
}

// several returns the parameter of a word that becomes any number of words: "$@" and "${LIST[@]}"; nil for other words.
func several(w *syntax.Word) *syntax.ParamExp {
	parts := w.Parts
	if q, ok := parts[0].(*syntax.DblQuoted); ok && len(parts) == 1 {
		parts = q.Parts
	}
	if len(parts) != 1 {
		return nil
	}
	p, ok := parts[0].(*syntax.ParamExp)
	if ok && p.Exp != nil && (p.Exp.Op == syntax.AlternateUnset || p.Exp.Op == syntax.AlternateUnsetOrNull) && p.Exp.Word != nil {
		return several(p.Exp.Word) // ${LIST[@]+"${LIST[@]}"}
	}
	if !ok || p.Length || p.Exp != nil {
		return nil
	}
	index, _ := p.Index.(*syntax.Word)
	if index == nil && p.Param.Value == "@" || index != nil && (index.Lit() == "@" || index.Lit() == "*") {
		return p
	}
	return nil
}

// hereDocument is a here-document with the known variables of the script filled in.
func (r *scriptReader) hereDocument(redirect *syntax.Redirect) *Document {
	if redirect.Hdoc == nil {
		return nil
	}
	text, asIs := "", strings.ContainsAny(r.source(redirect.Word), `'"\`)
	for _, part := range redirect.Hdoc.Parts {
		if lit, isText := part.(*syntax.Lit); isText && asIs {
			begin := r.offset + int(lit.Pos().Offset())
			text += r.Text[begin : begin+len(lit.Value)]
		} else if isText {
			// the parser joins lines that a backslash continues; empty lines behind them keep the numbers of those below
			joined := int(lit.Pos().Line()-redirect.Hdoc.Pos().Line()) - strings.Count(text, "\n")
			text += strings.Replace(escapedHere.ReplaceAllString(lit.Value, "$1"), "\n", strings.Repeat("\n", 1+max(0, joined)), 1)
		} else {
			filled, _ := r.literal([]syntax.WordPart{&syntax.DblQuoted{Parts: []syntax.WordPart{part}}})
			text += filled
		}
	}
	line, _, _ := r.place(redirect.Hdoc.Pos())
	out := &Document{Text: text, Line: line - 1}
	if redirect.Op == syntax.DashHdoc {
		out.Text = leadingTabs.ReplaceAllString(text, "")
	}
	return out
}

var leadingTabs = regexp.MustCompile(`(?m)^\t+`)

// Quote writes s so that the shell passes it as it is.
func Quote(s string) string {
	if plain.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

var plain = regexp.MustCompile(`^[a-zA-Z0-9./:=,@%+_-]+$`)

// unescape stands for the backslash that a shell takes away from the text of another.
const unescape = "\x06"

var (
	// placeholder is a word, or some, between angle brackets: what an article has for its reader to fill in. The character
	// before says that no redirection of a file is meant: << and 2<.
	placeholder = regexp.MustCompile(`(?:^|[\s='"/,:@{-])(<[A-Za-z](?:[A-Za-z0-9_. ,:/|'-]{0,120}[A-Za-z0-9_.'])?>)(?:\B|$)`)
	// action is an expression of Helm or Ansible: {{ version }}.
	action = regexp.MustCompile(`\{\{.*?\}\}`)
	// redirected tells two redirections from a placeholder: <input 2>errors.
	redirected = regexp.MustCompile(` [0-9]>$`)
)

// fill replaces each placeholder (to the shell two redirections) and each action of a template by an unassigned variable of
// the same length.
func fill(text string) string {
	text = action.ReplaceAllStringFunc(text, func(found string) string { return "$" + strings.Repeat("_", len(found)-1) })
	return placeholder.ReplaceAllStringFunc(text, func(found string) string {
		before, name, _ := strings.Cut(found, "<")
		if redirected.MatchString(found) {
			return found
		}
		return before + "$" + strings.Repeat("_", len(name))
	})
}

// placeholderIn returns the placeholder that a word has outside of quotes, or "".
func (r *scriptReader) placeholderIn(w *syntax.Word) string {
	for _, p := range w.Parts {
		if _, is := p.(*syntax.ParamExp); is && r.source(p)[0] == '<' {
			return r.source(p)
		}
	}
	return ""
}

// Filled begins the action of a template of Helm or Ansible: a value that another program fills in.
const Filled = "{{"

// The parsers of shell and Terraform recurse, and a stack that is used up ends the program.
const (
	maxSource = 1 << 20  // bytes of a script or Terraform file
	maxDepth  = 2000     // brackets and blocks within each other
	maxWord   = 64 << 10 // bytes of a word once its variables are expanded
)

var nested = regexp.MustCompile(`[({\[` + "`" + `]|[)}\]]|\b(?:if|while|until|for|case|select)\b|\b(?:fi|done|esac)\b`)

// tooComplex says why a script or Terraform file is not judged; empty where it is.
func tooComplex(source string) string {
	if len(source) > maxSource {
		return fmt.Sprintf("it is larger than %d MiB, so it is not judged", maxSource>>20)
	}
	depth := 0
	for _, m := range nested.FindAllString(source, -1) {
		switch {
		case strings.Contains(")}]", m), m == "fi", m == "done", m == "esac":
			depth = max(0, depth-1)
		default:
			depth++
		}
		if depth > maxDepth {
			return "brackets or blocks stand too deep within each other, so it is not judged"
		}
	}
	return ""
}
