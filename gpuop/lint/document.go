package lint

import (
	"bytes"
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
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/mig"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/pod"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/sharing"
)

// doc is a text with YAML documents, or one of the documents.
type doc struct {
	file    string
	data    []byte
	line    int // number of lines before the text in its file
	root    *yaml.Node
	kind    kind
	reader  *fields.Reader
	where   string // the place inside the file, such as a key of a ConfigMap
	written bool   // a script writes the document to a file, which may be for another program
	partial bool   // the document is a patch, in which required fields may be missing
	holes   bool   // the shell fills in parts of the text
	open    bool   // a script appends to the text
}

// inside returns the text of a scalar in the document.
func (d *doc) inside(n *yaml.Node) doc {
	return doc{file: d.file, data: []byte(n.Value), line: fields.LinesBefore(n) + d.line}
}

// kind names what a document is. Kinds that are not checked have other names, such as that of a Kubernetes object.
type kind string

const (
	kindValues        kind = "chart values"
	kindClusterPolicy kind = "ClusterPolicy"
	kindNVIDIADriver  kind = "NVIDIADriver"
	kindGPUCluster    kind = "GPUCluster"
	kindPlugin        kind = "device plugin config"
	kindMIG           kind = "mig-parted config"
	kindConfigMap     kind = "ConfigMap"
	kindPod           kind = "pod"
	kindCarrier       kind = "values inside another tool's file"
	kindUmbrella      kind = "umbrella chart values"
	kindPluginValues  kind = "nvidia-device-plugin values"
	kindWorkflow      kind = "GitHub workflow"
	kindUnknown       kind = ""
)

var (
	separator = regexp.MustCompile(`(?m)^---([ \t].*)?$`)
	// helmHeading matches the first line that helm get values prints.
	helmHeading = regexp.MustCompile(`^(USER-SUPPLIED|COMPUTED) VALUES:[ \t]*`)
	// terraformResource matches a Terraform block. It finds Terraform in files that are not named *.tf.
	terraformResource = regexp.MustCompile(`(?m)^resource\s+"(helm_release|kubernetes_manifest|kubectl_manifest)"` +
		`\s+"[^"]*"\s*\{`)
	// templateLine matches an expression of Helm, Ansible or templatefile, or a placeholder such as @@NAME@@.
	templateLine = regexp.MustCompile(`(?m)\{\{|\{%|^[ \t]*[$%]\{[^}\n]+\}[ \t]*$|\[\$\{|@@\w+@@`)
	// configText matches a text, maybe invalid YAML, that is meant as a config of the device plugin or MIG manager.
	configText = regexp.MustCompile(`(?m)^[ \t]*(sharing|timeSlicing|mig-configs|mig-devices):|` +
		`^version:[ \t]*["']?v1["']?[ \t]*$`)
)

// parse parses the YAML documents or the Terraform blocks in a text.
func (r *run) parse(t doc) {
	t.data = bytes.ReplaceAll(bytes.TrimPrefix(t.data, []byte("\xef\xbb\xbf")), []byte("\r\n"), []byte("\n"))
	t.data = helmHeading.ReplaceAll(t.data, []byte("#"))
	if strings.HasSuffix(t.file, ".tf") || terraformResource.Match(t.data) {
		r.terraform(t.file, t.data)
		return
	}
	r.parseYAML(t)
}

// parseYAML parses the documents of a text without carriage returns.
func (r *run) parseYAML(t doc) {
	start, data := 0, t.data
	for _, end := range append(separator.FindAllIndex(data, -1), []int{len(data), len(data)}) {
		d := t
		d.data = data[start:end[0]]
		if len(bytes.TrimSpace(model.StripComments(d.data))) > 0 {
			r.parseOne(&d)
		}
		t.line += bytes.Count(data[start:end[1]], []byte("\n"))
		start = end[1]
	}
}

// buildFile matches names without an extension that are not YAML files, such as Makefile and Dockerfile.
var buildFile = regexp.MustCompile(`(?i)^(gnu)?(make|docker|container|jenkins|vagrant|just|rake|tilt|proc)file$`)

func (r *run) parseOne(d *doc) {
	d.reader = &fields.Reader{}
	if d.root = d.reader.Document(d.data); d.root != nil {
		r.addDocument(d)
		return
	}
	wrong := d.reader.Findings[0].Check
	noYAML := wrong == fields.Syntax || wrong == fields.Ellipsis
	isData := slices.Contains([]string{"", ".yaml", ".yml", ".json", ".txt", ".sh"}, path.Ext(d.file))
	isOther := !isData || bytes.IndexByte(d.data, 0) >= 0 || templateLine.Match(d.data) ||
		buildFile.MatchString(path.Base(d.file))
	switch {
	case wrong == fields.WrongType && input.Tasks(d.data) != nil:
		d.written = true
		r.tasks(d, "Ansible tasks", input.Tasks(d.data))
	case r.found[d.file] && (!r.isOwnText(d.file, d.data) || noYAML && strings.Contains(d.file, "/templates/")):
	case noYAML && (d.holes || d.open):
		r.add(d.file, check.Finding{Check: input.Skipped, Severity: check.Note, Line: d.line + 1,
			Reason: "the script fills in or appends parts of this document; skipped",
			Fix:    "run the script up to here, and pipe its output to gpuop lint -"})
	case noYAML && !d.written && isOther:
		r.add(d.file, check.Finding{Check: input.Skipped, Severity: check.Note, Line: d.line,
			Reason: "not valid YAML: probably a template or another format; skipped",
			Fix:    "if it is a template, check the rendered result: helm template … | gpuop lint -"})
	case d.written && (!noYAML || !configText.Match(d.data)):
	case wrong == fields.WrongType: // none of the known kinds is a list or scalar
		d.root = &yaml.Node{Line: 1}
		r.documents = append(r.documents, d)
	default:
		r.unit(d.file, "", noYAML)
		r.report(d, d.reader.Findings)
	}
}

