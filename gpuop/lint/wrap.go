package lint

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/input"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"
)

// chartUse checks one use of the operator's chart.
func (r *run) chartUse(d *doc, use *input.ChartUse) {
	d.reader = &fields.Reader{}
	for _, key := range use.Misplaced {
		const reason = "unknown field: nothing reads the values below it"
		d.reader.Add(fields.UnknownKey, check.Error, key, key.Value, reason, "write "+use.Place)
	}
	in := newInstallation(r.table, r.version, nil)
	at := use.Version
	if at == nil && use.Reference != nil {
		at = r.ociVersion(use.Reference)
	}
	if at != nil && at.Kind == yaml.ScalarNode {
		in.Version, in.assumed = r.resolveNode(d, at, at.Value)
	}
	for _, v := range use.Values {
		v = fields.Resolve(v)
		switch {
		case fields.IsNull(v):
		case v.Kind == yaml.MappingNode:
			in.Settings = append(in.Settings, model.Flatten(d.reader, d.file, d.line, nil, v)...)
		case strings.Contains(v.Value, ":") && strings.Contains(v.Value, "\n") && v.Tag != input.UnknownTag:
			r.valuesText(in, d.inside(v))
		case model.UnknownNode(v):
			notRead(d, v, use.Where, "computed")
		case v.Kind == yaml.ScalarNode && v.Value != "":
			data, name, err := r.readRelative(d.file, v.Value)
			if err != nil {
				notRead(d, v, v.Value, inOther)
				continue
			}
			r.asValues[path.Clean(name)] = true
			r.valuesText(in, doc{file: name, data: data})
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
	if e := use.Elsewhere; e != nil && len(e.Content) > 0 {
		notRead(d, e, use.Where, inOther)
	}
	r.report(d, d.reader.Findings)
	r.installation(in, d.file)
}

// inOther says where values are that a file refers to.
const inOther = "in another file or object"

// notRead notes that values are not in the file.
func notRead(d *doc, at *yaml.Node, what, where string) {
	d.reader.Add(input.Skipped, check.Note, at, what, "these values are "+where+"; skipped",
		"lint that file too, or the installed values: helm get values … | gpuop lint -")
}

// parameter adds the setting for a dotted name and its value, as in --set.
func (r *run) parameter(d *doc, in *installation, name, value *yaml.Node, text bool, use *input.ChartUse) {
	if name == nil || value == nil || name.Kind != yaml.ScalarNode || value.Kind == yaml.MappingNode {
		return
	}
	written := value.Value
	if value.Kind == yaml.SequenceNode {
		var items []string
		for _, n := range fields.Items(value) {
			items = append(items, n.Value)
		}
		written = "{" + strings.Join(items, ",") + "}"
	} else if !use.Raw {
		written = strings.NewReplacer(`\`, `\\`, `,`, `\,`).Replace(written)
	}
	list, err := model.Assignments(name.Value+"="+written, !text)
	if err != nil {
		d.reader.Add(model.SetSyntax, check.Error, name, name.Value, err.Error(), "")
		return
	}
	for _, st := range list {
		st.File, st.Line, st.Column = d.file, name.Line+d.line, name.Column
		st.AsText, st.Unknown = use.AsText, model.UnknownNode(value)
	}
	in.Settings = append(in.Settings, list...)
	if model.UnknownNode(value) {
		r.add(d.file, filledIn)
	}
}

// ociVersion returns the image tag of the Flux OCIRepository with this name, or a node with UnknownTag.
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

func (r *run) terraform(name string, data []byte) {
	f := input.ReadTerraform(name, data)
	r.add(name, f.Findings...)
	for _, s := range f.Secrets {
		r.Secrets.Add(s)
	}
	r.tasks(&doc{file: name}, "Terraform", f.Tasks)
	if f.Broken {
		r.unit(name, "", true)
	}
}

// tasks checks the installations, commands and manifests in a file of another tool. what names the kind of the file.
func (r *run) tasks(d *doc, what string, tasks []input.Task) {
	judged, others := false, false
	for _, t := range tasks {
		others = others || t.Use == nil
		switch {
		case t.Use != nil:
			name, _ := input.ChartOf(t.Use.Chart)
			if name == model.OperatorNamespace && operatorOf(t.Use.Chart, t.Use.Repository) == "" {
				judged = true
				r.chartUse(d, t.Use)
			}
		case t.Script != nil:
			r.script(d.file, t.Script.Value, fields.LinesBefore(t.Script)+d.line)
		case t.Object.Kind == yaml.MappingNode:
			inner := *d
			inner.root, inner.reader, inner.written = t.Object, &fields.Reader{}, false
			r.addDocument(&inner)
		default:
			inner := d.inside(t.Object)
			inner.written = d.written
			r.parseYAML(inner)
		}
	}
	if judged {
		what += " with values for gpu-operator"
	} else if !others {
		what += ", not checked"
	}
	r.unit(d.file, what, judged)
}

// rootBeside parses the first of names that exists in the same folder as file. It returns a nil root if none exists.
func (r *run) rootBeside(file string, names ...string) (root *yaml.Node, shown string) {
	for _, name := range names {
		if data, shown, err := r.readRelative(file, name); err == nil {
			var reader fields.Reader
			return reader.Document(data), shown
		}
	}
	return nil, ""
}

var kustomizations = []string{"kustomization.yaml", "kustomization.yml", "Kustomization"}

// isPatch reports whether the Kustomization in the same folder uses the file as a patch.
func (r *run) isPatch(file string) bool {
	root, _ := r.rootBeside(file, kustomizations...)
	patches := fields.Items(fields.Get(root, "patches"))
	patches = append(patches, fields.Items(fields.Get(root, "patchesStrategicMerge"))...)
	return slices.ContainsFunc(patches, func(n *yaml.Node) bool {
		return path.Clean(cmp.Or(fields.Text(n, "path"), n.Value)) == path.Base(file)
	})
}

// otherChart returns the name of another chart that a values file is for, according to the Chart.yaml or Kustomization
// in its folder, or "".
func (r *run) otherChart(file string) string {
	if !strings.HasPrefix(path.Base(file), "values") {
		return ""
	}
	if c := r.chartIn(file, "."); c != nil {
		return c.other
	}
	root, _ := r.rootBeside(file, kustomizations...)
	for _, c := range fields.Items(fields.Get(root, "helmCharts")) {
		name := fields.Text(c, "name")
		if path.Clean(fields.Text(c, "valuesFile")) == path.Base(file) && name != model.OperatorNamespace {
			return name
		}
	}
	return ""
}

// localChart is a chart in a folder, as its Chart.yaml describes it.
type localChart struct {
	file  string // the path of Chart.yaml
	other string // the chart's name if it is neither the operator's nor depends on it
	// version is the version of the operator's chart, or the chart's entry if it has no version. It is nil for others.
	version *yaml.Node
	own     bool   // whether the chart is the operator's
	alias   string // the parent chart's name for the operator's chart, or ""
}

// chartIn reads the Chart.yaml in a folder that is relative to a file. It returns nil if there is none. A chart named
// gpu-operator with an unknown version counts as another chart, except for versions with -devel.
func (r *run) chartIn(from, folder string) *localChart {
	root, file := r.rootBeside(from, path.Join(folder, "Chart.yaml"))
	if root == nil {
		return nil
	}
	out := &localChart{file: file, other: cmp.Or(fields.Text(root, "name"), "without a name")}
	for _, c := range append(fields.Items(fields.Get(root, "dependencies")), root) {
		version := fields.Text(c, "version")
		_, _, err := r.table.Resolve(version)
		isOperator := fields.Text(c, "name") == model.OperatorNamespace
		if isOperator && (c != root || err == nil || strings.Contains(version, "-devel")) {
			version := cmp.Or(fields.Get(c, "version"), c)
			return &localChart{file: file, version: version, own: c == root, alias: fields.Text(c, "alias")}
		}
	}
	return out
}
