package lint

import (
	"fmt"
	"path"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/finding"
)

// A chartUse is one use of a chart inside a file of another tool: which chart, which release and
// the values.
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
	// raw says that the values of parameters have Helm's grammar: commas in them divide.
	raw bool
	// asText is how a parameter says that its value is a text.
	asText string
}

// carriers are the files of other tools that carry values of charts, by kind and by the group of
// their API.
var carriers = []struct {
	kind, group string
	uses        func(root *yaml.Node) []chartUse
}{
	{"HelmRelease", "helm.toolkit.fluxcd.io", fluxUses},
	{"Application", "argoproj.io", func(root *yaml.Node) []chartUse { return argoUses(fields.Get(root, "spec"), "spec") }},
	{"ApplicationSet", "argoproj.io", func(root *yaml.Node) []chartUse {
		return argoUses(fields.Get(root, "spec", "template", "spec"), "spec.template.spec")
	}},
	{"HelmChart", "helm.cattle.io", rancherUses},
	{"HelmChartConfig", "helm.cattle.io", rancherUses},
	{"HelmChartProxy", "addons.cluster.x-k8s.io", clusterAPIUses},
	{"ClusterProfile", "config.projectsveltos.io", sveltosUses},
	{"Profile", "config.projectsveltos.io", sveltosUses},
	{"Kustomization", "kustomize.config.k8s.io", kustomizeUses},
}

// helmfile is a helmfile.yaml, which has no kind.
const helmfile = "helmfile"

func fluxUses(root *yaml.Node) []chartUse {
	name := fields.Text(root, "spec", "chart", "spec", "chart")
	if name == "" {
		name = fields.Text(root, "spec", "chartRef", "name")
	}
	if name == "" {
		name = fields.Text(root, "metadata", "name")
	}
	return []chartUse{{where: "spec.values", chart: name, version: fields.Get(root, "spec", "chart", "spec", "version"),
		values: []*yaml.Node{fields.Get(root, "spec", "values")}, elsewhere: fields.Get(root, "spec", "valuesFrom"), reference: fields.Get(root, "spec", "chartRef", "name")}}
}

func argoUses(spec *yaml.Node, where string) []chartUse {
	sources := []*yaml.Node{fields.Get(spec, "source")}
	names := []string{where + ".source"}
	if list := fields.Get(spec, "sources"); list != nil && list.Kind == yaml.SequenceNode {
		for i, s := range list.Content {
			sources, names = append(sources, s), append(names, fmt.Sprintf("%s.sources[%d]", where, i))
		}
	}
	var out []chartUse
	for i, s := range sources {
		if s == nil {
			continue
		}
		name := fields.Text(s, "chart")
		if name == "" {
			name = path.Base(fields.Text(s, "path"))
		}
		out = append(out, chartUse{where: names[i] + ".helm", chart: name, version: fields.Get(s, "targetRevision"),
			values: []*yaml.Node{fields.Get(s, "helm", "values"), fields.Get(s, "helm", "valuesObject")}, parameters: []*yaml.Node{fields.Get(s, "helm", "parameters")}, asText: "write forceString: true",
			elsewhere: fields.Get(s, "helm", "valueFiles")})
	}
	return out
}

func rancherUses(root *yaml.Node) []chartUse {
	name := fields.Text(root, "spec", "chart")
	if name == "" {
		name = fields.Text(root, "metadata", "name")
	}
	return []chartUse{{where: "spec", chart: name, version: fields.Get(root, "spec", "version"),
		values: []*yaml.Node{fields.Get(root, "spec", "valuesContent")}, sets: fields.Get(root, "spec", "set"), asText: "write it below valuesContent, in quotes"}}
}

func clusterAPIUses(root *yaml.Node) []chartUse {
	return []chartUse{{where: "spec", chart: fields.Text(root, "spec", "chartName"), version: fields.Get(root, "spec", "version"), values: []*yaml.Node{fields.Get(root, "spec", "valuesTemplate")}}}
}

func sveltosUses(root *yaml.Node) []chartUse {
	var out []chartUse
	for i, c := range fields.Items(fields.Get(root, "spec", "helmCharts")) {
		out = append(out, chartUse{where: fmt.Sprintf("spec.helmCharts[%d]", i), chart: fields.Text(c, "chartName"), version: fields.Get(c, "chartVersion"), values: []*yaml.Node{fields.Get(c, "values")},
			elsewhere: fields.Get(c, "valuesFrom")})
	}
	return out
}

func kustomizeUses(root *yaml.Node) []chartUse {
	var out []chartUse
	for i, c := range fields.Items(fields.Get(root, "helmCharts")) {
		use := chartUse{where: fmt.Sprintf("helmCharts[%d]", i), chart: fields.Text(c, "name"), version: fields.Get(c, "version"), values: []*yaml.Node{fields.Get(c, "valuesFile"), fields.Get(c, "valuesInline")}}
		out = append(out, use.withFiles(fields.Get(c, "additionalValuesFiles")))
	}
	return out
}

// withFiles adds the names of files of values.
func (use chartUse) withFiles(list *yaml.Node) chartUse {
	use.values = append(use.values, fields.Items(list)...)
	return use
}

func helmfileUses(root *yaml.Node) []chartUse {
	list := fields.Get(root, "releases")
	if list == nil || list.Kind != yaml.SequenceNode {
		return nil
	}
	var out []chartUse
	for i, r := range list.Content {
		use := chartUse{where: fmt.Sprintf("releases[%d]", i), chart: fields.Text(r, "chart"), version: fields.Get(r, "version"), parameters: []*yaml.Node{fields.Get(r, "set")}, asText: "write it below setString"}
		if values := fields.Get(r, "values"); values != nil && values.Kind == yaml.SequenceNode {
			use.values = values.Content
		}
		out = append(out, use)
	}
	return out
}

