// Package lint checks what a user is about to apply. It detects the kind of each input, such as values of the
// gpu-operator chart, helm and kubectl commands, the operator's custom resources, configs of the device plugin and MIG
// manager, or pod manifests.
//
// The package contacts no cluster, and reads files only through Options.Read. No input makes it panic.
package lint

import (
	"bytes"
	"cmp"
	"io/fs"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/input"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/schema"
)

// Input is a text to check, with the name that findings use.
type Input struct {
	Name   string
	Data   []byte
	Script bool // a shell script
	Found  bool // found in a searched directory: ignored if it is probably for another program
}

// Options are the inputs and settings of Lint.
type Options struct {
	Version string       // the release, such as v26.7 or latest; if empty, an input's or else the newest
	Table   *chart.Table // the facts about the chart; nil means the built-in table
	Files   []Input      // the files to check
	Command string       // a shell command to check; it may be empty
	Fix     bool         // requests Result.Corrected
	// Read reads the file called name, which file refers to. It also reads Chart.yaml and kustomization.yaml next to a
	// file. If it is nil, Lint reads no files.
	Read func(file, name string) ([]byte, error)
}

// Result is the result of Lint.
type Result struct {
	Report    check.Report
	Kinds     []string      // the kinds of the documents and commands, such as "pod", in the order of the inputs
	Judged    int           // the number of documents and commands that were checked
	Unjudged  []string      // the inputs in which nothing was checked
	Corrected string        // the last script or command with all unambiguous fixes, if Options.Fix is set
	Secrets   check.Secrets // the secrets in the inputs, which output must not contain
}

const (
	CommandName = "command" // the name of Options.Command in findings
	Stdin       = "stdin"   // the name of standard input
)

// run is the state of one call of Lint. It is shared because findings about a document can depend on other documents.
type run struct {
	Result
	table      *chart.Table
	version    chart.Version // the release that the user named, or else the newest
	named      bool
	newer      bool // the release is newer than all releases in the table
	read       func(file, name string) ([]byte, error)
	found      map[string]bool     // the files that were found in a searched directory
	judged     map[string]bool     // the files of which something was checked
	asValues   map[string]bool     // the files that another input uses as the operator's values
	lines      map[string][]string // the lines of each parsed file
	documents  []*doc
	configMaps []configMap // in the inputs, and those that the chart creates from values
	uses       []configUse
}

// Lint checks the inputs. It returns an error only for invalid options; problems of an input are findings.
func Lint(o Options) (*Result, error) {
	r := &run{table: cmp.Or(o.Table, chart.Load()), read: o.Read, named: o.Version != "", found: map[string]bool{},
		judged: map[string]bool{}, asValues: map[string]bool{}, lines: map[string][]string{}}
	var err error
	if r.version, err = r.resolve(o.Version, false, check.Finding{}); err != nil {
		return nil, err
	}
	inputs := slices.Clip(o.Files)
	if o.Command != "" {
		inputs = append(inputs, Input{Name: CommandName, Data: []byte(o.Command), Script: true})
	}
	// parse all inputs first: documents refer to ConfigMaps in other inputs
	for _, f := range inputs {
		if r.found[f.Name] = f.Found; f.Found && (!aboutGPUs.Match(f.Data) || bytes.IndexByte(f.Data, 0) >= 0) {
			continue
		}
		r.learn(f.Name, f.Data)
		if !f.Script && !(f.Name == Stdin && looksLikeScript(f.Data)) {
			r.parse(doc{file: f.Name, data: f.Data})
		} else if s := r.script(f.Name, string(f.Data), 0); o.Fix {
			r.Corrected = s.corrected()
		}
	}
	for _, inFolder := range []bool{false, true} { // values in a folder may belong to another input
		for i := 0; i < len(r.documents); i++ { // patches add documents
			switch d := r.documents[i]; {
			case inFolder != (d.kind == kindValues && r.found[d.file]):
			case inFolder && r.asValues[path.Clean(d.file)]:
				r.unit(d.file, "", true) // already checked, for the release of the input that uses it
			default:
				r.document(d)
			}
		}
	}
	r.joinConfigs()
	// the lines of files that the inputs refer to are not shown, because they may be secret
	shown := map[string][]string{}
	for _, f := range inputs {
		shown[f.Name] = r.lines[f.Name]
		if !r.judged[f.Name] {
			r.Unjudged = append(r.Unjudged, f.Name)
		}
	}
	r.Report.Mask(r.Secrets)
	r.Report.IgnoreComments(r.lines)
	r.Report.ShowLines(shown)
	r.Report.Sort()
	return &r.Result, nil
}

// learn records the lines and the secrets of a file.
func (r *run) learn(name string, data []byte) {
	r.Secrets.LearnYAML(data)
	r.lines[name] = strings.Split(string(data), "\n")
}

// unit counts a document or command in a file. An empty kind is not listed.
func (r *run) unit(file, kind string, judged bool) {
	if kind != "" {
		r.Kinds = append(r.Kinds, kind)
	}
	if judged {
		r.Judged++
		r.judged[file] = true
	}
}

