package lint

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpuop/finding"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpuop/sharing"
)

var errNotRead = errors.New("no reader of files")

// ErrTaint is returned for a taint that cannot be read.
var ErrTaint = errors.New("unreadable taint")

// An Input is a text to judge, under the name that findings call it by.
type Input struct {
	Name string
	Data []byte
}

// Options say what to judge and against what.
type Options struct {
	// Version is the chart release to judge for: "v26.7.0", "v26.7", "latest". Empty means the one that a command names,
	// and else the newest.
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
	// Schemas are the custom resource definitions to validate resources against; nil for gpuop's own table of fields.
	Schemas Schemas
	// Read returns the content of a file that a command names; nil reads none.
	Read func(name string) ([]byte, error)
}

// Schemas validates a custom resource against its definition.
type Schemas interface {
	// Validate returns the findings about the resource, and false when no definition is for its kind. Findings have no
	// file; their lines are 0 and their subjects dotted paths from the root of the object.
	Validate(apiVersion, kind string, object map[string]any) ([]finding.Finding, bool)
}

// A Result is what was found.
type Result struct {
	Report finding.Report `json:"report"`
	// Kinds are what the inputs were taken for, in order.
	Kinds []string `json:"kinds"`
	// Corrected is the command as it should be; empty without a command.
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
}

// correction replaces the bytes from start to end of the command.
type correction struct {
	start, end int
	text       string
}

// run is one run of the linter.
type run struct {
	table       *chart.Table
	version     chart.Version // the zero value when the input decides
	name        string
	read        func(string) ([]byte, error)
	schemas     Schemas
	taints      []taint
	sets        []string
	findings    []finding.Finding
	kinds       []string
	documents   []doc
	corrections []correction
	source      string
	// drivers are the specs of the NVIDIADrivers seen so far, by name.
	drivers map[string]*yaml.Node
}

// Lint judges the inputs. An error means unusable options; whatever is wrong with an input is a finding.
func Lint(o Options) (*Result, error) {
	result, r, err := lintOnce(o)
	if err != nil || o.Command == "" {
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
	}
	return result, nil
}

func lintOnce(o Options) (*Result, *run, error) {
	r := &run{table: cmp.Or(o.Table, chart.Load()), read: o.Read, schemas: o.Schemas, sets: o.Sets}
	if o.Version != "" {
		v, exact, err := r.table.Resolve(o.Version)
		if err != nil {
			return nil, nil, err
		}
		r.version = v
		if !exact {
			r.findings = append(r.findings, finding.Finding{ID: "chart-version", Subject: o.Version,
				Reason: fmt.Sprintf("not in gpuop's table; judged as %s", v), Source: sourceValues})
		}
	}
	for _, t := range o.Taints {
		parsed, err := parseTaint(t)
		if err != nil {
			return nil, nil, err
		}
		r.taints = append(r.taints, parsed)
	}
	// documents are read before anything is judged, since the taints of one node file matter to the others
	for _, f := range o.Files {
		r.parse(text{name: f.Name, data: f.Data})
	}
	if o.Command != "" {
		r.script(o.Command)
	}
	if len(o.Files) == 0 && len(o.Sets) > 0 && o.Command == "" {
		r.setsAlone()
	}
	for i := 0; i < len(r.documents); i++ {
		r.document(r.documents[i])
	}
	result := &Result{Kinds: r.kinds}
	result.Report.Add(r.findings...)
	result.Report.Sort()
	return result, r, nil
}

// at reports a mistake at a word of the command.
func (r *run) at(w word, id string, severity finding.Severity, subject, reason, fix, source string) {
	r.findings = append(r.findings, finding.Finding{
		ID: id, Severity: severity, File: r.name, Line: w.line, Column: w.col, Subject: subject, Reason: reason, Fix: fix, Source: source,
	})
}

// replace corrects one word of the command.
func (r *run) replace(w word, value string) {
	offset := 0
	for range w.line - 1 {
		next := strings.IndexByte(r.source[offset:], '\n')
		if next < 0 {
			return
		}
		offset += next + 1
	}
	offset += w.col - 1
	if offset < 0 || offset+len(w.raw) > len(r.source) || r.source[offset:offset+len(w.raw)] != w.raw {
		return
	}
	r.corrections = append(r.corrections, correction{offset, offset + len(w.raw), quote(value)})
}

// corrected applies the corrections to the command.
func (r *run) corrected() string {
	slices.SortFunc(r.corrections, func(a, b correction) int { return b.start - a.start })
	out := r.source
	end := len(out)
	for _, c := range r.corrections {
		if c.start < 0 || c.end > end || c.start > c.end {
			continue
		}
		out = out[:c.start] + c.text + out[c.end:]
		end = c.start
	}
	return out
}

// script judges a pasted script.
func (r *run) script(source string) {
	r.name = CommandName
	r.source = prompt.ReplaceAllString(source, "$1  $2")
	s := parseScript(source)
	for _, f := range s.findings {
		f.File = CommandName
		r.findings = append(r.findings, f)
	}
	for _, c := range s.commands {
		r.name = CommandName
		for len(c.words) > 1 && c.words[0].value == "sudo" {
			c.words = c.words[1:]
		}
		switch c.words[0].value {
		case "helm":
			if len(c.words) > 1 {
				r.helm(s, c)
			}
		case "kubectl", "oc", "kubernetes", "k":
			r.kubectl(c)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.files)) {
		d := s.files[name]
		r.parse(text{name: CommandName, data: []byte(d.text), line: d.line, route: d.route})
	}
}

// setsAlone judges --set flags without a file or command around them.
func (r *run) setsAlone() {
	in := &installation{table: r.table, version: r.orLatest(), flags: true}
	r.name = ""
	r.addSets(in)
	in.judge()
	r.tolerations(in)
	r.kinds = append(r.kinds, "--set flags for gpu-operator "+in.version.String())
	r.findings = append(r.findings, in.findings()...)
}

func (r *run) addSets(in *installation) {
	for _, s := range r.sets {
		f := &flagUse{name: "--set", value: word{value: s}, hasValue: true}
		r.setFlag(&script{}, in, f)
	}
}

func (r *run) orLatest() chart.Version {
	if r.version != (chart.Version{}) {
		return r.version
	}
	return r.table.Latest()
}

// trimBOM drops a byte order mark, which editors on Windows put first.
func trimBOM(data []byte) []byte { return bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")) }
