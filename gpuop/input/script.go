package input

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/sharing"
)

// A Word is one argument of a command as the shell would pass it.
type Word struct {
	Value string
	// Raw is the argument as it is written.
	Raw  string
	Line int
	Col  int
	// Dynamic says that the shell computes the value, so that it cannot be known here.
	Dynamic bool
	// Splits says that a dynamic word may become no argument or several: $OPTIONS.
	Splits bool
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
	// Prefixed says that words before the program were taken away: sudo.
	Prefixed bool
	// Namespaced says that the environment names the namespace.
	Namespaced bool
}

// A Document is text inside a script, from a line on.
type Document struct {
	Text string
	Line int // the line in the script before the first of the document
	// Start and End are the offsets of the text in the script; 0 where the script does not hold it as it is.
	Start, End int
	// Route is how a device plugin config reaches the plugin, where a command says so.
	Route sharing.Route
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

// HelmNamespace is the variable that stands for helm's flag --namespace.
const HelmNamespace = "HELM_NAMESPACE"

// SourceShell documents the shell.
const SourceShell = "POSIX shell command language"

var (
	prompt     = regexp.MustCompile(`(?m)^(\s*)\$ (\s*\S)`)
	rootPrompt = regexp.MustCompile(`(?m)^(\s*)# (\s*(?:helm|kubectl|cat|sudo|kubernetes|oc)\b)`)
	// unprompted is a line of a script, in which # begins a comment.
	unprompted = regexp.MustCompile(`^#!|(?m:^[ \t]*(?:sudo[ \t]+)?(?:helm|kubectl|kubernetes|oc|microk8s|k3s)[ \t])`)
	// continued are line ends that continue a command in PowerShell and in cmd.
	continued = regexp.MustCompile("(?m)( )[`^]$")
)

// shellText is the script as a shell of Unix reads it: without prompts, carriage returns, and with
// its own line continuation. Offsets are those of the script without carriage returns.
func shellText(text string) (out string, foreign bool) {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	if !unprompted.MatchString(text) {
		text = rootPrompt.ReplaceAllString(text, "$1  $2")
	}
	text = prompt.ReplaceAllString(text, "$1  $2")
	ends := continued.FindAllStringIndex(text, -1)
	if len(ends) == 0 || strings.Contains(text, "\\\n") {
		return text, false
	}
	return continued.ReplaceAllString(text, "$1\\"), true
}

// ParseScript reads the commands of a script, as far as it can, and reports the rest.
func ParseScript(text string) *Script {
	s := &Script{Files: map[string]*Document{}}
	foreign := false
	s.Text, foreign = shellText(text)
	if foreign {
		s.Findings = append(s.Findings, report.Row{ID: "not-posix", State: report.Note,
			Reason: "the lines are continued as PowerShell or cmd do it; judged as if by \\", Source: SourceShell})
	}
	if reason := tooComplex(s.Text); reason != "" {
		s.Findings = append(s.Findings, report.Row{ID: "not-judged", State: report.Note, Reason: reason})
		return s
	}
	parser := syntax.NewParser(syntax.Variant(syntax.LangBash))
	text, masked := maskPlaceholders(s.Text)
	file, err := parser.Parse(strings.NewReader(text), "")
	if err != nil {
		f := report.Row{ID: "shell-syntax", State: report.Failed, Reason: "the shell cannot read this: " + err.Error(), Source: SourceShell}
		var parse syntax.ParseError
		if errors.As(err, &parse) {
			f.Reason, f.Line, f.Column = "the shell cannot read this: "+parse.Text, int(parse.Pos.Line()), int(parse.Pos.Col())
		}
		s.Findings = append(s.Findings, f)
	}
	if file != nil {
		r := &scriptReader{Script: s, masked: masked, variables: map[string]variable{}, stdin: map[*syntax.Stmt]*Document{}}
		r.assignedTwice(file)
		syntax.Walk(file, r.visit)
	}
	return s
}

// A variable is what the script assigns.
type variable struct {
	expand.Variable
	// words are the elements of an array, where they are written.
	words []Word
}

// scriptReader walks through a script and expands what the script itself says.
type scriptReader struct {
	*Script
	masked    bool // placeholders are masked in what was parsed
	variables map[string]variable
	// unknown are variables that depend on a condition, a loop or input.
	unknown map[string]bool
	stdin   map[*syntax.Stmt]*Document // the input of a pipe
}

// assignedTwice notes the variables whose value depends on which way the script takes.
func (r *scriptReader) assignedTwice(file *syntax.File) {
	r.unknown = map[string]bool{}
	assigned := map[string]int{}
	conditional := map[string]bool{}
	var around []syntax.Node
	syntax.Walk(file, func(n syntax.Node) bool {
		switch n := n.(type) {
		case nil:
			around = around[:len(around)-1]
			return true
		case *syntax.WordIter:
			r.unknown[n.Name.Value] = true
		case *syntax.Assign:
			if n.Name != nil {
				assigned[n.Name.Value]++
				inside := slices.ContainsFunc(around, isBranch)
				conditional[n.Name.Value] = conditional[n.Name.Value] || inside
			}
		case *syntax.CallExpr:
			if len(n.Args) > 1 && n.Args[0].Lit() == "read" {
				for _, w := range n.Args[1:] {
					r.unknown[w.Lit()] = true
				}
			}
		}
		around = append(around, n)
		return true
	})
	for name, times := range assigned {
		if times > 1 && conditional[name] {
			r.unknown[name] = true
		}
	}
}

func isBranch(n syntax.Node) bool {
	switch n := n.(type) {
	case *syntax.IfClause, *syntax.CaseClause, *syntax.WhileClause, *syntax.ForClause:
		return true
	case *syntax.BinaryCmd:
		return n.Op == syntax.AndStmt || n.Op == syntax.OrStmt
	}
	return false
}

func (r *scriptReader) visit(n syntax.Node) bool {
	switch n := n.(type) {
	case *syntax.BinaryCmd:
		if n.Op == syntax.Pipe || n.Op == syntax.PipeAll {
			if d := r.output(n.X); d != nil {
				r.stdin[n.Y] = d
			}
		}
	case *syntax.Stmt:
		r.statement(n)
	case *syntax.Assign:
		r.assign(n)
	}
	return true
}

// passing are commands that write what they read.
var passing = []string{"cat", "tee", "envsubst", "sed"}

// output is the text that a statement of a pipe writes, where the script itself holds it.
func (r *scriptReader) output(stmt *syntax.Stmt) *Document {
	if pipe, ok := stmt.Cmd.(*syntax.BinaryCmd); ok {
		if d := r.output(pipe.X); d != nil {
			r.stdin[pipe.Y] = d
		}
		return r.output(pipe.Y)
	}
	call, ok := stmt.Cmd.(*syntax.CallExpr)
	if !ok || len(call.Args) == 0 {
		return nil
	}
	if d := r.printed(call); d != nil {
		return d
	}
	if !slices.Contains(passing, call.Args[0].Lit()) {
		return nil
	}
	if here := r.redirections(stmt); here != nil {
		return here
	}
	return r.stdin[stmt]
}

// printed is the text of several lines that echo or printf writes; nil for other commands.
func (r *scriptReader) printed(call *syntax.CallExpr) *Document {
	if name := call.Args[0].Lit(); len(call.Args) < 2 || name != "echo" && name != "printf" {
		return nil
	}
	last := r.words(call.Args[len(call.Args)-1])
	if len(last) != 1 || !strings.Contains(last[0].Value, "\n") {
		return nil
	}
	return &Document{Text: last[0].Value + "\n", Line: last[0].Line - 1}
}

// statement collects a simple command with what it reads.
func (r *scriptReader) statement(stmt *syntax.Stmt) {
	here := r.redirections(stmt)
	if here == nil {
		here = r.stdin[stmt]
	}
	call, ok := stmt.Cmd.(*syntax.CallExpr)
	if !ok {
		return
	}
	c := Command{Stdin: here, Line: int(call.Pos().Line()), Start: int(call.Pos().Offset()), End: int(call.End().Offset())}
	for _, w := range call.Args {
		c.Words = append(c.Words, r.words(w)...)
	}
	if len(c.Words) == 0 {
		return
	}
	if len(call.Assigns) > 0 {
		c.Start = int(call.Args[0].Pos().Offset())
	}
	c.Namespaced = r.variables[HelmNamespace].Set || r.unknown[HelmNamespace]
	for _, a := range call.Assigns {
		c.Namespaced = c.Namespaced || a.Name != nil && a.Name.Value == HelmNamespace
	}
	if first := c.Words[0]; strings.HasPrefix(first.Raw, "-") && len(r.Commands) > 0 {
		r.broken(c)
		return
	}
	r.Commands = append(r.Commands, c)
}

// broken reports flags that stand alone since the line before does not continue, and gives them to their command.
func (r *scriptReader) broken(c Command) {
	last := &r.Commands[len(r.Commands)-1]
	between := ""
	if last.End <= c.Start && c.Start <= len(r.Text) {
		between = r.Text[last.End:c.Start]
	}
	reason, fix := "the line before does not end with \\, so the shell runs this as a command of its own", "end the line before with \\"
	if strings.Contains(between, "#") {
		reason, fix = "the comment ends the command, so the shell runs what follows as a command of its own", "move the comment above the command"
	}
	w := c.Words[0]
	r.Findings = append(r.Findings, report.Row{ID: "broken-continuation", State: report.Failed, Line: w.Line, Column: w.Col, Subject: w.Value, Reason: reason, Fix: fix, Source: SourceShell})
	r.Corrections = append(r.Corrections, Correction{last.End, c.Start, " \\\n  "})
	if comment := strings.TrimSpace(between); strings.HasPrefix(comment, "#") {
		above := LineStart(r.Text, last.Line)
		r.Corrections = append(r.Corrections, Correction{above, above, comment + "\n"})
	}
	last.Words = append(last.Words, c.Words...)
	last.End = c.End
}

// assign notes what a variable holds from here on.
func (r *scriptReader) assign(n *syntax.Assign) {
	if n.Name == nil || n.Naked {
		return
	}
	name := n.Name.Value
	switch {
	case n.Array != nil:
		v := variable{Variable: expand.Variable{Set: true, Kind: expand.Indexed}}
		if n.Append {
			v = r.variables[name]
			v.Set, v.Kind = true, expand.Indexed
		}
		for _, e := range n.Array.Elems {
			for _, w := range r.words(e.Value) {
				v.words = append(v.words[:len(v.words):len(v.words)], w)
				v.List = append(v.List[:len(v.List):len(v.List)], w.Value)
			}
		}
		r.variables[name] = v
	case n.Value == nil:
		r.variables[name] = variable{Variable: expand.Variable{Set: true, Kind: expand.String}}
	default:
		text, known := r.literal(n.Value.Parts)
		if !known || r.placeholder(n.Value) != "" {
			delete(r.variables, name)
			r.unknown[name] = true
			return
		}
		if n.Append {
			text = r.variables[name].Str + text
		}
		r.variables[name] = variable{Variable: expand.Variable{Set: true, Kind: expand.String, Str: text}}
	}
}

// environment gives the expander what the script assigns, and nothing of this machine.
type environment struct{ r *scriptReader }

func (e environment) Get(name string) expand.Variable {
	if user, found := strings.CutPrefix(name, "HOME "); found {
		return expand.Variable{Set: true, Kind: expand.String, Str: "~" + user}
	}
	if v, ok := e.r.variables[name]; ok && !e.r.unknown[name] {
		return v.Variable
	}
	if name == "HOME" {
		return expand.Variable{Set: true, Kind: expand.String, Str: "~"}
	}
	return expand.Variable{}
}

func (e environment) Each(func(string, expand.Variable) bool) {}

func (r *scriptReader) config() *expand.Config { return &expand.Config{Env: environment{r}} }

// known reports whether the script has the value of a part: no command, no arithmetic, no variable from outside.
func (r *scriptReader) known(part syntax.WordPart) bool {
	known, braces := true, 0
	syntax.Walk(part, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.CmdSubst, *syntax.ProcSubst, *syntax.ArithmExp, *syntax.ExtGlob:
			known = false
		case *syntax.Lit:
			braces += strings.Count(n.Value, "{")
			known = known && braces < 4 && (!strings.Contains(n.Value, "{") || !strings.Contains(n.Value, ".."))
		case *syntax.ParamExp:
			v, assigned := r.variables[n.Param.Value]
			hasDefault := n.Exp != nil && (n.Exp.Op == syntax.DefaultUnset || n.Exp.Op == syntax.DefaultUnsetOrNull)
			for _, inner := range v.words {
				known = known && !inner.Dynamic
			}
			known = known && (assigned || hasDefault) && !r.unknown[n.Param.Value] && !n.Excl && n.Repl == nil && n.Slice == nil
		}
		return known
	})
	return known
}

