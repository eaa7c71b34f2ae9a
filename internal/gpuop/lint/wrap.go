package lint

import (
	"fmt"
	"path"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpuop/finding"
)

// A chartUse is one use of a chart inside a file of another tool: which chart, which release and the values.
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
}

// carriers are the files of other tools that carry values of charts, by kind and by the group of their API.
var carriers = []struct {
	kind, group string
	uses        func(root *yaml.Node) []chartUse
}{
	{"HelmRelease", "helm.toolkit.fluxcd.io", fluxUses},
	{"Application", "argoproj.io", func(root *yaml.Node) []chartUse { return argoUses(get(root, "spec"), "spec") }},
	{"ApplicationSet", "argoproj.io", func(root *yaml.Node) []chartUse {
		return argoUses(get(root, "spec", "template", "spec"), "spec.template.spec")
	}},
	{"HelmChart", "helm.cattle.io", rancherUses},
	{"HelmChartConfig", "helm.cattle.io", rancherUses},
}

// helmfile is a helmfile.yaml, which has no kind.
const helmfile = "helmfile"

func fluxUses(root *yaml.Node) []chartUse {
	name := str(root, "spec", "chart", "spec", "chart")
	if name == "" {
		name = str(root, "spec", "chartRef", "name")
	}
	if name == "" {
		name = str(root, "metadata", "name")
	}
	return []chartUse{{where: "spec.values", chart: name, version: get(root, "spec", "chart", "spec", "version"),
		values: []*yaml.Node{get(root, "spec", "values")}, elsewhere: get(root, "spec", "valuesFrom")}}
}

func argoUses(spec *yaml.Node, where string) []chartUse {
	sources := []*yaml.Node{get(spec, "source")}
	names := []string{where + ".source"}
	if list := get(spec, "sources"); list != nil && list.Kind == yaml.SequenceNode {
		for i, s := range list.Content {
			sources, names = append(sources, s), append(names, fmt.Sprintf("%s.sources[%d]", where, i))
		}
	}
	var out []chartUse
	for i, s := range sources {
		if s == nil {
			continue
		}
		name := str(s, "chart")
		if name == "" {
			name = path.Base(str(s, "path"))
		}
		out = append(out, chartUse{where: names[i] + ".helm", chart: name, version: get(s, "targetRevision"),
			values: []*yaml.Node{get(s, "helm", "values"), get(s, "helm", "valuesObject")}, parameters: []*yaml.Node{get(s, "helm", "parameters")},
			elsewhere: get(s, "helm", "valueFiles")})
	}
	return out
}

func rancherUses(root *yaml.Node) []chartUse {
	name := str(root, "spec", "chart")
	if name == "" {
		name = str(root, "metadata", "name")
	}
	return []chartUse{{where: "spec", chart: name, version: get(root, "spec", "version"),
		values: []*yaml.Node{get(root, "spec", "valuesContent")}, sets: get(root, "spec", "set")}}
}

func helmfileUses(root *yaml.Node) []chartUse {
	list := get(root, "releases")
	if list == nil || list.Kind != yaml.SequenceNode {
		return nil
	}
	var out []chartUse
	for i, r := range list.Content {
		use := chartUse{where: fmt.Sprintf("releases[%d]", i), chart: str(r, "chart"), version: get(r, "version"), parameters: []*yaml.Node{get(r, "set")}}
		if values := get(r, "values"); values != nil && values.Kind == yaml.SequenceNode {
			use.values = values.Content
		}
		out = append(out, use)
	}
	return out
}

// isCarrier finds the row for a document; nil for what is none.
func isCarrier(root *yaml.Node) func(*yaml.Node) []chartUse {
	api, k := str(root, "apiVersion"), str(root, "kind")
	for _, c := range carriers {
		if k == c.kind && strings.HasPrefix(api, c.group+"/") {
			return c.uses
		}
	}
	releases := get(root, "releases")
	if k == "" && releases != nil && releases.Kind == yaml.SequenceNode && len(releases.Content) > 0 && str(releases.Content[0], "chart") != "" {
		return helmfileUses
	}
	return nil
}

// chartOf is the chart that a reference names: nvidia/gpu-operator, an OCI address, a folder or an archive.
func chartOf(reference string) string {
	return strings.TrimSuffix(chartFile.ReplaceAllString(path.Base(strings.TrimSuffix(reference, "/")), ""), ".tgz")
}

// carrier judges the values that a file of another tool carries for the operator's chart or the device plugin's; false
// says that it carries none.
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
		case v.Kind == yaml.MappingNode:
			flat := &flattener{reader: d.reader, file: d.file, shift: d.line}
			flat.walk(nil, v, v)
			in.settings = append(in.settings, flat.settings...)
		case v.Kind == yaml.ScalarNode && strings.Contains(v.Value, ":") && strings.Contains(v.Value, "\n"):
			r.carriedText(d, in, use.where, v)
		case v.Kind == yaml.ScalarNode && v.Value != "":
			r.notRead(d, v, v.Value)
		}
	}
	for _, list := range use.parameters {
		if list = fields.Resolve(list); list == nil || list.Kind != yaml.SequenceNode {
			continue
		}
		for _, p := range list.Content {
			if name := get(p, "name"); name != nil {
				r.parameter(d, in, name, get(p, "value"), str(p, "forceString") == "true")
			}
		}
	}
	for _, f := range plain(use.sets) {
		r.parameter(d, in, f.Key, f.Value, false)
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

// parameter reads a dotted name with a value, as --set has it.
func (r *run) parameter(d *doc, in *installation, name, value *yaml.Node, text bool) {
	if name == nil || value == nil || value.Kind != yaml.ScalarNode {
		return
	}
	list, err := parseSet(name.Value+"="+strings.NewReplacer(`\`, `\\`, `,`, `\,`).Replace(value.Value), !text)
	if err != nil {
		r.report(d, []finding.Finding{{ID: "set-syntax", Severity: finding.Error, Line: name.Line, Column: name.Column, Subject: name.Value, Reason: err.Error(), Source: sourceHelm}})
		return
	}
	for _, a := range list {
		in.settings = append(in.settings, &setting{path: a.path, element: a.element, value: a.value, file: d.file, line: name.Line + d.line, column: name.Column, source: a.text, typed: !text,
			unknown: substituted.MatchString(value.Value)})
	}
}

// carriedVersion is the release that the file installs, or that the user asks to judge for.
func (r *run) carriedVersion(d *doc, use chartUse) chart.Version {
	if r.version != (chart.Version{}) || use.version == nil || use.version.Kind != yaml.ScalarNode {
		return r.orLatest()
	}
	asked := use.version.Value
	at := word{line: use.version.Line + d.line, col: use.version.Column}
	r.name = d.file
	v, exact, err := r.table.Resolve(asked)
	if err != nil {
		r.report(d, []finding.Finding{{ID: "not-judged", Line: use.version.Line, Column: use.version.Column, Subject: asked,
			Reason: "no one release of the chart; judged as " + r.table.Latest().String(), Fix: "name a release with gpuop's --version"}})
		return r.table.Latest()
	}
	if !exact {
		r.findings = append(r.findings, r.otherRelease(asked, v, at))
	}
	return v
}
