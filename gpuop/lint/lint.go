// Package lint checks what a user is about to apply. It detects the kind of each input, such as values of the
// gpu-operator chart, helm and kubectl commands, the operator's custom resources, configs of the device plugin and MIG
// manager, or pod manifests.
//
// The result is a list of findings and, if requested, the corrected command. Package input parses scripts, Terraform
// and other files that contain values. Package chart has the facts about the chart.
//
// The package contacts no cluster, and reads files only through Options.Read. No input makes it panic.
package lint

import (
	"cmp"
	"errors"
	"fmt"
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

var errNotRead = errors.New("no reader of files")

// Input is a text to check, with the name that findings use.
type Input struct {
	Name string
	Data []byte
	// Script means that the text is a shell script. It is checked, but only Options.Command is corrected.
	Script bool
	// Found means that the file was found in a searched directory. It is ignored if it is probably for another program.
	Found bool
}

// Options are the inputs and settings of Lint.
type Options struct {
	// Version is the chart release to check against: "v26.7.0", "v26.7" or "latest". If it is empty, the release that
	// an input names is used or, without one, the newest.
	Version string
	// Table has the facts about the chart; nil means the built-in table.
	Table *chart.Table
	// Files are the files to check.
	Files []Input
	// Command is a shell command to check. It may be empty.
	Command string
	// Read reads the file called name, which file refers to. It also reads Chart.yaml and kustomization.yaml next to a
	// file. If it is nil, Lint reads no files.
	Read func(file, name string) ([]byte, error)
	// Fix requests Result.Corrected.
	Fix bool
}

// Result is the result of Lint.
type Result struct {
	Report check.Report `json:"report"`
	// Kinds names the kind of each document and command, such as "pod", in the order in which they were found.
	Kinds []string `json:"kinds"`
	// Judged counts the documents and commands that were checked.
	Judged int `json:"judged"`
	// Unjudged lists the inputs in which nothing was checked.
	Unjudged []string `json:"unjudged,omitempty"`
	// Corrected is the command with all unambiguous fixes. It is empty if there is no command or Options.Fix is false.
	Corrected string `json:"corrected,omitempty"`
	// Secrets are the secrets in the inputs. Output must not contain them.
	Secrets check.Secrets `json:"-"`
}

// These are the names of a command and of standard input in findings.
const (
	CommandName = "command"
	Stdin       = "stdin"
)

// unit is a document or command in an input.
type unit struct {
	file, kind string
	judged     bool
}

// run is the state of one call of Lint. It is shared because findings about a document can depend on other documents.
type run struct {
	table *chart.Table
	// version is the release that the user named, or the zero value.
	version chart.Version
	// newer means that the release is newer than all releases in the table.
	newer bool
	read  func(file, name string) ([]byte, error)
	// found tells whether a file was found in a searched directory. lines has the lines of each file that was parsed.
	found map[string]bool
	lines map[string][]string
	// asValues has the files that another input uses as the operator's values.
	asValues  map[string]bool
	documents []*doc
	// secrets are values that no output may contain.
	secrets check.Secrets
	// configMaps are the ConfigMaps in the inputs, and those that the chart creates from values. uses are the
	// references to them.
	configMaps []configMap
	uses       []configUse
	units      []unit
	findings   []check.Finding
}

// Lint checks the inputs. It returns an error only for invalid options; problems of an input are findings.
func Lint(o Options) (*Result, error) {
	r := &run{table: cmp.Or(o.Table, chart.Load()), read: o.Read,
		found: map[string]bool{}, lines: map[string][]string{}, asValues: map[string]bool{}}
	if o.Version != "" {
		var err error
		if r.version, err = r.resolve(o.Version, false, check.Finding{}); err != nil {
			return nil, err
		}
	}
	result := &Result{}
	inputs := slices.Clip(o.Files)
	if o.Command != "" {
		inputs = append(inputs, Input{Name: CommandName, Data: []byte(o.Command), Script: true})
	}
	// parse all inputs first: documents refer to ConfigMaps in other inputs
	for _, f := range inputs {
		if r.found[f.Name] = f.Found; f.Found && !mayBeOwn(f.Data) {
			continue
		}
		r.secrets.LearnYAML(f.Data)
		r.lines[f.Name] = strings.Split(string(f.Data), "\n")
		if !f.Script && !(f.Name == Stdin && looksLikeScript(f.Data)) {
			r.parse(doc{file: f.Name, data: f.Data})
		} else if s := r.script(f.Name, string(f.Data), 0); f.Name == CommandName && o.Fix {
			result.Corrected = s.corrected()
		}
	}
	var values []*doc
	for i := 0; i < len(r.documents); i++ {
		if d := r.documents[i]; d.kind == kindValues && r.found[d.file] {
			values = append(values, d)
		} else {
			r.document(d)
		}
	}
	for _, d := range values {
		if r.asValues[path.Clean(d.file)] {
			r.unit(d.file, "", true) // already checked, for the release of the input that uses it
			continue
		}
		r.document(d)
	}
	r.joinConfigs()
	r.finish(inputs, result)
	return result, nil
}

// finish fills in the result. It masks secrets in the findings, and drops findings that a comment ignores.
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
	result.Secrets = r.secrets
	for _, f := range r.findings {
		f.Subject, f.Reason, f.Fix = r.secrets.Mask(f.Subject), r.secrets.Mask(f.Reason), r.secrets.Mask(f.Fix)
		result.Report.Add(f)
	}
	// the lines of files that the inputs refer to are not shown, because they may be secret
	shown := map[string][]string{}
	for _, f := range inputs {
		shown[f.Name] = r.lines[f.Name]
	}
	result.Report.IgnoreComments(r.lines)
	result.Report.ShowLines(shown)
	result.Report.Sort()
}

