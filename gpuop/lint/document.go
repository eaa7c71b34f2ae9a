package lint

import (
	"bytes"
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/input"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/mig"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/node"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/sharing"
)

// A doc is one YAML document that could be parsed.
type doc struct {
	file   string
	data   []byte
	line   int // lines before the document in its file
	root   *yaml.Node
	kind   kind
	reader *fields.Reader
	// where names the place inside the file: the key of a ConfigMap.
	where string
	// route is how a device plugin config reaches the plugin.
	route sharing.Route
	// written says that a script writes the document to a file, which may be for any program.
	written bool
	// found says that the document is in a file of a folder.
	found bool
	// partial says that the document is a patch, which may lack required fields.
	partial bool
}

// A kind is what a document was taken for.
type kind string

// The kinds of documents.
const (
	kindValues        kind = "chart values"
	kindClusterPolicy kind = "ClusterPolicy"
	kindNVIDIADriver  kind = "NVIDIADriver"
	kindGPUCluster    kind = "GPUCluster"
	kindPlugin        kind = "device plugin config"
	kindMIG           kind = "mig-parted config"
	kindConfigMap     kind = "ConfigMap"
	kindPod           kind = "pod"
	kindNode          kind = "node"
	kindList          kind = "list"
	kindOther         kind = "other manifest"
	kindCarrier       kind = "values inside another tool's file"
	kindUmbrella      kind = "umbrella chart values"
	kindPluginValues  kind = "nvidia-device-plugin values"
	kindUnknown       kind = ""
)

var separator = regexp.MustCompile(`(?m)^---([ \t].*)?$`)

// parse reads the documents of a text. What is no YAML is reported here, and judged no further.
func (r *run) parse(t text) {
	data := bytes.ReplaceAll(model.TrimBOM(t.data), []byte("\r\n"), []byte("\n"))
	data = helmHeading.ReplaceAll(data, []byte("#"))
	if n, ok := node.Described(data); ok {
		r.kinds = append(r.kinds, string(kindNode)+" (kubectl describe)")
		r.judged++
		r.taints = append(r.taints, n.Taints...)
		r.node(n, t.name, t.line)
		return
	}
	if strings.HasSuffix(t.name, ".tf") || terraformResource.Match(data) {
		r.terraform(t.name, data)
		return
	}
	r.parseYAML(t, data)
}

// terraformResource begins a block of a Terraform file whose name does not end in .tf.
var terraformResource = regexp.MustCompile(`(?m)^resource\s+"(helm_release|kubernetes_manifest|kubectl_manifest)"\s+"[^"]*"\s*\{`)

// parseYAML reads the documents of a text that has line feeds alone at its line ends.
func (r *run) parseYAML(t text, data []byte) {
	data, template := input.Untemplated(data)
	if template {
		r.templates[t.name] = true
	}
	start, line := 0, t.line
	bounds := append(separator.FindAllIndex(data, -1), []int{len(data), len(data)})
	documents := 0
	for _, b := range bounds {
		part := data[start:b[0]]
		if len(bytes.TrimSpace(model.StripComments(part))) > 0 {
			r.parseOne(t, part, line)
			documents++
		}
		line += bytes.Count(data[start:b[1]], []byte("\n"))
		start = b[1]
	}
	if documents == 0 && !template && !t.written {
		r.findings = append(r.findings, report.Row{ID: "empty", State: report.Warning, File: t.name, Reason: "the file is empty", Source: "YAML 1.2"})
	}
}

// helmHeading is the line that helm get values puts above the values.
var helmHeading = regexp.MustCompile(`^(USER-SUPPLIED|COMPUTED) VALUES:[ \t]*`)

