package lint

import (
	"cmp"
	"path"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/input"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/sharing"
)

// carrier judges the values for the operator's or the device plugin's chart; false says that there are none.
func (r *run) carrier(d *doc, uses []input.ChartUse) bool {
	found := false
	for _, use := range uses {
		switch input.ChartOf(use.Chart) {
		case model.OperatorNamespace:
			found = true
			r.carried(d, use)
		case pluginChartName:
			found = true
			for _, v := range use.Values {
				if v = fields.Resolve(v); v != nil && v.Kind == yaml.MappingNode {
					inner := *d
					inner.root, inner.where = v, use.Where
					r.pluginValues(&inner)
				}
			}
		}
	}
	return found
}

// carried judges one use of the operator's chart.
func (r *run) carried(d *doc, use input.ChartUse) {
	for _, key := range use.Misplaced {
		d.reader.Add("unknown-key", report.Failed, key, key.Value, "there is no such field here: nothing reads the values below it", "write "+use.Place)
	}
	v, assumed := r.carriedVersion(d, use)
	in := newInstallation(r.table, v, nil)
	in.assumed = assumed
	for _, v := range use.Values {
		v = fields.Resolve(v)
		switch {
		case fields.IsNull(v):
		case v.Tag == input.UnknownTag:
			r.notRead(d, v, use.Where)
		case v.Kind == yaml.MappingNode:
			in.Settings = append(in.Settings, model.Flatten(d.reader, d.file, d.line, nil, v)...)
		case v.Kind == yaml.ScalarNode && strings.Contains(v.Value, ":") && strings.Contains(v.Value, "\n"):
			r.valuesText(in, d.file, use.Where, []byte(v.Value), linesBefore(v)+d.line)
		case v.Kind == yaml.ScalarNode && v.Value != "":
			r.carriedFile(d, in, use.Where, v)
		}
	}
	for _, list := range use.Parameters {
		for _, p := range fields.Items(list) {
			if name := fields.Get(p, "name"); name != nil {
				r.parameter(d, in, name, fields.Get(p, "value"), fields.Text(p, "forceString") == "true" || fields.Text(p, "type") == "string", use)
			}
		}
	}
	for _, f := range fields.Of(use.Sets) {
		r.parameter(d, in, f.Key, f.Value, false, use)
	}
	if e := fields.Resolve(use.Elsewhere); e != nil && len(e.Content) > 0 {
		r.notRead(d, e, use.Where)
	}
	r.report(d, d.reader.Findings)
	d.reader.Findings = nil
	r.name = d.file
	r.installation(in)
}

func (r *run) notRead(d *doc, at *yaml.Node, what string) {
	r.report(d, []report.Row{{ID: "not-judged", State: report.Note, Line: at.Line, Column: at.Column, Subject: what, Reason: "these values are in another file or object, so they are not judged", Fix: "lint that file too"}})
}

// carriedFile reads a values file that another file names; what is not here is said to be unjudged.
func (r *run) carriedFile(d *doc, in *installation, where string, n *yaml.Node) {
	data, name, err := r.beside(d.file, n.Value)
	if err != nil || model.UnknownNode(n) {
		what := n.Value
		if model.UnknownNode(n) {
			what = where
		}
		r.notRead(d, n, what)
		return
	}
	r.valuesText(in, name, "", data, 0)
}

