package lint

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// A chartUse is one use of a chart inside another tool's file.
type chartUse struct {
	where   string
	chart   string
	version *yaml.Node
	// values are mappings, and texts of values files; names in a list beside them are files.
	values []*yaml.Node
	// parameters are lists of name and value, as --set has them.
	parameters []*yaml.Node
	// sets is a mapping of dotted names to values.
	sets *yaml.Node
	// elsewhere is where more values come from that are not in the file.
	elsewhere *yaml.Node
	// reference is the name of the object that says which release, where another has it.
	reference *yaml.Node
	// misplaced are keys of other tools, and place the key under which values belong.
	misplaced []*yaml.Node
	place     string
	// raw says that the values of parameters have Helm's grammar: commas in them divide.
	raw bool
	// asText is how a parameter says that its value is a text.
	asText string
}

// A carrier is a kind of file of another tool that carries values of charts. Paths are dotted; of several, divided by
// spaces, the first or all count.
type carrier struct {
	kind, group string
	// at lead to a use of a chart, or to a list of such. All other paths begin there, or at the root after a slash.
	at string
	// chart is the chart's name, or another name that tells it.
	chart, version string
	// reference is the name of the object that says which release, where another has it.
	reference string
	// values are mappings, texts and names of files.
	values string
	// parameters are a list of names and values, sets a mapping of dotted names; asText is how one is made a text.
	parameters, sets, asText string
	// elsewhere is where more values come from that are not in the file.
	elsewhere string
	// where is what findings add to the place of the use.
	where string
}

var carriers = []carrier{
	{kind: "HelmRelease", group: "helm.toolkit.fluxcd.io", at: "spec", chart: "chart.spec.chart chartRef.name /metadata.name", version: "chart.spec.version",
		reference: "chartRef.name", values: "values", elsewhere: "valuesFrom", where: ".values"},
	argo("Application", "spec.source spec.sources"),
	argo("ApplicationSet", "spec.template.spec.source spec.template.spec.sources"),
	rancher("HelmChart"),
	rancher("HelmChartConfig"),
	{kind: "HelmChartProxy", group: "addons.cluster.x-k8s.io", at: "spec", chart: "chartName", version: "version", values: "valuesTemplate"},
	sveltos("ClusterProfile"),
	sveltos("Profile"),
	{kind: "Kustomization", group: "kustomize.config.k8s.io", at: "helmCharts", chart: "name", version: "version", values: "valuesFile valuesInline additionalValuesFiles"},
	{kind: helmfile, at: "releases", chart: "chart", version: "version", values: "values", parameters: "set", asText: "write it below setString"},
}

func argo(kind, at string) carrier {
	return carrier{kind: kind, group: "argoproj.io", at: at, chart: "chart path", version: "targetRevision", values: "helm.values helm.valuesObject",
		parameters: "helm.parameters", asText: "write forceString: true", elsewhere: "helm.valueFiles", where: ".helm"}
}

func rancher(kind string) carrier {
	return carrier{kind: kind, group: "helm.cattle.io", at: "spec", chart: "chart /metadata.name", version: "version", values: "valuesContent values", sets: "set",
		asText: "write it below valuesContent, in quotes"}
}

func sveltos(kind string) carrier {
	return carrier{kind: kind, group: "config.projectsveltos.io", at: "spec.helmCharts", chart: "chartName", version: "chartVersion", values: "values", elsewhere: "valuesFrom"}
}

// helmfile is a helmfile.yaml, which has no kind.
const helmfile = "helmfile"

// valueKeys are the names that tools give to values. Under one of another tool nothing reads them.
var valueKeys = []string{"values", "valuesContent", "valuesObject", "valuesTemplate", "valuesInline"}

// nodeAt returns the node at a dotted path.
func nodeAt(n *yaml.Node, path string) *yaml.Node {
	if path == "" {
		return nil
	}
	return fields.Get(n, strings.Split(path, ".")...)
}