// source is the text of a part of the script.
func (r *scriptReader) source(n syntax.Node) string {
	start, end := int(n.Pos().Offset()), int(n.End().Offset())
	if start < 0 || end > len(r.Text) || start > end {
		return ""
	}
	return r.Text[start:end]
}

// holes puts text in the place of the parts that are not known, as they are written.
func (r *scriptReader) holes(parts []syntax.WordPart) (out []syntax.WordPart, known bool) {
	known = true
	for _, p := range parts {
		if q, ok := p.(*syntax.DblQuoted); ok {
			inner, all := r.holes(q.Parts)
			out, known = append(out, &syntax.DblQuoted{Parts: inner}), known && all
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
	text, err := expand.Literal(r.config(), &syntax.Word{Parts: parts})
	if err != nil || len(text) > maxWord {
		return "", false
	}
	return r.unmask(text), known
}

// words expands a word as the shell does. A word of which a part is not known is dynamic.
func (r *scriptReader) words(w *syntax.Word) []Word {
	if w == nil {
		return nil
	}
	out := Word{Line: int(w.Pos().Line()), Col: int(w.Pos().Col()), Raw: r.source(w), Placeholder: r.placeholder(w)}
	if list, isArray := r.array(w); isArray {
		return list
	}
	if out.Placeholder != "" {
		out.Value, out.Dynamic = out.Raw, true
		return []Word{out}
	}
	parts, known := r.holes(w.Parts)
	if !known {
		out.Value, _ = r.literal(w.Parts)
		out.Value, out.Dynamic = cmp.Or(out.Value, out.Raw), true
		quotes, quoted := w.Parts[0].(*syntax.DblQuoted)
		out.Splits = len(w.Parts) == 1 && (!quoted || severalWords(quotes))
		return []Word{out}
	}
	list, err := expand.Fields(r.config(), &syntax.Word{Parts: parts})
	if err != nil || len(strings.Join(list, "")) > maxWord {
		out.Value, out.Dynamic = out.Raw, true
		return []Word{out}
	}
	words := make([]Word, len(list))
	for i, value := range list {
		words[i] = out
		words[i].Value = r.unmask(value)
		if len(list) > 1 {
			words[i].Raw = Quote(words[i].Value)
		}
	}
	if len(list) > 1 && strings.Contains(out.Raw, "{") && !strings.Contains(out.Raw, "$") {
		r.Findings = append(r.Findings, report.Row{ID: "brace-expansion", State: report.Failed, Line: out.Line, Column: out.Col, Subject: out.Raw,
			Reason: fmt.Sprintf("bash makes %d arguments of the braces: %s", len(list), strings.Join(list, " ")), Fix: "write " + Quote(out.Raw), Source: "Bash manual: brace expansion"})
		start := int(w.Pos().Offset())
		r.Corrections = append(r.Corrections, Correction{start, start + len(out.Raw), Quote(out.Raw)})
		out.Value = strings.NewReplacer(`'`, "", `"`, "").Replace(out.Raw)
		return []Word{out}
	}
	return words
}

// array returns the elements of a word that is an array of the script: "${ARGS[@]}".
func (r *scriptReader) array(w *syntax.Word) ([]Word, bool) {
	if len(w.Parts) != 1 {
		return nil, false
	}
	part := w.Parts[0]
	if q, ok := part.(*syntax.DblQuoted); ok && len(q.Parts) == 1 {
		part = q.Parts[0]
	}
	p, ok := part.(*syntax.ParamExp)
	if !ok || p.Index == nil || p.Exp != nil || r.unknown[p.Param.Value] {
		return nil, false
	}
	if at, isWord := p.Index.(*syntax.Word); !isWord || at.Lit() != "@" && at.Lit() != "*" {
		return nil, false
	}
	v, assigned := r.variables[p.Param.Value]
	if !assigned || v.Kind != expand.Indexed {
		return nil, false
	}
	return slices.Clone(v.words), true
}

// severalWords reports whether what is in quotes becomes any number of words: "$@" and "${list[@]}".
func severalWords(q *syntax.DblQuoted) bool {
	if len(q.Parts) != 1 {
		return false
	}
	p, ok := q.Parts[0].(*syntax.ParamExp)
	if !ok || p.Length {
		return false
	}
	if index, isWord := p.Index.(*syntax.Word); isWord {
		return index.Lit() == "@"
	}
	return p.Param.Value == "@"
}

// redirections returns the statement's here-document, and notes the file that it is written to.
func (r *scriptReader) redirections(stmt *syntax.Stmt) (here *Document) {
	to := ""
	for _, redirect := range stmt.Redirs {
		switch redirect.Op {
		case syntax.Hdoc, syntax.DashHdoc:
			here = r.hereDocument(redirect)
		case syntax.WordHdoc:
			if list := r.words(redirect.Word); len(list) == 1 && !list[0].Dynamic {
				here = &Document{Text: list[0].Value + "\n", Line: list[0].Line - 1}
			}
		case syntax.RdrOut, syntax.RdrAll, syntax.AppOut:
			if redirect.N != nil && redirect.N.Value != "1" {
				continue
			}
			if list := r.words(redirect.Word); len(list) == 1 {
				to = list[0].Value
			}
		}
	}
	call, ok := stmt.Cmd.(*syntax.CallExpr)
	if ok && here == nil && len(call.Args) > 0 {
		here = r.stdin[stmt]
	}
	if !ok || len(call.Args) == 0 {
		return here
	}
	name := call.Args[0].Lit()
	if name == "tee" && len(call.Args) > 1 {
		to = call.Args[len(call.Args)-1].Lit()
	}
	written := here
	if written == nil {
		written = r.printed(call)
	} else if !slices.Contains(passing, name) {
		return here // the program reads it, and writes something else
	}
	if written != nil && to != "" {
		r.Files[to] = written
		return nil
	}
	return here
}

// hereDocument is a here-document with the known variables of the script filled in.
func (r *scriptReader) hereDocument(redirect *syntax.Redirect) *Document {
	if redirect.Hdoc == nil {
		return nil
	}
	var text strings.Builder
	for _, part := range redirect.Hdoc.Parts {
		value := r.source(part)
		if _, isText := part.(*syntax.Lit); !isText {
			if filled, known := r.literal([]syntax.WordPart{&syntax.DblQuoted{Parts: []syntax.WordPart{part}}}); known {
				value = filled
			}
		}
		text.WriteString(value)
	}
	delimiter := ""
	if list := r.words(redirect.Word); len(list) == 1 {
		delimiter = list[0].Value
	}
	out := &Document{Text: withoutDelimiter(text.String(), delimiter), Line: int(redirect.Hdoc.Pos().Line()) - 1}
	if written := withoutDelimiter(r.source(redirect.Hdoc), delimiter); written == out.Text && redirect.Op != syntax.DashHdoc {
		out.Start = int(redirect.Hdoc.Pos().Offset())
		out.End = out.Start + len(written)
	}
	if redirect.Op == syntax.DashHdoc {
		out.Text = leadingTabs.ReplaceAllString(out.Text, "")
	}
	return out
}

var leadingTabs = regexp.MustCompile(`(?m)^\t+`)

// withoutDelimiter drops the line that ends a here-document, where the text has it.
func withoutDelimiter(text, delimiter string) string {
	body := strings.TrimRight(text, "\n")
	last := strings.LastIndex(body, "\n") + 1
	if strings.TrimSpace(body[last:]) == delimiter && delimiter != "" {
		return body[:last]
	}
	return text
}

// Quote writes s so that the shell passes it as it is.
func Quote(s string) string {
	if s != "" && strings.IndexFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:=,@%+", r))
	}) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// Correction replaces the bytes from start to end of the script.
type Correction struct {
	Start, End int
	Text       string
}

// LineStart is the offset at which a line of the script begins, or -1.
func LineStart(source string, line int) int {
	offset := 0
	for range line - 1 {
		next := strings.IndexByte(source[offset:], '\n')
		if next < 0 {
			return -1
		}
		offset += next + 1
	}
	return offset
}