func (r *run) unit(file, kind string, judged bool) {
	r.units = append(r.units, unit{file, kind, judged})
}

// notesWhenNewer lists the checks whose findings become notes if the release is newer than the table. The newer release
// may have the key or value that these checks report.
var notesWhenNewer = []*check.Check{
	fields.UnknownKey, misspeltKey, schema.UnknownField, keyGone, belowValue, operandVersion,
}

// add adds findings. A finding without a File gets file.
func (r *run) add(file string, findings ...check.Finding) {
	for _, f := range findings {
		f.File = cmp.Or(f.File, file)
		if r.newer && slices.Contains(notesWhenNewer, f.Check) {
			f.Severity = check.Note
		}
		r.findings = append(r.findings, f)
	}
}

// report adds findings about a document, with line numbers of its file. If a script may append to the document, all
// findings become notes. A finding about a value that another program fills in is replaced by the note filledIn.
func (r *run) report(d *doc, findings []check.Finding) {
	var filled []*yaml.Node
	if len(findings) > 0 {
		filled = unknownIn(d.root)
	}
	for _, f := range findings {
		if d.open {
			f.Severity = min(f.Severity, check.Note) // the script may append what is missing
		}
		isAt := func(n *yaml.Node) bool { return n.Line == f.Line && n.Column == f.Column }
		isFilled := f.Check != input.Skipped && slices.ContainsFunc(filled, isAt)
		if f.Line > 0 {
			f.Column += r.indentation(d, f)
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

// indentation returns by how much a document inside another file is indented at the line of a finding. It returns 0 if
// that is unknown. f.Line counts from the start of the document.
func (r *run) indentation(d *doc, f check.Finding) int {
	inner, outer := strings.Split(string(d.data), "\n"), r.lines[d.file]
	if f.Column == 0 || d.line == 0 || f.Line > len(inner) || f.Line+d.line > len(outer) {
		return 0
	}
	before, found := strings.CutSuffix(outer[f.Line+d.line-1], inner[f.Line-1])
	if !found {
		return 0
	}
	return len(before)
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
// of at. unknown means that the name is filled in later; the newest release is then used. Version ranges are accepted
// only if at.Subject is set. On error, resolve also returns the newest release.
func (r *run) resolve(name string, unknown bool, at check.Finding) (chart.Version, error) {
	v, exact, err := r.table.Resolve(name)
	newest, isRange := r.table.Newest(name)
	at.Check, at.Severity = input.Skipped, check.Note
	switch {
	case unknown:
		v = r.table.Latest()
		at.Reason, at.Fix = "the release is unknown; checked against "+v.String(), "set it with --version"
	case err != nil && isRange && at.Subject != "":
		v = newest
		at.Reason = "a range of releases; checked against " + v.String() + ", the newest of them that gpuop supports"
		at.Fix = "use an exact release"
	case err != nil:
		return r.table.Latest(), err
	case exact:
		return v, nil
	default:
		at.Check, at.Subject, at.Fix = chartVersion, name, "add the release with --chart"
		at.Reason = "unknown release; checked against " + v.String()
		if v == r.table.Latest() {
			r.newer = true
			const reason = "newer than every release that gpuop supports; " +
				"checked against %s, with unknown keys as notes"
			at.Reason = fmt.Sprintf(reason, v)
		}
	}
	r.add("", at)
	return v, nil
}

// resolveNode returns the release that the user named or, without one, the release that a node names. assumed is true
// if another program fills in the node, or if its text is not a known release.
func (r *run) resolveNode(d *doc, at *yaml.Node, subject string) (v chart.Version, assumed bool) {
	if r.version != (chart.Version{}) {
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

func (r *run) orLatest() chart.Version {
	if r.version != (chart.Version{}) {
		return r.version
	}
	return r.table.Latest()
}

// assumed returns the remark that follows an assumed release in the output, or "" for a release that is certain.
func assumed(isAssumed bool) string {
	if isAssumed {
		return ", assumed; set the release with --version"
	}
	return ""
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
		return nil, errNotRead
	}
	data, err := r.read(file, name)
	r.secrets.LearnYAML(data)
	r.lines[name] = strings.Split(string(data), "\n")
	return data, err
}

// filledIn is the note about values that another program fills in.
var filledIn = check.Finding{
	Check: input.Skipped, Severity: check.Note, Reason: "another program fills in these values; skipped",
}

// unknownIn returns the parts of a value that another program fills in.
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