func (r *run) parseOne(t text, data []byte, line int) {
	d := doc{file: t.name, data: data, line: line, route: cmp.Or(t.route, sharing.Operator), reader: &fields.Reader{}}
	d.root = d.reader.Document(data)
	d.written, d.found = t.written, t.found
	if d.root != nil {
		r.addDocument(d)
		return
	}
	if d.reader.Findings[0].ID == fields.RuleType {
		if tasks := input.Tasks(data); tasks != nil {
			d.reader.Findings = nil
			r.tasks(&d, tasks)
			return
		}
	}
	noYAML := d.reader.Findings[0].ID == fields.RuleSyntax || d.reader.Findings[0].ID == fields.RuleEllipsis
	switch {
	case r.templates[t.name]:
		r.notRendered(t.name)
	case d.reader.Findings[0].ID == "wrong-type" && !t.written: // no mapping of keys: nothing of ours
		d.root = &yaml.Node{Line: 1}
		r.documents = append(r.documents, d)
	case t.written && (!noYAML || !configText.Match(data)):
	case noYAML && !slices.Contains(dataFiles, path.Ext(t.name)):
		r.findings = append(r.findings, report.Row{ID: "not-judged", State: report.Note, File: t.name,
			Reason: "no YAML, JSON, shell script or Terraform, so it is not judged", Fix: "judge what it makes: … | gpuop lint -"})
	default:
		if noYAML {
			r.judged++ // that it is no YAML
		}
		r.report(&d, d.reader.Findings)
	}
}

// dataFiles are the endings of names under which a text that is no YAML is a mistake, and not of another language.
var dataFiles = []string{"", ".yaml", ".yml", ".json", ".txt"}

func (r *run) addDocument(d doc) {
	d.kind = detect(r.table, d.root)
	if d.kind == kindList {
		for _, item := range fields.Items(fields.Get(d.root, "items")) {
			if item.Kind == yaml.MappingNode && len(r.documents) < model.MaxNodes {
				inner := d
				inner.root, inner.reader = item, &fields.Reader{}
				r.addDocument(inner)
			}
		}
		return
	}
	if d.kind == kindNode {
		r.taints = append(r.taints, node.Object(d.root).Taints...)
	}
	r.documents = append(r.documents, d)
}

// ownKinds are the kinds of the operator's resources. Kyverno has a ClusterPolicy, too.
var ownKinds = []string{string(kindClusterPolicy), string(kindNVIDIADriver), "NvidiaDriver", string(kindGPUCluster)}

// ofOthers reports whether a resource is of an API group that is no slip for the operator's.
func ofOthers(api string) bool {
	const own = "nvidia.com"
	group, _, found := strings.Cut(api, "/")
	return found && group != own && report.Nearest(group, []string{own}) == ""
}

// detect finds out what a document is.
func detect(t *chart.Table, root *yaml.Node) kind {
	api, k := fields.Text(root, "apiVersion"), fields.Text(root, "kind")
	switch {
	case ofOthers(api) && slices.Contains(ownKinds, k):
		return kindOther
	case k == "ClusterPolicy":
		return kindClusterPolicy
	case k == "NVIDIADriver" || k == "NvidiaDriver":
		return kindNVIDIADriver
	case k == "GPUCluster":
		return kindGPUCluster
	case k == "ConfigMap":
		return kindConfigMap
	case k == "Node":
		return kindNode
	case strings.HasSuffix(k, "List") || k == "List":
		return kindList
	case input.CarrierOf(root) != nil:
		return kindCarrier
	case k == "Pod" || api != "" && len(podSpecs(root)) > 0:
		return kindPod
	case api != "" && k != "":
		return kindOther
	case fields.Get(root, "mig-configs") != nil:
		return kindMIG
	case fields.Get(root, "vgpu-configs") != nil, fields.Get(root, "systemd-services") != nil:
		return kindOther // files of the vGPU device manager and of mig-parted's hooks
	case isPluginValues(t, root):
		return kindPluginValues
	}
	if umbrella(t, root) != nil {
		return kindUmbrella
	}
	if len(root.Content) == 0 {
		return kindValues // a values file that leaves everything to the chart
	}
	plugin, values, others := 0, 0, 0
	for _, f := range fields.Of(root) {
		switch f.Name {
		case model.OperatorNamespace:
			continue
		case "mig_configs", "migConfigs", "mig-config":
			return kindMIG
		case "sharing", "flags", "imex", "shared":
			plugin++
		case "version":
			if f.Value.Value == "v1" {
				plugin++
			}
		}
		switch component := t.Component(f.Name); {
		case component == "":
			others++
		case component == f.Name && !slices.Contains(everywhere, f.Name), hasKeyOf(t, component, f.Value):
			values += 2
		default:
			values++
		}
	}
	switch {
	case plugin > values:
		return kindPlugin
	case values > max(others, 1):
		return kindValues
	}
	return kindUnknown
}