// uses are those of charts in a file.
func (c *carrier) uses(root *yaml.Node) []chartUse {
	var out []chartUse
	for place := range strings.FieldsSeq(c.at) {
		n := nodeAt(root, place)
		if n == nil {
			continue
		}
		if n.Kind != yaml.SequenceNode {
			out = append(out, c.use(root, n, place))
			continue
		}
		for i, item := range fields.Items(n) {
			out = append(out, c.use(root, item, fmt.Sprintf("%s[%d]", place, i)))
		}
	}
	return out
}

func (c *carrier) use(root, n *yaml.Node, place string) chartUse {
	use := chartUse{where: place + c.where, version: nodeAt(n, c.version), reference: nodeAt(n, c.reference), sets: nodeAt(n, c.sets), asText: c.asText,
		elsewhere: nodeAt(n, c.elsewhere), parameters: []*yaml.Node{nodeAt(n, c.parameters)}}
	for name := range strings.FieldsSeq(c.chart) {
		from := n
		if strings.HasPrefix(name, "/") {
			from = root
		}
		if found := nodeAt(from, strings.TrimPrefix(name, "/")); use.chart == "" && found != nil && found.Kind == yaml.ScalarNode {
			use.chart = found.Value
		}
	}
	for name := range strings.FieldsSeq(c.values) {
		if v := nodeAt(n, name); v != nil && v.Kind == yaml.SequenceNode {
			use.values = append(use.values, v.Content...)
		} else {
			use.values = append(use.values, v)
		}
	}
	for _, f := range fields.Of(n) {
		if slices.Contains(valueKeys, f.Name) && !slices.Contains(strings.Fields(c.values), f.Name) {
			use.misplaced = append(use.misplaced, f.Key)
			use.place, _, _ = strings.Cut(c.values, " ")
		}
	}
	return use
}

// isCarrier finds the row for a document; nil for what is none.
func isCarrier(root *yaml.Node) *carrier {
	api, k := fields.Text(root, "apiVersion"), fields.Text(root, "kind")
	for i, c := range carriers {
		if k == c.kind && strings.HasPrefix(api, c.group+"/") {
			return &carriers[i]
		}
	}
	releases := fields.Items(fields.Get(root, "releases"))
	if k == "" && len(releases) > 0 && fields.Text(releases[0], "chart") != "" {
		return &carriers[len(carriers)-1]
	}
	return nil
}

// chartOf is the chart that a reference names: nvidia/gpu-operator, an OCI address, a folder, an archive.
func chartOf(reference string) string {
	return strings.TrimSuffix(chartFile.ReplaceAllString(path.Base(strings.TrimSuffix(reference, "/")), ""), ".tgz")
}

// carrier judges the values for the operator's or the device plugin's chart; false says that there are none.
func (r *run) carrier(d *doc, uses []chartUse) bool {
	found := false
	for _, use := range uses {
		switch chartOf(use.chart) {
		case operatorNamespace:
			found = true
			r.carried(d, use)
		case pluginChartName:
			found = true
			for _, v := range use.values {
				if v = fields.Resolve(v); v != nil && v.Kind == yaml.MappingNode {
					inner := *d
					inner.root, inner.where = v, use.where
					r.pluginValues(&inner)
				}
			}
		}
	}
	return found
}

