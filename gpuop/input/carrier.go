package input

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
)

// ChartUse describes a chart that another tool's file installs. Such a file is, for example, a Flux HelmRelease.
type ChartUse struct {
	// Where names the place in the file. Chart is the chart's name or a reference to it. Repository is the address or
	// name of the chart's repository, or empty.
	Where, Chart, Repository string
	Version                  *yaml.Node
	Values                   []*yaml.Node // mappings, texts of values files, or names of values files
	Parameters               []*yaml.Node // lists of names and values; the names have the syntax of --set
	Sets                     *yaml.Node   // a mapping of dotted names to values
	Elsewhere                *yaml.Node   // refers to more values outside the file; nil means none
	Reference                *yaml.Node   // the name of the object that defines the chart's version
	// Misplaced are keys in which only other tools look for values. Place is the key that this tool reads.
	Misplaced []*yaml.Node
	Place     string
	Raw       bool   // Helm parses the values of parameters, so commas separate values
	AsText    string // tells the user how to mark the value of a parameter as a string
}

// Carrier describes a file format of another tool that contains Helm values. All paths are dotted and relative to the
// chart, or to the root if they begin with a slash. A field with several paths separates them by spaces.
type Carrier struct {
	Kinds, group      string // the kinds of the objects, or the name of a format without kinds
	at                string // charts, and lists of charts
	chart, version    string // names that identify the chart, and its version
	reference         string // the name of another object holding the chart version, such as Flux's chartRef.name
	values, elsewhere string // mappings, texts and file names, and a reference to values outside the file
	parameters, sets  string // lists of names and values, and a mapping from dotted names to values
	where             string // the suffix of ChartUse.Where, such as ".values"
	raw               bool
	asText            string
}

var carriers = []Carrier{
	{
		Kinds: "HelmRelease", group: "helm.toolkit.fluxcd.io", at: "spec",
		chart: "chart.spec.chart chartRef.name /metadata.name", version: "chart.spec.version",
		reference: "chartRef.name", values: "values", elsewhere: "valuesFrom", where: ".values",
	},
	{
		Kinds: "Application ApplicationSet", group: "argoproj.io",
		at:    "spec.source spec.sources spec.template.spec.source spec.template.spec.sources",
		chart: "chart path", version: "targetRevision",
		values: "helm.values helm.valuesObject", elsewhere: "helm.valueFiles", where: ".helm",
		parameters: "helm.parameters", asText: "write forceString: true",
	},
	{
		Kinds: "HelmChart HelmChartConfig", group: "helm.cattle.io", at: "spec",
		chart: "chart /metadata.name", version: "version",
		values: "valuesContent values", sets: "set", asText: "write it as a quoted string below valuesContent",
	},
	{
		Kinds: "Kustomization Component", group: "kustomize.config.k8s.io", at: "helmCharts",
		chart: "name", version: "version", values: "valuesFile valuesInline additionalValuesFiles",
	},
}

// Formats that are not recognized by a kind.
var (
	fleet = Carrier{
		Kinds: "fleet.yaml", at: "helm targetCustomizations",
		chart: "chart /helm.chart", version: "version helm.version /helm.version",
		values: "values valuesFiles helm.values helm.valuesFiles", elsewhere: "valuesFrom", where: ".values",
	}
	helmfile = Carrier{
		Kinds: "helmfile", at: "releases", chart: "chart", version: "version",
		values: "values", parameters: "set", asText: "write it below setString",
	}
	helmRelease = Carrier{
		chart: "chart name", version: "version", values: "values", parameters: "set set_sensitive set_list",
		raw: true, asText: `write type = "string"`,
	}
	ansible = Carrier{
		chart: "chart_ref name release_name", version: "chart_version", values: "values release_values values_files",
	}
)

// valueKeys lists the keys under which supported tools take chart values. Each tool ignores the keys of other tools.
var valueKeys = []string{"values", "valuesContent", "valuesObject", "valuesInline"}

// repositoryKeys are the keys that tools use for the chart's repository.
const repositoryKeys = "repo repoURL repository chart_repo_url chart.spec.sourceRef.name helm.repo"

// Uses returns the charts that the file installs, including charts other than gpu-operator.
func (c *Carrier) Uses(root *yaml.Node) (out []Task) {
	for place := range strings.FieldsSeq(c.at) {
		n := fields.Get(root, strings.Split(place, ".")...)
		for i, item := range fields.Items(n) {
			out = append(out, c.use(root, item, fmt.Sprintf("%s[%d]", place, i)))
		}
		if n != nil && n.Kind != yaml.SequenceNode {
			out = append(out, c.use(root, n, place))
		}
	}
	return out
}