// add adds findings. A finding without a File gets file.
func (r *run) add(file string, findings ...check.Finding) {
	for _, f := range findings {
		f.File = cmp.Or(f.File, file)
		if r.newer && slices.Contains([]*check.Check{fields.UnknownKey, misspeltKey, schema.UnknownField, keyGone,
			belowValue, operandVersion}, f.Check) {
			f.Severity = check.Note // the newer release may have the key or value
		}
		r.Report.Add(f)
	}
}

// report adds findings about a document, with line numbers of its file.
func (r *run) report(d *doc, findings []check.Finding) {
	filled, inner, outer := unknownIn(d.root), strings.Split(string(d.data), "\n"), r.lines[d.file]
	for _, f := range findings {
		isAt := func(n *yaml.Node) bool { return n.Line == f.Line && n.Column == f.Column }
		if f.Check != input.Skipped && slices.ContainsFunc(filled, isAt) {
			r.add(d.file, filledIn)
			continue
		}
		if d.open {
			f.Severity = min(f.Severity, check.Note) // the script may append what is missing
		}
		if n := f.Line; min(n, f.Column) > 0 && n <= len(inner) && n+d.line <= len(outer) {
			f.Column += max(0, strings.LastIndex(outer[n+d.line-1], inner[n-1])) // an inner document is indented
		}
		if f.Line > 0 || d.line > 0 {
			f.Line = max(f.Line, 1) + d.line
		}
		if f.Subject != "" && d.where != "" {
			f.Subject = d.where + ": " + f.Subject
		}
		r.add(d.file, f)
	}
}

// installation runs the rules on an installation, and adds the findings. It also checks configs embedded in the values.
func (r *run) installation(in *installation, file string) {
	in.runRules()
	r.configUses(in, "")
	r.add(file, in.findings()...)
	for _, s := range in.Settings {
		if len(unknownIn(s.Node)) > 0 {
			r.add(s.File, filledIn)
		}
	}
	r.embeddedData(in)
}

// resolve returns the release that name refers to. If it falls back to another release, it adds a note at the position
// of at. unknown means that the name is filled in later. Version ranges are accepted only if at.Subject is set.
func (r *run) resolve(name string, unknown bool, at check.Finding) (chart.Version, error) {
	v, exact, err := r.table.Resolve(name)
	newest, isRange := r.table.Newest(name)
	at.Check, at.Severity = input.Skipped, check.Note
	switch {
	case unknown:
		v, at.Reason, at.Fix = r.table.Latest(), "the release is unknown", "set it with --version"
	case err != nil && isRange && at.Subject != "":
		v, at.Reason, at.Fix = newest, "a range of releases", "use an exact release"
	case err != nil:
		return r.table.Latest(), err
	case exact:
		return v, nil
	default:
		at.Check, at.Subject, at.Reason, at.Fix = chartVersion, name, "unknown release", "add it with --chart"
		r.newer = r.newer || v == r.table.Latest() // unknown keys are then notes
	}
	at.Reason += "; checked against " + v.String()
	switch {
	case isRange:
		at.Reason += ", the newest of them that gpuop supports"
	case r.newer:
		at.Reason += ", with unknown keys as notes"
	}
	r.add("", at)
	return v, nil
}

// resolveNode returns the release that the user or else a node names. assumed means that the node's is unknown.
func (r *run) resolveNode(d *doc, at *yaml.Node, subject string) (v chart.Version, assumed bool) {
	if r.named {
		return r.version, false
	}
	f := check.Finding{File: d.file, Line: at.Line + d.line, Column: at.Column, Subject: subject}
	unknown := model.UnknownNode(at)
	v, err := r.resolve(at.Value, unknown, f)
	if err != nil {
		v, _ = r.resolve(at.Value, true, f)
	}
	return v, unknown || err != nil
}

// readRelative reads a file. A relative path is relative to the folder of another file. shown is the path for findings.
func (r *run) readRelative(file, name string) (data []byte, shown string, err error) {
	if !path.IsAbs(name) {
		name = path.Join(path.Dir(file), name)
	}
	data, err = r.open(file, name)
	return data, name, err
}

// open reads a file that another file refers to.
func (r *run) open(file, name string) ([]byte, error) {
	if r.read == nil {
		return nil, fs.ErrNotExist
	}
	data, err := r.read(file, name)
	r.learn(name, data)
	return data, err
}

// filledIn is the note about values that another program fills in.
var filledIn = check.Finding{Check: input.Skipped, Severity: check.Note,
	Reason: "another program fills in these values; skipped"}

// unknownIn returns the parts of a value that another program fills in.
func unknownIn(n *yaml.Node) (out []*yaml.Node) {
	if n == nil {
		return nil
	}
	if model.UnknownNode(n) {
		return []*yaml.Node{n}
	}
	for _, c := range n.Content {
		out = append(out, unknownIn(c)...)
	}
	return out
}
