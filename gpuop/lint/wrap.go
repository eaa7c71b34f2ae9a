package lint

import (
	"cmp"
	"path"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/input"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"
)

// carrier checks the operator's values in a file of another tool. It reports whether there are any.
func (r *run) carrier(d *doc, uses []input.ChartUse) (found bool) {
	for _, use := range uses {
		name, _ := input.ChartOf(use.Chart)
		if name == model.OperatorNamespace && operatorOf(use.Chart, use.Repository) == "" {
			found = true
			r.chartUse(d, use)
		}
	}
	return found
}

// chartUse checks one use of the operator's chart.
func (r *run) chartUse(d *doc, use input.ChartUse) {
	d.reader = &fields.Reader{}
	for _, key := range use.Misplaced {
		const reason = "unknown field: nothing reads the values below it"
		d.reader.Add(fields.UnknownKey, check.Error, key, key.Value, reason, "write "+use.Place)
	}
	in := newInstallation(r.table, r.orLatest(), nil)
	at := use.Version
	if at == nil && use.Reference != nil {
		at = r.ociVersion(use.Reference)
	}
	if at != nil && at.Kind == yaml.ScalarNode {
		in.Version, in.assumed = r.resolveNode(d, at, at.Value)
	}
	for _, v := range use.Values {
		v = fields.Resolve(v)
		if fields.IsNull(v) {
			continue
		}
		isYAML := strings.Contains(v.Value, ":") && strings.Contains(v.Value, "\n")
		switch {
		case v.Kind == yaml.MappingNode:
			in.Settings = append(in.Settings, model.Flatten(d.reader, d.file, d.line, nil, v)...)
		case isYAML && v.Tag != input.UnknownTag:
			r.valuesText(in, d.inside(v))
		case use.Raw && model.UnknownNode(v):
			d.reader.Add(input.Skipped, check.Note, v, use.Where, "Terraform computes these values; skipped",
				"check the installed values: helm get values … | gpuop lint -")
		case model.UnknownNode(v):
			notRead(d, v, use.Where)
		case v.Kind == yaml.ScalarNode && v.Value != "":
			if data, name, err := r.readRelative(d.file, v.Value); err == nil {
				r.asValues[path.Clean(name)] = true
				r.valuesText(in, doc{file: name, data: data})
			} else {
				notRead(d, v, v.Value)
			}
		}
	}
	for _, list := range use.Parameters {
		for _, p := range fields.Items(list) {
			isText := fields.Text(p, "forceString") == "true" || fields.Text(p, "type") == "string"
			r.parameter(d, in, fields.Get(p, "name"), fields.Get(p, "value"), isText, use)
		}
	}
	for _, f := range fields.Of(use.Sets) {
		r.parameter(d, in, f.Key, f.Value, false, use)
	}
	if e := fields.Resolve(use.Elsewhere); e != nil && len(e.Content) > 0 {
		notRead(d, e, use.Where)
	}
	r.report(d, d.reader.Findings)
	r.installation(in, d.file)
}

func notRead(d *doc, at *yaml.Node, what string) {
	const reason = "these values are in another file or object; skipped"
	d.reader.Add(input.Skipped, check.Note, at, what, reason, "lint that file too")
}