func (r *run) addDocument(d *doc) {
	if c := r.chartOfValues(d.file); c != nil && c.alias != "" {
		for _, f := range fields.Of(d.root) {
			if f.Name == c.alias { // the parent chart's name for the operator's chart
				f.Key.Value = model.OperatorNamespace
			}
		}
	}
	if !strings.HasSuffix(fields.Text(d.root, "kind"), "List") {
		if d.kind = detect(r.table, d.root); r.found[d.file] && !r.isOwn(d) {
			d.kind = kindUnknown
		}
		r.documents = append(r.documents, d)
		return
	}
	for _, item := range fields.Items(fields.Get(d.root, "items")) {
		if item.Kind == yaml.MappingNode && len(r.documents) < model.MaxNodes {
			inner := *d
			inner.root, inner.reader = item, &fields.Reader{}
			r.addDocument(&inner)
		}
	}
}

// chartOfValues returns the chart in the folder of a file named values* if it is or includes the operator's, or nil.
func (r *run) chartOfValues(file string) *localChart {
	if strings.HasPrefix(path.Base(file), "values") {
		if c := r.chartIn(file, "."); c != nil && c.version != nil {
			return c
		}
	}
	return nil
}

// resources lists the operator's kinds, with their API version and the names that kubectl accepts.
var resources = map[kind]struct{ api, names string }{
	kindClusterPolicy: {"nvidia.com/v1", "clusterpolicy clusterpolicies"},
	kindNVIDIADriver:  {"nvidia.com/v1alpha1", "nvidiadriver nvidiadrivers nvd"},
	kindGPUCluster:    {"nvidia.com/v1alpha1", "gpucluster gpuclusters"},
}

// detect returns the kind of a document, or kindUnknown.
func detect(t *chart.Table, root *yaml.Node) kind {
	api, k := fields.Text(root, "apiVersion"), fields.Text(root, "kind")
	group, _, hasGroup := strings.Cut(api, "/")
	switch {
	case resources[kind(k)].api != "" && hasGroup && check.Nearest(group, []string{"nvidia.com"}) == "":
		return kind(k + " of " + group) // other vendors use the same kinds: Kyverno has a ClusterPolicy
	case resources[kind(k)].api != "":
		return kind(k)
	case k == "ConfigMap":
		return kindConfigMap
	case input.CarrierOf(root) != nil:
		return kindCarrier
	case k == "" && len(input.Steps(root)) > 0:
		return kindWorkflow
	case k == "Pod" || api != "" && len(pod.Specs(root)) > 0:
		return kindPod
	case api != "" && (strings.Contains(k, " ") || kind(k) == kindPod): // a name of this package
		return kind(k + " of " + api)
	case api != "" && k != "":
		return kind(k)
	case fields.Get(root, "mig-configs") != nil:
		return kindMIG
	case fields.Get(root, "vgpu-configs") != nil, fields.Get(root, "systemd-services") != nil:
		return "config of another manager" // the vGPU device manager, and hooks of mig-parted
	case strings.HasSuffix(fields.Text(root, "image", "repository"), "/k8s-device-plugin"):
		return kindPluginValues
	case otherChartOf(t, root) != "":
		return otherChartOf(t, root)
	case umbrella(t, root) != nil:
		return kindUmbrella
	case len(root.Content) == 0:
		return kindValues // an empty document of values keeps all defaults
	}
	// similar names with known keys below them count only if no other key is unknown
	e := evidenceIn(t, root)
	values := 2*e.own + e.weak + e.lost
	if e.others == 0 {
		values += e.weak + 2*e.near
	}
	switch {
	case e.plugin > values:
		return kindPlugin
	case values > max(e.others+e.near, 1):
		return kindValues
	}
	return kindUnknown
}

// umbrella returns the values below the key gpu-operator, which may be repeated one level below, or nil. A mapping
// without keys of the operator's chart does not count: it may be a list of versions.
func umbrella(t *chart.Table, root *yaml.Node) *yaml.Node {
	inner := fields.Get(root, model.OperatorNamespace)
	inner = cmp.Or(fields.Get(inner, model.OperatorNamespace), inner)
	isKnown := func(f fields.Field) bool { return f.Name == "enabled" || t.Component(f.Name) != "" }
	isEmpty := inner != nil && inner.Kind == yaml.MappingNode && len(inner.Content) == 0
	if isEmpty || slices.ContainsFunc(fields.Of(inner), isKnown) {
		return inner
	}
	return nil
}

