package input

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
)

// A ChartUse is one use of a chart inside another tool's file.
type ChartUse struct {
	// Where is the place of the use in its file, and Chart what names the chart.
	Where, Chart string
	Version      *yaml.Node
	// Values are mappings, and texts of values files; names in a list beside them are files.
	Values []*yaml.Node
	// Parameters are lists of name and value, as --set has them.
	Parameters []*yaml.Node
	// Sets is a mapping of dotted names to values.
	Sets *yaml.Node
	// Elsewhere is where more values come from that are not in the file.
	Elsewhere *yaml.Node
	// Reference is the name of the object that says which release, where another has it.
	Reference *yaml.Node
	// Misplaced are keys of other tools, and Place the key under which values belong.
	Misplaced []*yaml.Node
	Place     string
	// Raw says that the values of parameters have Helm's grammar: commas in them divide.
	Raw bool
	// AsText is how a parameter says that its value is a text.
	AsText string
}

// A Carrier is a kind of file of another tool that carries values of charts. Paths are dotted; of several, divided by
// spaces, the first or all count.
type Carrier struct {
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
	// where is added to the place of the use in findings.
	where string
}

var carriers = []Carrier{
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
	{kind: Helmfile, at: "releases", chart: "chart", version: "version", values: "values", parameters: "set", asText: "write it below setString"},
}

func argo(kind, at string) Carrier {
	return Carrier{kind: kind, group: "argoproj.io", at: at, chart: "chart path", version: "targetRevision", values: "helm.values helm.valuesObject",
		parameters: "helm.parameters", asText: "write forceString: true", elsewhere: "helm.valueFiles", where: ".helm"}
}

func rancher(kind string) Carrier {
	return Carrier{kind: kind, group: "helm.cattle.io", at: "spec", chart: "chart /metadata.name", version: "version", values: "valuesContent values", sets: "set",
		asText: "write it below valuesContent, in quotes"}
}

func sveltos(kind string) Carrier {
	return Carrier{kind: kind, group: "config.projectsveltos.io", at: "spec.helmCharts", chart: "chartName", version: "chartVersion", values: "values", elsewhere: "valuesFrom"}
}

// Helmfile is a helmfile.yaml, which has no kind.
const Helmfile = "helmfile"

// valueKeys are the names that tools give to values. Under one of another tool nothing reads them.
var valueKeys = []string{"values", "valuesContent", "valuesObject", "valuesTemplate", "valuesInline"}

// nodeAt returns the node at a dotted path.
func nodeAt(n *yaml.Node, path string) *yaml.Node {
	if path == "" {
		return nil
	}
	return fields.Get(n, strings.Split(path, ".")...)
}