// hasKeyOf reports whether a group has a key that the chart has below the component.
func hasKeyOf(t *chart.Table, component string, group *yaml.Node) bool {
	return slices.ContainsFunc(fields.Of(group), func(f fields.Field) bool {
		status := t.Judge(t.Latest(), chart.Path{component, f.Name}).Status
		return status == chart.Known || status == chart.Group || status == chart.Gone
	})
}

// umbrella returns the values that a chart around the operator's has below its name, also where a wrapper of the same
// name stands between. Names of which none is the chart's are no values: a list of versions is none.
func umbrella(t *chart.Table, root *yaml.Node) *yaml.Node {
	inner := fields.Get(root, model.OperatorNamespace)
	if wrapped := fields.Get(inner, model.OperatorNamespace); wrapped != nil {
		inner = wrapped
	}
	known := func(f fields.Field) bool { return f.Name == "enabled" || t.Component(f.Name) != "" }
	if list := fields.Of(inner); inner != nil && inner.Kind == yaml.MappingNode && (len(list) == 0 || slices.ContainsFunc(list, known)) {
		return inner
	}
	return nil
}

// everywhere are keys at the top of the operator's values that many other charts have, too.
var everywhere = []string{"nameOverride", "fullnameOverride", "operator", "extraObjects"}

// report adds findings about a document: lines become the file's.
func (r *run) report(d *doc, findings []report.Row) {
	var lines [][]byte
	if len(findings) > 0 && bytes.ContainsRune(d.data, '$') {
		lines = bytes.Split(d.data, []byte("\n"))
	}
	for _, f := range findings {
		valueFilledIn(&f, lines)
		f.File = d.file
		if f.Line > 0 {
			f.Line += d.line
		} else if d.line > 0 {
			f.Line = d.line + 1
		}
		if f.Subject != "" && d.where != "" {
			f.Subject = d.where + ": " + f.Subject
		}
		r.findings = append(r.findings, f)
	}
}

// document judges one document.
func (r *run) document(d doc) {
	name := string(d.kind)
	if d.where != "" {
		name += " in " + d.where
	}
	before := r.judged
	switch d.kind {
	case kindCarrier:
		carrier := cmp.Or(fields.Text(d.root, "kind"), input.Helmfile)
		name = carrier + " with values for gpu-operator"
		if !r.carrier(&d, input.CarrierOf(d.root).Uses(d.root)) {
			name = carrier + ", not judged"
		}
		if r.patches(&d); r.judged > before {
			name = strings.TrimSuffix(name, ", not judged")
		}
	case kindUmbrella:
		inner := d
		inner.root = model.WithoutEnabled(umbrella(r.table, d.root))
		v, of := r.valuesVersion(d.file)
		r.valuesDocument(&inner, v, of)
		name += of
	case kindPluginValues:
		if r.pluginValues(&d); r.judged == before {
			name += ", not judged"
		}
	case kindValues:
		v, of := r.valuesVersion(d.file)
		r.valuesDocument(&d, v, of)
		name += of
	case kindClusterPolicy, kindNVIDIADriver, kindGPUCluster:
		r.resource(&d)
	case kindPlugin:
		r.report(&d, pluginFindings(d.data, d.route))
	case kindMIG:
		_, findings := mig.ParseConfig(d.data)
		r.report(&d, findings)
	case kindConfigMap:
		r.configMap(&d)
		if r.judged == before {
			name += ", not judged"
		}
	case kindPod:
		r.report(&d, pods(d.root, r.taints))
	case kindNode:
		r.node(node.Object(d.root), d.file, d.line)
	case kindOther:
		name = cmp.Or(fields.Text(d.root, "kind"), "config of another manager") + ", not judged"
	case kindUnknown:
		if d.written {
			return
		}
		name = "unknown"
		if d.found {
			break
		}
		r.report(&d, []report.Row{{
			ID: "unknown-kind", State: report.Note, Line: d.root.Line,
			Reason: "unknown kind of document: no chart values, custom resource, device plugin config, mig-parted config, ConfigMap, node or pod",
			Fix:    "see gpuop lint --help for what it reads", Source: "gpuop",
		}})
	}
	if r.judged == before && slices.Contains(wholeKinds, d.kind) {
		r.judged++
	}
	r.kinds = append(r.kinds, name)
}