func (c *Carrier) use(root, n *yaml.Node, place string) Task {
	// all returns the nodes at the paths, first the first node, and text the first text
	all := func(paths string) (out []*yaml.Node) {
		for name := range strings.FieldsSeq(paths) {
			from := n
			if strings.HasPrefix(name, "/") {
				from = root
			}
			out = append(out, fields.Get(from, strings.Split(strings.TrimPrefix(name, "/"), ".")...))
		}
		return out
	}
	first := func(paths string) *yaml.Node { return cmp.Or(all(paths)...) }
	text := func(paths string) (out string) {
		for _, v := range all(paths) {
			if v != nil && v.Kind == yaml.ScalarNode && v.Tag != UnknownTag {
				out = cmp.Or(out, v.Value)
			}
		}
		return out
	}
	use := &ChartUse{
		Where: place + c.where, Chart: text(c.chart), Repository: text(repositoryKeys), Version: first(c.version),
		Parameters: all(c.parameters), Sets: first(c.sets), Elsewhere: first(c.elsewhere),
		Reference: first(c.reference), Raw: c.raw, AsText: c.asText,
	}
	for _, v := range all(c.values) {
		if v != nil && v.Kind == yaml.SequenceNode {
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
	return Task{Use: use}
}

// CarrierOf returns the format of a document, or nil if the format is unknown.
func CarrierOf(root *yaml.Node) *Carrier {
	api, kind := fields.Text(root, "apiVersion"), fields.Text(root, "kind")
	for i, c := range carriers {
		if slices.Contains(strings.Fields(c.Kinds), kind) && strings.HasPrefix(api, c.group+"/") {
			return &carriers[i]
		}
	}
	releases := fields.Items(fields.Get(root, "releases"))
	switch {
	case kind != "":
	case len(releases) > 0 && fields.Text(releases[0], "chart") != "":
		return &helmfile
	case fields.Text(root, "helm", "chart") != "":
		return &fleet
	}
	return nil
}

// ChartOf parses a reference to a chart: a name, an OCI address, a folder or an archive. Only archives have a version.
func ChartOf(reference string) (name, version string) {
	name = path.Base(strings.TrimSuffix(reference, "/"))
	if m := archive.FindStringSubmatch(name); m != nil {
		return m[1], m[2]
	}
	return strings.TrimSuffix(name, ".tgz"), ""
}

// archive matches the file name of a packaged chart. The version begins after the first hyphen before a digit or "v".
var archive = regexp.MustCompile(`^(.*?)-(v?[0-9][0-9A-Za-z.+-]*)\.tgz$`)

// Patch is an inline patch of a Kustomization.
type Patch struct {
	Text   *yaml.Node // a partial object, or a list of operations
	Target string     // the kind of the object that operations change
}

// Patches returns the inline patches of a Kustomization.
func Patches(root *yaml.Node) (out []Patch) {
	for _, list := range []string{"patches", "patchesJson6902", "patchesStrategicMerge"} {
		for _, p := range fields.Items(fields.Get(root, list)) {
			text := cmp.Or(fields.Get(p, "patch"), p)
			if text.Kind == yaml.ScalarNode && strings.Contains(text.Value, "\n") {
				out = append(out, Patch{text, fields.Text(p, "target", "kind")})
			}
		}
	}
	return out
}

// Task is one part of a file: a chart, commands, or Kubernetes objects as a mapping or a YAML text.
type Task struct {
	Use            *ChartUse
	Script, Object *yaml.Node
}

// Steps returns the commands (run) in a GitHub workflow or composite action.
func Steps(root *yaml.Node) (out []Task) {
	for _, job := range append(fields.Of(fields.Get(root, "jobs")), fields.Field{Value: fields.Get(root, "runs")}) {
		for _, step := range fields.Items(fields.Get(job.Value, "steps")) {
			if run := fields.Get(step, "run"); run != nil && run.Kind == yaml.ScalarNode {
				out = append(out, Task{Script: run})
			}
		}
	}
	return out
}

var (
	// nestedTasks are the keys of a play or block that contain lists of tasks.
	nestedTasks = []string{"tasks", "pre_tasks", "post_tasks", "handlers", "block", "rescue", "always"}
	collections = regexp.MustCompile(`^(ansible\.(builtin|legacy)|(kubernetes|community)\.(core|kubernetes|general))\.`)
	// beyondQuotes matches the tokens that commandOf distinguishes. Ansible reads braces and white space differently.
	beyondQuotes = regexp.MustCompile(`"(?:\\.|[^"\\])*"|'[^']*'|\\\S|\$\{|\{\{.*?\}\}|\{|\s+(?:\\\s+)*`)
	// ofTheModule matches options of the module that follow a command on its line, such as chdir=/tmp.
	ofTheModule = regexp.MustCompile(`(?m)[ \t]+(chdir|creates|removes|executable|warn|stdin)=\S+`)
)

// Tasks returns the tasks with known modules in a playbook or a list of tasks.
func Tasks(data []byte) []Task {
	var doc yaml.Node
	if yaml.Unmarshal(data, &doc) != nil || len(doc.Content) == 0 {
		return nil
	}
	return tasks(doc.Content[0])
}

func tasks(list *yaml.Node) (out []Task) {
	for _, item := range fields.Items(list) {
		for _, f := range fields.Of(item) {
			var t Task
			switch module := collections.ReplaceAllString(f.Name, ""); {
			case slices.Contains(nestedTasks, f.Name):
				out = append(out, tasks(f.Value)...)
			case module == "helm" && fields.Get(f.Value, "chart_ref") != nil:
				t = ansible.use(f.Value, f.Value, f.Name)
			case module == "shell" || module == "command":
				t.Script = commandOf(f.Value, module == "shell")
			case module == "k8s":
				t.Object = fields.Get(f.Value, "definition")
			}
			if t != (Task{}) {
				out = append(out, t)
			}
		}
	}
	return out
}

// commandOf returns the command of a task, if any, rewritten so that a shell reads it as Ansible does.
func commandOf(n *yaml.Node, shell bool) *yaml.Node {
	n = cmp.Or(fields.Get(n, "cmd"), n)
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
