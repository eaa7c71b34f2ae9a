package lint

import (
	"cmp"
	"errors"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/input"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/node"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/sharing"
)

var errNotRead = errors.New("no reader of files")

// ErrTaint is returned for a taint that cannot be read.
var ErrTaint = node.ErrTaint

// An Input is a text to judge, under the name that findings call it by.
type Input struct {
	Name string
	Data []byte
	// Script says that the text is a shell script; --fix does not correct it.
	Script bool
	// Found says that the file was found in a folder, where files of any kind may be: what it is
	// for is not known then, and no mistake.
	Found bool
}

// Options say what to judge and against what.
type Options struct {
	// Version is the chart release to judge for: "v26.7.0", "v26.7", "latest". Empty means the one
	// that a command names, and else the newest.
	Version string
	// Table is what is known of the chart; nil for gpuop's own.
	Table *chart.Table
	// Files are judged by what they turn out to be.
	Files []Input
	// Command is a pasted shell script, or empty.
	Command string
	// Sets are arguments of --set, put on top of every values file, or judged alone.
	Sets []string
	// Taints are taints of the GPU nodes, as kubectl taint writes them: key[=value]:Effect.
	Taints []string
	// Read returns the content of a file that the input file names; nil reads none.
	Read func(file, name string) ([]byte, error)
	// Fix makes Result.Corrected.
	Fix bool
}

// A Result is what was found.
type Result struct {
	Report report.Report `json:"report"`
	// Kinds are what the inputs were taken for, in order.
	Kinds []string `json:"kinds"`
	// Judged is how many inputs, commands and documents were judged; 0 is not clean.
	Judged int `json:"judged"`
	// Unjudged are the names of the inputs in which nothing was judged.
	Unjudged []string `json:"unjudged,omitempty"`
	// Dropped is what Corrected leaves out.
	Dropped []Drop `json:"dropped,omitempty"`
	// Corrected is the command as it should be; empty without a command, or without Options.Fix.
	Corrected string `json:"corrected,omitempty"`
}

// CommandName is what findings call the text of a command.
const CommandName = "command"

// text is an input that is to be judged as a file.
type text struct {
	name  string
	data  []byte
	line  int
	route sharing.Route
	// written says that a script writes the text to a file, which may be for any program.
	written bool
	// found says that the text is a file of a folder.
	found bool
}

// run is one run of the linter.
type run struct {
	table   *chart.Table
	version chart.Version // the zero value when the input decides
	name    string
	read    func(file, name string) ([]byte, error)
	// secrets are values that nothing which is printed may hold.
	secrets   []string
	taints    []node.Taint
	sets      []string
	findings  []report.Row
	kinds     []string
	documents []doc
	fixes
	// newer says that the release is newer than all that the table knows.
	newer bool
	// judged counts what was judged.
	judged int
	// templates are the names of the inputs that are templates.
	templates map[string]bool
	// judgedIn are the names of the inputs in which something was judged.
	judgedIn map[string]bool
	// configMaps are those with configs for the device plugin, and uses the places that name one.
	configMaps []configMap
	uses       []configUse
	// counters are the names of the ConfigMaps that the operator's exporter reads.
	counters []string
}

// Lint judges the inputs. An error means unusable options; whatever is wrong with an input is a finding.
func Lint(o Options) (*Result, error) {
	result, r, err := lintOnce(o)
	if err != nil || o.Command == "" || !o.Fix {
		return result, err
	}
	result.Corrected = r.corrected()
	// a correction may bring up what was hidden before: a renamed key can be dead, for example
	for range 4 {
		again := o
		again.Command, again.Files, again.Sets = result.Corrected, nil, nil
		_, next, err := lintOnce(again)
		if err != nil {
			return nil, err
		}
		better := next.corrected()
		if better == result.Corrected {
			break
		}
		result.Corrected = better
		for _, d := range next.dropped {
			if !slices.ContainsFunc(result.Dropped, func(known Drop) bool { return known.Subject == d.Subject }) {
				result.Dropped = append(result.Dropped, d)
			}
		}
	}
	return result, nil
}