// parameter adds the setting for a dotted name and its value, as in --set.
func (r *run) parameter(d *doc, in *installation, name, value *yaml.Node, text bool, use input.ChartUse) {
	if name == nil || value == nil || value.Kind == yaml.MappingNode {
		return
	}
	written := value.Value
	switch {
	case value.Kind == yaml.SequenceNode:
		var items []string
		for _, n := range fields.Items(value) {
			items = append(items, n.Value)
		}
		written = "{" + strings.Join(items, ",") + "}"
	case !use.Raw:
		written = strings.NewReplacer(`\`, `\\`, `,`, `\,`).Replace(written)
	}
	list, err := model.Assignments(name.Value+"="+written, !text)
	if err != nil {
		d.reader.Add(model.SetSyntax, check.Error, name, name.Value, err.Error(), "")
		return
	}
	for _, a := range list {
		in.Settings = append(in.Settings, &model.Setting{
			Setting: chart.Setting{Path: a.Path, Value: a.Value}, Element: a.Element, Source: a.Text,
			File: d.file, Line: name.Line + d.line, Column: name.Column,
			Typed: !text, AsText: use.AsText, Unknown: model.UnknownNode(value),
		})
	}
	if model.UnknownNode(value) {
		r.add(d.file, filledIn)
	}
}

// ociVersion returns the image tag of the Flux OCIRepository with this name. If no input contains it, or it has no tag,
// the returned node has UnknownTag.
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

// terraform checks the installations in a Terraform file.
func (r *run) terraform(name string, data []byte) {
	f := input.ReadTerraform(name, data)
	r.add(name, f.Findings...)
	for _, n := range f.Sensitive {
		for _, e := range append(fields.Items(n), n) {
			r.secrets.Add(fields.Text(e, "value"))
		}
	}
	for _, n := range f.Manifests {
		r.addDocument(&doc{file: name, root: n, reader: &fields.Reader{}})
	}
	for _, n := range f.Texts {
		r.parseYAML(doc{file: name, line: n.Line, data: []byte(n.Value)})
	}
	what := "Terraform"
	judged := r.carrier(&doc{file: name}, f.Uses)
	if judged {
		what += " with values for gpu-operator"
	}
	r.unit(name, what, judged || f.Broken)
}

// tasks checks the installations, commands and manifests in Ansible tasks.
func (r *run) tasks(d *doc, tasks []input.Task) {
	before := len(r.units)
	judged := false
	for _, t := range tasks {
		switch {
		case t.Use != nil:
			judged = r.carrier(d, []input.ChartUse{*t.Use}) || judged
		case t.Script != nil:
			r.script(d.file, t.Script.Value, fields.LinesBefore(t.Script)+d.line)
		case t.Object.Kind == yaml.MappingNode:
			inner := *d
			inner.root, inner.reader = t.Object, &fields.Reader{}
			r.addDocument(&inner)
		default:
			inner := d.inside(t.Object)
			inner.written = true
			r.parseYAML(inner)
		}
	}
	what := "Ansible tasks"
	if !judged && !slices.ContainsFunc(r.units[before:], func(u unit) bool { return u.judged }) {
		what += ", not checked"
	}
	r.unit(d.file, what, judged)
}

// workflow checks the commands of a GitHub workflow or action. It reports whether any was checked.
func (r *run) workflow(d *doc, steps []*yaml.Node) bool {
	before := len(r.units)
	for _, run := range steps {
		r.script(d.file, expression.ReplaceAllStringFunc(run.Value, input.Unassigned), fields.LinesBefore(run)+d.line)
	}
	return slices.ContainsFunc(r.units[before:], func(u unit) bool { return u.judged })
}

// expression matches an expression that GitHub replaces before the shell runs.
var expression = regexp.MustCompile(`\$\{\{[^\n]*?\}\}`)

// rootBeside parses the first of names that exists in the same folder as file. It returns a nil root if none exists.
func (r *run) rootBeside(file string, names ...string) (root *yaml.Node, shown string) {
	for _, name := range names {
		if data, shown, err := r.readRelative(file, name); err == nil {
			var reader fields.Reader
			return reader.Document(model.TrimBOM(data)), shown
		}
	}
	return nil, ""
}

func (r *run) kustomization(file string) *yaml.Node {
	root, _ := r.rootBeside(file, "kustomization.yaml", "kustomization.yml", "Kustomization")
	return root
}

// isPatch reports whether the Kustomization in the same folder uses the file as a patch.
func (r *run) isPatch(file string) bool {
	root := r.kustomization(file)
	patches := fields.Items(fields.Get(root, "patches"))
	patches = append(patches, fields.Items(fields.Get(root, "patchesStrategicMerge"))...)
	return slices.ContainsFunc(patches, func(n *yaml.Node) bool {
		return path.Clean(cmp.Or(fields.Text(n, "path"), n.Value)) == path.Base(file)
	})
}

// otherChart returns the name of the chart that a values file is for, according to the Chart.yaml or Kustomization in
// its folder. It returns "" if that is the operator's chart, or if it is unknown.
func (r *run) otherChart(file string) string {
	if !strings.HasPrefix(path.Base(file), "values") {
		return ""
	}
	if c := r.chartIn(file, "."); c != nil && c.version != nil {
		return ""
	} else if c != nil {
		return c.name
	}
	for _, c := range fields.Items(fields.Get(r.kustomization(file), "helmCharts")) {
		name := fields.Text(c, "name")
		if path.Clean(fields.Text(c, "valuesFile")) == path.Base(file) && name != model.OperatorNamespace {
			return name
		}
	}
	return ""
}

// localChart is a chart in a folder, as its Chart.yaml describes it.
type localChart struct {
	// file is the path of Chart.yaml.
	file, name string
	// version is the version of the operator's chart, or the chart's entry if it has no version. It is nil if the chart
	// is neither the operator's nor depends on it.
	version *yaml.Node
	// own means that the chart is the operator's.
	own bool
	// alias is the parent chart's name for the operator's chart, or "".
	alias string
}

// chartIn reads the Chart.yaml in a folder that is relative to a file. It returns nil if there is none. A chart named
// gpu-operator with an unknown version counts as another chart, except for versions with -devel.
func (r *run) chartIn(from, folder string) *localChart {
	root, file := r.rootBeside(from, path.Join(folder, "Chart.yaml"))
	if root == nil {
		return nil
	}
	out := &localChart{file: file, name: cmp.Or(fields.Text(root, "name"), "without a name")}
	for _, c := range append(fields.Items(fields.Get(root, "dependencies")), root) {
		version := fields.Text(c, "version")
		if _, _, err := r.table.Resolve(version); fields.Text(c, "name") != model.OperatorNamespace ||
			c == root && err != nil && !strings.Contains(version, "-devel") {
			continue
		}
		out.version, out.own, out.alias = cmp.Or(fields.Get(c, "version"), c), c == root, fields.Text(c, "alias")
		break
	}
	return out
}