// wholeKinds are the kinds of which every document is judged.
var wholeKinds = []kind{kindClusterPolicy, kindNVIDIADriver, kindGPUCluster, kindPlugin, kindMIG, kindPod, kindNode}

// valuesVersion is the release that a values file is for, and how the list of what was judged names it: the release that
// the user names, and else that of the chart in whose folder the file is, or that this chart depends on. Without either
// it is assumed.
func (r *run) valuesVersion(file string) (v chart.Version, named string) {
	v, named = r.orLatest(), r.assumed()
	if c := r.operatorIn(file, "."); c != nil && r.version == (chart.Version{}) {
		v, named = r.ofChart(c)
	}
	return v, " for gpu-operator " + v.String() + named
}

// valuesDocument judges a values file with the --set flags on top.
func (r *run) valuesDocument(d *doc, v chart.Version, of string) {
	in := newInstallation(r.table, v, model.Flatten(d.reader, d.file, d.line, nil, d.root))
	in.assumed = strings.HasSuffix(of, releaseAssumed)
	r.report(d, d.reader.Findings)
	r.name = d.file
	r.addSets(in)
	r.installation(in)
}

// embeddedData judges the configs inside devicePlugin.config.data and migManager.config.data.
func (r *run) embeddedData(in *installation) {
	for _, c := range []string{"devicePlugin.config.data", "migManager.config.data"} {
		for _, s := range in.Below(c) {
			key := s.Path[len(s.Path)-1]
			if _, isText := s.Value.(string); !isText || s.Node == nil {
				continue
			}
			if c == "migManager.config.data" && key != "config.yaml" {
				r.findings = append(r.findings, report.Row{ID: "config-map", State: report.Failed, File: s.File, Line: s.Line, Column: s.Column,
					Subject: s.Name(), Reason: fmt.Sprintf(notRead, key), Fix: "write config.yaml", Source: sourceValues})
			}
			r.embedded(s.File, s.Name(), s.Node, s.Shift, sharing.Operator)
		}
	}
}

const notRead = "the MIG manager reads the key config.yaml of its ConfigMap, found %q"

// linesBefore counts the lines above the text of a scalar.
func linesBefore(n *yaml.Node) int {
	if n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) == 0 {
		return n.Line - 1
	}
	return n.Line
}

// embedded judges a text that is the value of a key: where names the key, shift comes on top of its line.
func (r *run) embedded(file, where string, n *yaml.Node, shift int, route sharing.Route) {
	d := doc{file: file, data: []byte(n.Value), line: linesBefore(n) + shift, where: where, route: route, reader: &fields.Reader{}}
	d.root = d.reader.Document(d.data)
	if d.root == nil {
		r.judged++
		r.report(&d, d.reader.Findings)
		return
	}
	if d.kind = detect(r.table, d.root); d.kind == kindPlugin || d.kind == kindMIG {
		r.document(d)
	}
}