// Uses returns the charts that a file installs.
func (c *Carrier) Uses(root *yaml.Node) []ChartUse {
	var out []ChartUse
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

func (c *Carrier) use(root, n *yaml.Node, place string) ChartUse {
	use := ChartUse{Where: place + c.where, Version: nodeAt(n, c.version), Reference: nodeAt(n, c.reference), Sets: nodeAt(n, c.sets), AsText: c.asText,
		Elsewhere: nodeAt(n, c.elsewhere), Parameters: []*yaml.Node{nodeAt(n, c.parameters)}}
	for name := range strings.FieldsSeq(c.chart) {
		from := n
		if strings.HasPrefix(name, "/") {
			from = root
		}
		if found := nodeAt(from, strings.TrimPrefix(name, "/")); use.Chart == "" && found != nil && found.Kind == yaml.ScalarNode {
			use.Chart = found.Value
		}
	}
	for name := range strings.FieldsSeq(c.values) {
		if v := nodeAt(n, name); v != nil && v.Kind == yaml.SequenceNode {
			use.Values = append(use.Values, v.Content...)
		} else {
			use.Values = append(use.Values, v)
		}
	}
	for _, f := range fields.Of(n) {
		if slices.Contains(valueKeys, f.Name) && !slices.Contains(strings.Fields(c.values), f.Name) {
			use.Misplaced = append(use.Misplaced, f.Key)
			use.Place, _, _ = strings.Cut(c.values, " ")
		}
	}
	return use
}

// CarrierOf returns the row for a document; nil for a document that carries nothing.
func CarrierOf(root *yaml.Node) *Carrier {
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

// ChartOf reads a chart's reference: nvidia/gpu-operator, an OCI address, a folder, an archive. The version is that of an
// archive; "" for other references.
func ChartOf(reference string) (name, version string) {
	name = path.Base(strings.TrimSuffix(reference, "/"))
	if m := archive.FindStringSubmatch(name); m != nil {
		return m[1], m[2]
	}
	return strings.TrimSuffix(name, ".tgz"), ""
}

// archive is the name of a packaged chart. The version begins behind the first hyphen before a number, which may have a v.
var archive = regexp.MustCompile(`^(.*?)-(v?[0-9][0-9A-Za-z.+-]*)\.tgz$`)

// A Patch stands in a Kustomization itself.
type Patch struct {
	// Text is YAML of a part of an object, or of a list of operations on one of the kind Target.
	Text   *yaml.Node
	Target string
}

// Patches returns the patches of a Kustomization that are texts, not names of files.
func Patches(root *yaml.Node) (out []Patch) {
	for _, list := range []string{"patches", "patchesJson6902", "patchesStrategicMerge"} {
		for _, p := range fields.Items(fields.Get(root, list)) {
			text := fields.Resolve(p)
			if inner := fields.Get(p, "patch"); inner != nil {
				text = fields.Resolve(inner)
			}
			if text.Kind == yaml.ScalarNode && strings.Contains(text.Value, "\n") {
				out = append(out, Patch{Text: text, Target: fields.Text(fields.Get(p, "target"), "kind")})
			}
		}
	}
	return out
}

// A Task is one of Ansible that installs a chart, runs commands or applies an object.
type Task struct {
	// Use is the chart of kubernetes.core.helm; nil for other modules.
	Use *ChartUse
	// Script is the text of shell or command, and Object the definition of kubernetes.core.k8s.
	Script, Object *yaml.Node
}

var ansible = Carrier{chart: "chart_ref name release_name", version: "chart_version", values: "values release_values values_files"}

var (
	// nestedTasks are the keys below which a play or a block has tasks.
	nestedTasks = []string{"tasks", "pre_tasks", "post_tasks", "handlers", "block", "rescue", "always"}
	// collections are the prefixes of the modules.
	collections = regexp.MustCompile(`^(ansible\.(builtin|legacy)|(kubernetes|community)\.(core|kubernetes|general))\.`)
	// beyondQuotes matches the parts of a task's text that Ansible itself reads: white space, and backslashes that stand
	// alone. Braces mean something to a shell only.
	beyondQuotes = regexp.MustCompile(`"(?:\\.|[^"\\])*"|'[^']*'|\\\S|\$\{|\{\{.*?\}\}|\{|\s+(?:\\\s+)*`)
	// ofTheModule are options that a command in one line may end with.
	ofTheModule = regexp.MustCompile(`(?m)[ \t]+(chdir|creates|removes|executable|warn|stdin)=\S+`)
)

// Tasks returns the tasks of a playbook, or of a list of tasks, whose modules this package knows.
func Tasks(data []byte) []Task {
	var doc yaml.Node
	if yaml.Unmarshal(data, &doc) != nil || len(doc.Content) == 0 {
		return nil
	}
	return tasks(doc.Content[0], nil)
}

func tasks(list *yaml.Node, out []Task) []Task {
	for _, item := range fields.Items(list) {
		for _, f := range fields.Of(item) {
			switch module := collections.ReplaceAllString(f.Name, ""); {
			case slices.Contains(nestedTasks, f.Name) && f.Value.Kind == yaml.SequenceNode:
				out = tasks(f.Value, out)
			case module == "helm" && fields.Get(f.Value, "chart_ref") != nil:
				use := ansible.use(f.Value, f.Value, f.Name)
				out = append(out, Task{Use: &use})
			case module == "shell" || module == "command":
				if n := commandOf(f.Value, module == "shell"); n != nil {
					out = append(out, Task{Script: n})
				}
			case module == "k8s":
				if n := fields.Resolve(fields.Get(f.Value, "definition")); n != nil {
					out = append(out, Task{Object: n})
				}
			}
		}
	}
	return out
}

// commandOf is the text that a task runs, at its place, as a shell reads it; nil for none.
func commandOf(n *yaml.Node, shell bool) *yaml.Node {
	if inner := fields.Get(n, "cmd"); inner != nil {
		n = fields.Resolve(inner)
	}
	if n.Kind != yaml.ScalarNode {
		return nil
	}
	out := *n
	text := strings.TrimRight(ofTheModule.ReplaceAllString(n.Value, ""), " \n")
	out.Value = beyondQuotes.ReplaceAllStringFunc(text, func(s string) string {
		switch lines := strings.Count(s, "\n"); {
		case s == "{" && !shell:
			return "'{'"
		case strings.TrimLeft(s, " \t\\") == "" && strings.Contains(s, `\`):
			return " "
		case strings.TrimSpace(strings.ReplaceAll(s, `\`, "")) == "" && lines > 0 && !shell:
			return " " + strings.Repeat("\\\n", lines)
		}
		return s
	})
	return &out
}
