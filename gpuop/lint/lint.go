// Package lint judges what a platform engineer is about to apply: values of the gpu-operator chart,
// a pasted helm or kubectl command, the operator's custom resources, device plugin and mig-parted
// configs, ConfigMaps around them, and pod manifests. It finds out by itself which of these a text is.
//
// Text goes in, findings with lines come out, and for a command the corrected command. Package input
// reads scripts, Terraform and the files of other tools; package model has the settings of a run with
// their places; what the chart has at a version comes from package chart, the structural validator is
// package schema, and what a config or a pod may hold is known to packages sharing, mig and pod;
// command line and exit codes belong to package cli.
//
// A run keeps no state and shares nothing. The package opens no file itself (it is given a function
// that reads those a command names), never contacts a cluster, and no input, however broken, makes it
// panic.
package lint

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

var errNotRead = errors.New("no reader of files")

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

// Options name the inputs, the release and the facts.
type Options struct {
	// Version is the chart release to judge for: "v26.7.0", "v26.7", "latest". Empty means the one
	// that a command names, and else the newest.
	Version string
	// Table has the facts about the chart; nil for gpuop's own.
	Table *chart.Table
	// Files are judged by what they turn out to be.
	Files []Input
	// Command is a pasted shell script, or empty.
	Command string
	// Read returns the content of a file that the input file names; nil reads none.
	Read func(file, name string) ([]byte, error)
	// Fix makes Result.Corrected.
	Fix bool
}

// A Result has the findings, and how the inputs were read.
type Result struct {
	Report report.Report `json:"report"`
	// Kinds are the purposes of the inputs, in order.
	Kinds []string `json:"kinds"`
	// Judged is how many inputs, commands and documents were judged; 0 is not clean.
	Judged int `json:"judged"`
	// Unjudged are the names of the inputs in which nothing was judged.
	Unjudged []string `json:"unjudged,omitempty"`
	// Corrected is the command with what has one correction alone; empty without a command, or without Options.Fix.
	Corrected string `json:"corrected,omitempty"`
}

// CommandName is the name of a command's text in findings.
const CommandName = "command"

// A unit is a document or a command with its kind.
type unit struct {
	file, kind string
	judged     bool
}

// run holds the facts of all inputs. Each document and command is judged with them.
type run struct {
	table *chart.Table
	// version is the release that the user names; the zero value when the input decides.
	version chart.Version
	// newer says that a release is newer than all that the table knows.
	newer     bool
	read      func(file, name string) ([]byte, error)
	documents []*doc
	// secrets are values that nothing which is printed may hold.
	secrets report.Secrets
	// configMaps hold configs for the device plugin, and uses are the places that name one.
	configMaps []configMap
	uses       []configUse
	units      []unit
	rows       []report.Row
}

// Lint judges the inputs. An error means unusable options; whatever is wrong with an input is a finding.
func Lint(o Options) (*Result, error) {
	r := &run{table: cmp.Or(o.Table, chart.Load()), read: o.Read}
	if o.Version != "" {
		var err error
		if r.version, err = r.resolve(o.Version, false, report.Row{}); err != nil {
			return nil, err
		}
	}
	result := &Result{}
	inputs := slices.Clip(o.Files)
	if o.Command != "" {
		inputs = append(inputs, Input{Name: CommandName, Data: []byte(o.Command), Script: true})
	}
	// the ConfigMaps of one input matter to the documents of all others
	for _, f := range inputs {
		r.secrets.Learn(string(f.Data))
		if !f.Script {
			r.parse(doc{file: f.Name, data: f.Data, found: f.Found})
		} else if s := r.script(f.Name, string(f.Data), 0); f.Name == CommandName && o.Fix {
			result.Corrected = s.corrected()
		}
	}
	for i := 0; i < len(r.documents); i++ {
		r.document(r.documents[i])
	}
	r.joinConfigs()
	r.finish(inputs, result)
	return result, nil
}

// finish fills in the result.
func (r *run) finish(inputs []Input, result *Result) {
	judged := map[string]bool{}
	for _, u := range r.units {
		if u.kind != "" {
			result.Kinds = append(result.Kinds, u.kind)
		}
		if u.judged {
			result.Judged++
			judged[u.file] = true
		}
	}
	for _, f := range inputs {
		if !judged[f.Name] {
			result.Unjudged = append(result.Unjudged, f.Name)
		}
	}
	for _, f := range r.rows {
		f.Subject, f.Reason, f.Fix = r.secrets.Mask(f.Subject), r.secrets.Mask(f.Reason), r.secrets.Mask(f.Fix)
		result.Report.Add(f)
	}
	result.Report.Sort()
}

func (r *run) unit(file, kind string, judged bool) {
	r.units = append(r.units, unit{file, kind, judged})
}