// configText is a text meant as a config of the device plugin or MIG manager, even if it is no YAML.
var configText = regexp.MustCompile(`(?m)^[ \t]*(sharing|timeSlicing|mig-configs|mig-devices):|^version:[ \t]*["']?v1["']?[ \t]*$`)

// counterLine is a line of the exporter's counters file.
var counterLine = regexp.MustCompile(`(?m)^[ \t]*DCGM_F[IP]_[A-Z0-9_]+[ \t]*,`)

// countersKey is the key of the exporter's ConfigMap that the operator mounts.
const countersKey = "dcgm-metrics.csv"

var labelValue = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$`)

// configMap judges the ConfigMaps that operands read, by what their values hold.
func (r *run) configMap(d *doc) {
	if namespace := fields.Get(d.root, "metadata", "namespace"); namespace != nil && namespace.Kind == yaml.ScalarNode {
		w := input.Word{Value: namespace.Value, Line: namespace.Line + d.line, Col: namespace.Column}
		r.name = d.file
		r.namespace(w, "metadata.namespace "+namespace.Value)
	}
	m := configMap{name: fields.Text(d.root, "metadata", "name"), file: d.file}
	for _, f := range fields.Of(fields.Get(d.root, "data")) {
		if f.Value.Kind != yaml.ScalarNode || f.Value.Tag == "!!null" {
			continue
		}
		content := f.Value.Value
		var inner fields.Reader
		root := inner.Document([]byte(content))
		wrong := func(reason, fix, source string) {
			r.report(d, []report.Row{{ID: "config-map", State: report.Failed, Line: f.Key.Line, Subject: "data." + f.Name, Reason: reason, Fix: fix, Source: source}})
		}
		holds := kindUnknown
		if root != nil {
			holds = detect(r.table, root)
		}
		counters := counterLine.MatchString(content)
		switch {
		case counters:
			r.judged++
			if f.Name != countersKey {
				m.counters = append(m.counters, report.Row{ID: "config-map", File: d.file, Line: f.Key.Line + d.line, Subject: "data." + f.Name, Source: sourceValues})
			}
		case holds == kindMIG && f.Name != "config.yaml":
			wrong(fmt.Sprintf(notRead, f.Name), "write config.yaml", sourceValues)
		case holds == kindPlugin && labelValue.MatchString(f.Name):
			m.configs = append(m.configs, f.Name)
		case holds == kindPlugin:
			wrong("the key cannot be the value of the node label nvidia.com/device-plugin.config, so no node can select it", "use letters, digits, - _ and .", "Kubernetes label syntax")
		}
		if root != nil || !counters && configText.MatchString(content) {
			r.embedded(d.file, "data."+f.Name, f.Value, d.line, sharing.Operator)
		}
	}
	if len(m.configs)+len(m.counters) > 0 {
		r.configMaps = append(r.configMaps, m)
	}
}

// beside reads a file that another one names, relative to it.
func (r *run) beside(file, name string) ([]byte, string, error) {
	if r.read == nil {
		return nil, name, errNotRead
	}
	shown := name
	if !path.IsAbs(name) {
		shown = path.Join(path.Dir(file), name)
	}
	data, err := r.read(file, shown)
	if err == nil {
		r.learn(string(data))
	}
	return data, shown, err
}

// valuesText adds the settings of a values file, which may be a text inside another file from a line on. where names the
// text in findings about the whole.
func (r *run) valuesText(in *installation, file, where string, data []byte, line int) []*model.Setting {
	reader := &fields.Reader{}
	var out []*model.Setting
	if root := reader.Document(model.TrimBOM(data)); root != nil {
		out = model.Flatten(reader, file, line, nil, root)
		in.Settings = append(in.Settings, out...)
	}
	for _, f := range reader.Findings {
		f.File, f.Subject, f.Line = file, cmp.Or(f.Subject, where), f.Line+line
		if line > 0 && f.Line == line {
			f.Line++
		}
		r.findings = append(r.findings, f)
	}
	return out
}