// carried judges one use of the operator's chart.
func (r *run) carried(d *doc, use chartUse) {
	for _, key := range use.misplaced {
		d.reader.Add("unknown-key", report.Failed, key, key.Value, "there is no such field here: nothing reads the values below it", "write "+use.place)
	}
	in := &installation{table: r.table, version: r.carriedVersion(d, use)}
	for _, v := range use.values {
		v = fields.Resolve(v)
		switch {
		case fields.IsNull(v):
		case v.Tag == unknownTag:
			r.notRead(d, v, use.where)
		case v.Kind == yaml.MappingNode:
			in.settings = append(in.settings, flatten(d.reader, d.file, d.line, nil, v)...)
		case v.Kind == yaml.ScalarNode && strings.Contains(v.Value, ":") && strings.Contains(v.Value, "\n"):
			r.valuesText(in, d.file, use.where, []byte(v.Value), linesBefore(v)+d.line)
		case v.Kind == yaml.ScalarNode && v.Value != "":
			r.carriedFile(d, in, use.where, v)
		}
	}
	for _, list := range use.parameters {
		for _, p := range fields.Items(list) {
			if name := fields.Get(p, "name"); name != nil {
				r.parameter(d, in, name, fields.Get(p, "value"), fields.Text(p, "forceString") == "true" || fields.Text(p, "type") == "string", use)
			}
		}
	}
	for _, f := range fields.Of(use.sets) {
		r.parameter(d, in, f.Key, f.Value, false, use)
	}
	if e := fields.Resolve(use.elsewhere); e != nil && len(e.Content) > 0 {
		r.notRead(d, e, use.where)
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
	if err != nil || unknownNode(n) {
		what := n.Value
		if unknownNode(n) {
			what = where
		}
		r.notRead(d, n, what)
		return
	}
	r.valuesText(in, name, "", data, 0)
}

// parameter reads a dotted name with a value, as --set has it.
func (r *run) parameter(d *doc, in *installation, name, value *yaml.Node, text bool, use chartUse) {
	if name == nil || value == nil || value.Kind == yaml.MappingNode {
		return
	}
	written, raw := value.Value, use.raw
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
	list, err := parseSet(name.Value+"="+written, !text)
	if err != nil {
		r.report(d, []report.Row{{ID: "set-syntax", State: report.Failed, Line: name.Line, Column: name.Column, Subject: name.Value, Reason: err.Error(), Source: sourceHelm}})
		return
	}
	for _, a := range list {
		in.settings = append(in.settings, &setting{Setting: chart.Setting{Path: a.path, Value: a.value}, element: a.element, file: d.file, line: name.Line + d.line, column: name.Column, source: a.text, typed: !text, asText: use.asText,
			unknown: unknownNode(value)})
		if unknownNode(value) {
			r.report(d, []report.Row{{ID: "not-judged", State: report.Note, Line: name.Line, Column: name.Column, Subject: name.Value, Reason: filledIn}})
		}
	}
}

// carriedVersion is the release that the file installs, or that the user wants judged.
func (r *run) carriedVersion(d *doc, use chartUse) chart.Version {
	if use.reference != nil && use.version == nil && r.version == (chart.Version{}) {
		use.version = r.ociVersion(use.reference)
	}
	if r.version != (chart.Version{}) || use.version == nil || use.version.Kind != yaml.ScalarNode {
		return r.orLatest()
	}
	r.name = d.file
	at := word{value: use.version.Value, line: use.version.Line + d.line, col: use.version.Column}
	unknown := unknownNode(use.version)
	subject := at.value
	if strings.Contains(subject, filled) {
		subject = use.where
	}
	v, err := r.resolve(at, unknown, subject)
	if err != nil {
		r.at(at, "not-judged", report.Note, subject, "no one release of the chart; judged as "+v.String(), "name a release with gpuop's --version", "")
	}
	return v
}

// ociVersion is the tag of Flux's OCIRepository of this name in the inputs; else it is not known.
func (r *run) ociVersion(name *yaml.Node) *yaml.Node {
	out := *name
	out.Tag = unknownTag
	for _, d := range r.documents {
		if fields.Text(d.root, "kind") == "OCIRepository" && fields.Text(d.root, "metadata", "name") == name.Value {
			if tag := fields.Get(d.root, "spec", "ref", "tag"); tag != nil {
				out.Tag, out.Value = tag.Tag, tag.Value
			}
		}
	}
	return &out
}