func lintOnce(o Options) (*Result, *run, error) {
	r := &run{judgedIn: map[string]bool{}, templates: map[string]bool{}, table: cmp.Or(o.Table, chart.Load()), read: o.Read, sets: o.Sets}
	if o.Version != "" {
		var err error
		if r.version, err = r.resolve(input.Word{Value: o.Version}, false, ""); err != nil {
			return nil, nil, err
		}
	}
	for _, t := range o.Taints {
		parsed, err := node.ParseTaint(t)
		if err != nil {
			return nil, nil, err
		}
		r.taints = append(r.taints, parsed)
	}
	// the taints of a node file matter to the documents of all others
	for _, f := range o.Files {
		r.learn(string(f.Data))
		r.within(f.Name, func() {
			if f.Script {
				r.script(f.Name, string(f.Data), 0)
				r.fixes = fixes{}
			} else {
				r.parse(text{name: f.Name, data: f.Data, found: f.Found})
			}
		})
	}
	r.learn(strings.Join(o.Sets, "\n"))
	if o.Command != "" {
		r.learn(o.Command)
		r.within(CommandName, func() { r.script(CommandName, o.Command, 0) })
	}
	if len(o.Files) == 0 && len(o.Sets) > 0 && o.Command == "" {
		r.setsAlone()
	}
	for i := 0; i < len(r.documents); i++ {
		d := r.documents[i]
		r.within(d.file, func() { r.document(d) })
	}
	r.joinConfigs()
	r.ofTemplates()
	if r.newer {
		lenient(r.findings)
	}
	r.masked(r.findings)
	for i := range r.dropped {
		r.dropped[i].Proof = replaceSecrets(r.dropped[i].Proof, r.secrets)
	}
	result := &Result{Kinds: r.kinds, Dropped: r.dropped, Judged: r.judged, Unjudged: r.unjudged(o)}
	result.Report.Add(r.findings...)
	result.Report.Sort()
	return result, r, nil
}

// within runs a step over an input, and keeps in mind whether the step judged something.
func (r *run) within(name string, step func()) {
	before := r.judged
	step()
	r.judgedIn[name] = r.judgedIn[name] || r.judged > before
}

// unjudged returns the names of the inputs in which nothing was judged.
func (r *run) unjudged(o Options) []string {
	var out []string
	for _, f := range o.Files {
		if !r.judgedIn[f.Name] {
			out = append(out, f.Name)
		}
	}
	if o.Command != "" && !r.judgedIn[CommandName] {
		out = append(out, CommandName)
	}
	return out
}

// at reports a mistake at a word of the command.
func (r *run) at(w input.Word, id report.ID, severity report.State, subject, reason, fix, source string) {
	r.findings = append(r.findings, report.Row{
		ID: id, State: severity, File: r.name, Line: w.Line, Column: w.Col, Subject: subject, Reason: reason, Fix: fix, Source: source,
	})
}

// fixes are the edits of --fix in a script.
type fixes struct {
	source      string
	corrections []input.Correction
	dropped     []Drop
}

// script judges a script that begins below so many lines of its file.
func (r *run) script(file, source string, line int) {
	s := input.ParseScript(source, line)
	r.fixes = fixes{source: s.Text, corrections: s.Corrections}
	for _, f := range s.Findings {
		f.File = file
		r.findings = append(r.findings, f)
	}
	for _, c := range s.Commands {
		r.name = file
		name := program(&c)
		if c.Prefixed && c.Words[0].Start >= 0 {
			c.Start = c.Words[0].Start
		}
		switch name {
		case "helm":
			r.placeholders(c)
			r.lookalikes(c)
			if len(c.Words) > 1 {
				r.helm(s, c)
			}
		case "kubectl", "kubernetes":
			r.placeholders(c)
			r.lookalikes(c)
			r.kubectl(s, c)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Files)) {
		if d := s.Files[name]; !d.Judged {
			r.parse(text{name: file, data: []byte(d.Text), line: d.Line, route: d.Route, written: !strings.HasSuffix(name, ".yaml") && !strings.HasSuffix(name, ".yml")})
		}
	}
}

// programs are helm and kubectl by the names that distributions and articles give them.
var programs = map[string]string{"helm": "helm", "helm3": "helm", "kubectl": "kubectl", "oc": "kubectl", "kubernetes": "kubernetes"}

// wrappers are programs that run the command after them.
var wrappers = []string{"sudo", "env", "microk8s", "k3s"}

// program finds out which program a command runs behind sudo and its like, and drops these words.
func program(c *input.Command) string {
	for len(c.Words) > 1 {
		first := c.Words[0].Value
		wrapped := slices.Contains(wrappers, path.Base(first))
		if !wrapped && !strings.HasPrefix(first, "-") && !environmentSet.MatchString(first) {
			break
		}
		c.Namespaced = c.Namespaced || strings.HasPrefix(first, input.HelmNamespace+"=")
		c.Words = c.Words[1:]
		c.Prefixed = true
	}
	return programs[path.Base(strings.TrimPrefix(c.Words[0].Value, "microk8s."))]
}