// document checks one document.
func (r *run) document(d *doc) {
	name, judged := string(d.kind), true
	isValues := slices.Contains([]kind{kindValues, kindPlugin, kindPluginValues}, d.kind)
	if other := r.otherChart(d.file); other != "" && d.where == "" && isValues {
		r.unit(d.file, "values of the chart "+other+", not checked", false)
		return
	}
	switch d.kind {
	case kindCarrier:
		for _, p := range input.Patches(d.root) {
			inner := d.inside(p.Text)
			inner.kind = patched(p.Target)
			r.patch(inner)
		}
		c := input.CarrierOf(d.root)
		r.tasks(d, cmp.Or(fields.Text(d.root, "kind"), c.Kinds), c.Uses(d.root))
		return
	case kindWorkflow:
		r.tasks(d, name, input.Steps(d.root))
		return
	case kindUmbrella, kindValues:
		name += r.valuesDocument(d)
	case kindClusterPolicy, kindNVIDIADriver, kindGPUCluster:
		r.resource(d)
	case kindPlugin:
		r.pluginConfig(d)
	case kindMIG:
		_, findings := mig.ParseConfig(d.data)
		r.report(d, findings)
	case kindConfigMap:
		judged = r.configMap(d)
	case kindPod:
		r.report(d, pod.Check(d.root))
	case kindPluginValues:
		judged = r.pluginValues(d)
	case "Node":
		label := fields.Get(d.root, "metadata", "labels", sharing.ConfigLabel)
		if judged = label != nil; judged {
			at := d.place(label, sharing.ConfigLabel+"="+label.Value)
			r.uses = append(r.uses, configUse{config: label.Value, at: at})
		}
	case kindUnknown:
		if d.written || r.found[d.file] { // it may be for another program
			return
		}
		name, judged = "unknown", false
		r.report(d, []check.Finding{{Check: unknownKind, Severity: check.Note, Line: d.root.Line,
			Reason: "unknown kind of document", Fix: "see gpuop lint --help for the kinds of files"}})
	default:
		judged = false
	}
	if d.where != "" {
		name += " in " + d.where
	}
	if !judged && d.kind != kindUnknown {
		name += ", not checked"
	}
	r.unit(d.file, name, judged)
}

// valuesDocument checks values for the release that the user, or a chart in the same folder, names, or else the newest.
func (r *run) valuesDocument(d *doc) (remark string) {
	root, v, assumed := d.root, r.version, !r.named
	if d.kind == kindUmbrella {
		root = model.WithoutEnabled(umbrella(r.table, root))
	}
	local := r.chartIn(d.file, ".")
	if local != nil && local.version != nil {
		v, assumed = r.resolveNode(&doc{file: local.file}, local.version, "version")
	}
	in := newInstallation(r.table, v, model.Flatten(d.reader, d.file, d.line, nil, root))
	in.assumed, in.modified = assumed, local != nil && local.own && r.hasOwnKeys(d.file, v)
	r.report(d, d.reader.Findings)
	r.installation(in, d.file)
	if remark = " for gpu-operator " + v.String(); assumed {
		remark += ", assumed; set the release with --version"
	}
	return remark
}

// hasOwnKeys reports whether the values.yaml in the folder of a file has a key that no release of the chart has.
func (r *run) hasOwnKeys(file string, v chart.Version) bool {
	root, _ := r.rootBeside(file, "values.yaml")
	isUnknown := func(s *model.Setting) bool { return r.table.Lookup(v, s.Path).Status == chart.Unknown }
	return root != nil && slices.ContainsFunc(model.Flatten(&fields.Reader{}, file, 0, nil, root), isUnknown)
}

// valuesText parses a values file and adds its settings to the installation.
func (r *run) valuesText(in *installation, d doc) {
	d.reader = &fields.Reader{}
	if d.root = d.reader.Document(d.data); d.root != nil {
		in.Settings = append(in.Settings, model.Flatten(d.reader, d.file, d.line, nil, d.root)...)
	}
	r.report(&d, d.reader.Findings)
}

// embedded checks the text of a key, named where, if it is a config of the device plugin or MIG manager. It returns the
// kind of the text, and whether it was checked. Invalid YAML that looks like a config is reported.
func (r *run) embedded(d doc, where string, n *yaml.Node) (holds kind, judged bool) {
	inner := d.inside(n)
	inner.where, inner.reader = where, &fields.Reader{}
	if inner.root = inner.reader.Document(inner.data); inner.root == nil {
		if judged = configText.MatchString(n.Value); judged {
			r.unit(d.file, "", true)
			r.report(&inner, inner.reader.Findings)
		}
		return kindUnknown, judged
	}
	if inner.kind = detect(r.table, inner.root); inner.kind != kindPlugin && inner.kind != kindMIG {
		return inner.kind, false
	}
	r.document(&inner)
	return inner.kind, true
}