// isCarrier finds the row for a document; nil for what is none.
func isCarrier(root *yaml.Node) func(*yaml.Node) []chartUse {
	api, k := fields.Text(root, "apiVersion"), fields.Text(root, "kind")
	for _, c := range carriers {
		if k == c.kind && strings.HasPrefix(api, c.group+"/") {
			return c.uses
		}
	}
	releases := fields.Get(root, "releases")
	if k == "" && releases != nil && releases.Kind == yaml.SequenceNode && len(releases.Content) > 0 && fields.Text(releases.Content[0], "chart") != "" {
		return helmfileUses
	}
	return nil
}

// chartOf is the chart that a reference names: nvidia/gpu-operator, an OCI address, a folder or an
// archive.
func chartOf(reference string) string {
	return strings.TrimSuffix(chartFile.ReplaceAllString(path.Base(strings.TrimSuffix(reference, "/")), ""), ".tgz")
}

// carrier judges the values that a file of another tool carries for the operator's chart or the
// device plugin's; false says that it carries none.
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
	in := &installation{table: r.table, version: r.carriedVersion(d, use)}
	for _, v := range use.values {
		v = fields.Resolve(v)
		switch {
		case v == nil:
		case v.Tag == unknownTag:
			r.notRead(d, v, use.where)
		case v.Kind == yaml.MappingNode:
			flat := &flattener{reader: d.reader, file: d.file, shift: d.line}
			flat.walk(nil, v, v)
			in.settings = append(in.settings, flat.settings...)
		case v.Kind == yaml.ScalarNode && strings.Contains(v.Value, ":") && strings.Contains(v.Value, "\n"):
			r.carriedText(d, in, use.where, v)
		case v.Kind == yaml.ScalarNode && v.Value != "":
			r.carriedFile(d, in, use.where, v)
		}
	}
	for _, list := range use.parameters {
		if list = fields.Resolve(list); list == nil || list.Kind != yaml.SequenceNode {
			continue
		}
		for _, p := range list.Content {
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
	in.judge()
	r.name = d.file
	r.tolerations(in)
	r.addMistakes(in)
	r.embeddedData(in)
}

func (r *run) notRead(d *doc, at *yaml.Node, what string) {
	r.report(d, []finding.Finding{{ID: "not-judged", Line: at.Line, Column: at.Column, Subject: what, Reason: "these values are in another file or object, so they are not judged", Fix: "lint that file too"}})
}

// carriedText reads a values file that is a text inside another file.
func (r *run) carriedText(d *doc, in *installation, where string, n *yaml.Node) {
	line := n.Line + d.line
	if n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) == 0 {
		line--
	}
	reader := &fields.Reader{}
	if root := reader.Document([]byte(n.Value)); root != nil {
		flat := &flattener{reader: reader, file: d.file, shift: line}
		flat.walk(nil, root, root)
		in.settings = append(in.settings, flat.settings...)
	}
	for _, f := range reader.Findings {
		f.File = d.file
		if f.Subject == "" {
			f.Subject = where
		}
		if f.Line += line; f.Line == line {
			f.Line++
		}
		r.findings = append(r.findings, f)
	}
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
	reader := &fields.Reader{}
	if root := reader.Document(trimBOM(data)); root != nil {
		flat := &flattener{reader: reader, file: name}
		flat.walk(nil, root, root)
		in.settings = append(in.settings, flat.settings...)
	}
	for _, f := range reader.Findings {
		f.File = name
		r.findings = append(r.findings, f)
	}
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
		r.report(d, []finding.Finding{{ID: "set-syntax", Severity: finding.Error, Line: name.Line, Column: name.Column, Subject: name.Value, Reason: err.Error(), Source: sourceHelm}})
		return
	}
	for _, a := range list {
		in.settings = append(in.settings, &setting{Setting: chart.Setting{Path: a.path, Value: a.value}, element: a.element, file: d.file, line: name.Line + d.line, column: name.Column, source: a.text, typed: !text, asText: use.asText,
			unknown: unknownNode(value)})
		if unknownNode(value) {
			r.report(d, []finding.Finding{{ID: "not-judged", Line: name.Line, Column: name.Column, Subject: name.Value, Reason: filledIn}})
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
	requested := use.version.Value
	at := word{line: use.version.Line + d.line, col: use.version.Column}
	r.name = d.file
	v, exact, err := r.table.Resolve(requested)
	if err != nil {
		if newest, ok := r.table.Newest(requested); ok && !unknownNode(use.version) {
			r.report(d, []finding.Finding{{ID: "not-judged", Line: use.version.Line, Column: use.version.Column, Subject: requested, Reason: ofRange(newest), Fix: "name a release"}})
			return newest
		}
		reason := "no one release of the chart; judged as "
		if unknownNode(use.version) {
			reason = "which release this is is not known here; judged as "
		}
		if strings.Contains(requested, filled) {
			requested = use.where
		}
		r.report(d, []finding.Finding{{ID: "not-judged", Line: use.version.Line, Column: use.version.Column, Subject: requested,
			Reason: reason + r.table.Latest().String(), Fix: "name a release with gpuop's --version"}})
		return r.table.Latest()
	}
	if !exact {
		r.findings = append(r.findings, r.otherRelease(requested, v, at))
	}
	return v
}

// ociVersion is the tag of Flux's OCIRepository of this name, where one of the inputs has it; else
// it is not known.
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