var environmentSet = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)

// lookalikes are characters that word processors and blogs put in the place of ASCII ones.
var lookalikes = []struct{ found, meant string }{{"“", `"`}, {"”", `"`}, {"‘", "'"}, {"’", "'"}, {"–", "--"}, {"—", "--"}, {"\u00a0", " "}}

// meant drops the quotes that the shell does not know.
var meant = strings.NewReplacer("“", "", "”", "", "‘", "", "’", "")

var longDash = regexp.MustCompile(`^[-–—]*[–—][-–—]*`)

// lookalikes reports such characters, and judges the words as they are meant.
func (r *run) lookalikes(c input.Command) {
	seen := map[string]bool{}
	for i, w := range c.Words {
		if dash := longDash.FindString(w.Value); dash != "" || meant.Replace(w.Value) != w.Value {
			value := meant.Replace(w.Value)
			if rest := value[len(dash):]; dash != "" {
				value = "--" + rest
				if longName("-"+rest, helmValueFlags) != "" {
					value = "-" + rest
				}
			}
			c.Words[i].Value = value
			r.replace(w, value)
		}
		for _, l := range lookalikes {
			at := strings.Index(w.Raw, l.found)
			if at < 0 || seen[l.found] {
				continue
			}
			seen[l.found] = true
			where := w
			where.Col += at
			r.at(where, "lookalike", report.Failed, l.found, "a character that a web page put in the place of an ASCII one; the shell does not know it", "write "+l.meant, input.SourceShell)
		}
	}
}

// installation judges one, with the configs in its values, and takes over what is wrong.
func (r *run) installation(in *installation) {
	in.judge()
	r.configUses(in, "")
	r.tolerations(in, r.name)
	r.judged++
	r.findings = append(r.findings, in.findings()...)
	for _, s := range in.Settings {
		for _, n := range unknownIn(s.Node) {
			r.findings = append(r.findings, report.Row{ID: "not-judged", State: report.Note, File: s.File, Line: n.Line + s.Shift, Column: n.Column, Subject: s.Name(), Reason: filledIn})
		}
	}
	r.embeddedData(in)
}

const filledIn = "the value is filled in by another program, so it is not judged"

// unknownIn are the scalars of a value that another program fills in.
func unknownIn(n *yaml.Node) []*yaml.Node {
	switch {
	case n == nil:
		return nil
	case model.UnknownNode(n):
		return []*yaml.Node{n}
	}
	var out []*yaml.Node
	for _, c := range n.Content {
		out = append(out, unknownIn(c)...)
	}
	return out
}

// lowered are the findings that say no more than that gpuop does not know a name.
var lowered = []report.ID{"unknown-key", "misspelt-key", "unknown-field", "key-gone", "below-a-value", "operand-version"}

// lenient makes notes of them where the release is not known itself.
func lenient(findings []report.Row) {
	for i := range findings {
		if slices.Contains(lowered, findings[i].ID) {
			findings[i].State = report.Note
		}
	}
}

// setsAlone judges --set flags without a file or command around them.
func (r *run) setsAlone() {
	in := newInstallation(r.table, r.orLatest(), nil)
	in.flags = true
	r.name = ""
	r.addSets(in)
	r.kinds = append(r.kinds, "--set flags for gpu-operator "+in.Version.String()+r.assumed())
	r.installation(in)
}

func (r *run) addSets(in *installation) {
	for _, s := range r.sets {
		f := &flagUse{name: "--set", value: input.Word{Value: s}, hasValue: true}
		r.setFlag(&input.Script{}, in, f)
	}
}

func (r *run) orLatest() chart.Version {
	if r.version != (chart.Version{}) {
		return r.version
	}
	return r.table.Latest()
}

// assumed is what follows the newest release in the list of what was judged, where the user names none.
func (r *run) assumed() string {
	if r.version != (chart.Version{}) {
		return ""
	}
	return releaseAssumed
}

const releaseAssumed = ", release assumed; --version names it"

// placeholders reports what was copied from an article without being filled in.
func (r *run) placeholders(c input.Command) {
	for _, w := range c.Words {
		if w.Placeholder != "" {
			fix := "write what it stands for"
			if strings.Contains(strings.ToLower(w.Placeholder), "node") {
				fix = "write a node's name"
			}
			r.at(w, "placeholder", report.Failed, w.Placeholder, "to the shell this is a file to read and one to write, not a name to fill in", fix, input.SourceShell)
		}
	}
}