// parameter reads a dotted name with a value, as --set has it.
func (r *run) parameter(d *doc, in *installation, name, value *yaml.Node, text bool, use input.ChartUse) {
	if name == nil || value == nil || value.Kind == yaml.MappingNode {
		return
	}
	written, raw := value.Value, use.Raw
	if value.Kind == yaml.SequenceNode {
		items := make([]string, len(value.Content))
		for i, n := range value.Content {
			items[i] = fields.Resolve(n).Value
		}
		written, raw = "{"+strings.Join(items, ",")+"}", true
	}
	if !raw {
		written = strings.NewReplacer(`\`, `\\`, `,`, `\,`).Replace(written)
	}
	list, err := model.Assignments(name.Value+"="+written, !text)
	if err != nil {
		r.report(d, []report.Row{{ID: "set-syntax", State: report.Failed, Line: name.Line, Column: name.Column, Subject: name.Value, Reason: err.Error(), Source: model.SourceHelm}})
		return
	}
	for _, a := range list {
		in.Settings = append(in.Settings, &model.Setting{Setting: chart.Setting{Path: a.Path, Value: a.Value}, Element: a.Element, File: d.file, Line: name.Line + d.line, Column: name.Column, Source: a.Text, Typed: !text, AsText: use.AsText,
			Unknown: model.UnknownNode(value)})
		if model.UnknownNode(value) {
			r.report(d, []report.Row{{ID: "not-judged", State: report.Note, Line: name.Line, Column: name.Column, Subject: name.Value, Reason: filledIn}})
		}
	}
}

// carriedVersion is the release that the file installs, or that the user wants judged. It is assumed where another
// program or file has it.
func (r *run) carriedVersion(d *doc, use input.ChartUse) (v chart.Version, assumed bool) {
	if use.Reference != nil && use.Version == nil && r.version == (chart.Version{}) {
		use.Version = r.ociVersion(use.Reference)
	}
	if r.version != (chart.Version{}) || use.Version == nil || use.Version.Kind != yaml.ScalarNode {
		return r.orLatest(), false
	}
	r.name = d.file
	at := input.Word{Value: use.Version.Value, Line: use.Version.Line + d.line, Col: use.Version.Column}
	assumed = model.UnknownNode(use.Version)
	subject := at.Value
	if strings.Contains(subject, input.Filled) {
		subject = use.Where
	}
	v, err := r.resolve(at, assumed, subject)
	if err != nil {
		r.at(at, "not-judged", report.Note, subject, "no one release of the chart; judged as "+v.String(), "name a release with gpuop's --version", "")
	}
	return v, assumed
}

// ociVersion is the tag of Flux's OCIRepository of this name in the inputs; else it is not known.
func (r *run) ociVersion(name *yaml.Node) *yaml.Node {
	out := *name
	out.Tag = input.UnknownTag
	for _, d := range r.documents {
		if fields.Text(d.root, "kind") == "OCIRepository" && fields.Text(d.root, "metadata", "name") == name.Value {
			if tag := fields.Get(d.root, "spec", "ref", "tag"); tag != nil {
				out.Tag, out.Value = tag.Tag, tag.Value
			}
		}
	}
	return &out
}

// terraform judges what a Terraform file installs.
func (r *run) terraform(name string, data []byte) {
	f := input.ReadTerraform(name, data)
	r.findings = append(r.findings, f.Findings...)
	for _, n := range f.Sensitive {
		r.sensitive(n)
	}
	if f.Broken {
		r.judged++ // that it is no Terraform
	}
	for _, n := range f.Manifests {
		r.addDocument(doc{file: name, root: n, route: sharing.Operator, reader: &fields.Reader{}})
	}
	for _, n := range f.Texts {
		r.parseYAML(text{name: name, line: n.Line}, []byte(n.Value))
	}
	what := "Terraform"
	if r.carrier(&doc{file: name, reader: &fields.Reader{}}, f.Uses) {
		what += " with values for gpu-operator"
	}
	r.kinds = append(r.kinds, what)
}

// tasks judges what tasks of Ansible install, run and apply.
func (r *run) tasks(d *doc, tasks []input.Task) {
	before := r.judged
	for _, t := range tasks {
		switch {
		case t.Use != nil:
			r.carrier(d, []input.ChartUse{*t.Use})
		case t.Script != nil:
			outer := r.fixes
			r.script(d.file, t.Script.Value, linesBefore(t.Script)+d.line)
			r.fixes = outer
		case t.Object.Kind == yaml.MappingNode:
			inner := *d
			inner.root, inner.reader = t.Object, &fields.Reader{}
			r.addDocument(inner)
		default:
			r.parseYAML(text{name: d.file, line: linesBefore(t.Object) + d.line, written: true}, []byte(t.Object.Value))
		}
	}
	d.reader.Findings = nil
	what := "tasks of Ansible"
	if r.judged == before {
		what += ", not judged"
	}
	r.kinds = append(r.kinds, what)
}

// patches judges the patches in a Kustomization: parts of resources that the operator reads, and operations on them.
func (r *run) patches(d *doc) {
	r.name = d.file
	for _, p := range input.Patches(d.root) {
		line := linesBefore(p.Text) + d.line
		if own := patched[strings.ToLower(p.Target)]; own != "" && strings.HasPrefix(strings.TrimSpace(p.Text.Value), "-") {
			r.patchText(own, []byte(p.Text.Value), true, line)
			continue
		}
		inner := doc{file: d.file, data: []byte(p.Text.Value), line: line, route: sharing.Operator, reader: &fields.Reader{}, partial: true}
		if inner.root = inner.reader.Document(inner.data); inner.root == nil {
			continue
		}
		switch inner.kind = detect(r.table, inner.root); inner.kind {
		case kindClusterPolicy, kindNVIDIADriver, kindGPUCluster, kindCarrier, kindConfigMap:
			r.documents = append(r.documents, inner)
		}
	}
}

// A localChart is a chart in a folder: the operator's own, or one that depends on it.
type localChart struct {
	// file is the Chart.yaml, and version the operator's chart's in it.
	file, version string
	at            *yaml.Node
	// below is the key of the operator's values; "" for the operator's own chart.
	below string
}

// operatorIn reads the Chart.yaml of a folder; nil where it is not of the operator's chart.
func (r *run) operatorIn(from, folder string) *localChart {
	data, file, err := r.beside(from, path.Join(folder, "Chart.yaml"))
	if err != nil {
		return nil
	}
	var reader fields.Reader
	root := reader.Document(model.TrimBOM(data))
	for _, c := range append(fields.Items(fields.Get(root, "dependencies")), root) {
		if fields.Text(c, "name") != model.OperatorNamespace {
			continue
		}
		out := &localChart{file: file, version: fields.Text(c, "version"), at: fields.Get(c, "version")}
		if c != root {
			out.below = cmp.Or(fields.Text(c, "alias"), model.OperatorNamespace)
		}
		return out
	}
	return nil
}

// ofChart is the release of a chart in a folder, and how the list of what was judged says so.
func (r *run) ofChart(c *localChart) (v chart.Version, named string) {
	if _, _, err := r.table.Resolve(c.version); err == nil {
		defer func(name string) { r.name = name }(r.name)
		r.name = c.file
		v, _ = r.resolve(input.Word{Value: c.version, Line: c.at.Line}, false, "")
		return v, ""
	}
	if newest, ok := r.table.Newest(c.version); ok {
		return newest, ", the newest that gpuop knows of " + c.version
	}
	return r.table.Latest(), r.assumed()
}

// ofDependency are the settings that a chart around the operator's hands on to it.
func ofDependency(settings []*model.Setting, below string) (out []*model.Setting) {
	for _, s := range settings {
		if len(s.Path) > 1 && s.Path[0] == below && s.Path[1] != "enabled" {
			s.Path, s.Called = s.Path[1:], ""
			if s.Keys != nil {
				s.Keys = s.Keys[1:]
			}
			out = append(out, s)
		}
	}
	return out
}