// lowered are the findings that say no more than that gpuop does not know a name: a newer release may.
var lowered = []report.ID{"unknown-key", "misspelt-key", "unknown-field", "key-gone", "below-a-value", "operand-version"}

// add takes over rows of a file.
func (r *run) add(file string, rows ...report.Row) {
	for _, f := range rows {
		f.File = cmp.Or(f.File, file)
		if r.newer && slices.Contains(lowered, f.ID) {
			f.State = report.Note
		}
		r.rows = append(r.rows, f)
	}
}

// report takes over rows of a document: lines become the file's, and a claim about a value that another program fills in
// becomes a note.
func (r *run) report(d *doc, rows []report.Row) {
	var filled []*yaml.Node
	if len(rows) > 0 {
		filled = unknownIn(d.root)
	}
	for _, f := range rows {
		isFilled := f.ID != "not-judged" && slices.ContainsFunc(filled, func(n *yaml.Node) bool { return n.Line == f.Line && n.Column == f.Column })
		if f.Line > 0 {
			f.Line += d.line
		} else if d.line > 0 {
			f.Line = d.line + 1
		}
		if f.Subject != "" && d.where != "" {
			f.Subject = d.where + ": " + f.Subject
		}
		if isFilled {
			f = filledIn
		}
		r.add(d.file, f)
	}
}

// installation judges one, with the configs in its values, and takes over what is wrong.
func (r *run) installation(in *installation, file string) {
	in.judge()
	r.configUses(in, "")
	r.add(file, in.findings()...)
	for _, s := range in.Settings {
		if len(unknownIn(s.Node)) > 0 {
			r.add(s.File, filledIn)
		}
	}
	r.embeddedData(in)
}

// resolve finds the release that an input names at a place, and notes as which one it is judged otherwise. With an error,
// for a name of none, the newest stands in for it. A subject names a range.
func (r *run) resolve(name string, unknown bool, at report.Row) (chart.Version, error) {
	v, exact, err := r.table.Resolve(name)
	newest, isRange := r.table.Newest(name)
	at.ID, at.State = "not-judged", report.Note
	switch {
	case unknown:
		v = r.table.Latest()
		at.Reason, at.Fix = "which release this is is not known here; judged as "+v.String(), "name it with gpuop's --version"
	case err != nil && isRange && at.Subject != "":
		v = newest
		at.Reason, at.Fix = "a range of releases; judged as "+v.String()+", the newest of it that gpuop knows", "name a release"
	case err != nil:
		return r.table.Latest(), err
	case exact:
		return v, nil
	default:
		at.ID, at.Subject, at.Reason, at.Fix = "chart-version", name, fmt.Sprintf("not in gpuop's table; judged as %s", v), "teach gpuop the release: --chart"
		if v == r.table.Latest() {
			r.newer = true
			at.Reason = fmt.Sprintf("newer than every release that gpuop knows; judged as %s, and keys that it does not have are notes", v)
		}
	}
	r.add("", at)
	return v, nil
}

// resolveNode finds the release that a file names, unless the user names one. It is assumed where another program or file
// has it.
func (r *run) resolveNode(d *doc, at *yaml.Node, subject string) (v chart.Version, assumed bool) {
	if r.version != (chart.Version{}) {
		return r.version, false
	}
	row := report.Row{File: d.file, Line: at.Line + d.line, Column: at.Column, Subject: subject}
	unknown := model.UnknownNode(at)
	v, err := r.resolve(at.Value, unknown, row)
	if err != nil {
		v, _ = r.resolve(at.Value, true, row)
	}
	return v, unknown || err != nil
}

func (r *run) orLatest() chart.Version {
	if r.version != (chart.Version{}) {
		return r.version
	}
	return r.table.Latest()
}

// assumed is the remark behind a release that nothing names, in the list of the judged inputs.
func assumed(is bool) string {
	if is {
		return ", release assumed; --version names it"
	}
	return ""
}

// beside reads a file that another one names, relative to it.
func (r *run) beside(file, name string) (data []byte, shown string, err error) {
	if !path.IsAbs(name) {
		name = path.Join(path.Dir(file), name)
	}
	data, err = r.open(file, name)
	return data, name, err
}

// open reads a file that another one names.
func (r *run) open(file, name string) ([]byte, error) {
	if r.read == nil {
		return nil, errNotRead
	}
	data, err := r.read(file, name)
	r.secrets.Learn(string(data))
	return data, err
}

// filledIn is the note that values of a file are not judged, once for all of them.
var filledIn = report.Row{ID: "not-judged", State: report.Note, Reason: "values that another program fills in are not judged"}

// unknownIn are the parts of a value that another program fills in.
func unknownIn(n *yaml.Node) (out []*yaml.Node) {
	switch {
	case n == nil:
	case model.UnknownNode(n):
		return []*yaml.Node{n}
	default:
		for _, c := range n.Content {
			out = append(out, unknownIn(c)...)
		}
	}
	return out
}
