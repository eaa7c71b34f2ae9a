package values

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/images"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/sharing"
)

// Errors of Generate.
var (
	ErrUnknown  = errors.New("unknown")
	ErrExcludes = errors.New("cannot go together")
	ErrVersion  = errors.New("not in this release")
	ErrMissing  = errors.New("missing")
	// ErrImage is returned for an image that is not registry/path/name:tag.
	ErrImage = errors.New("unusable image")
)

// A Request says what to write values for.
type Request struct {
	Platform string
	// Features are names of Features, some with =value: "time-slicing=4".
	Features []string
	Version  chart.Version
	// Table is what is known of the chart; nil for gpuop's own.
	Table *chart.Table
	// Registry is the private registry, with a path if it has one, that replaces nvcr.io and
	// registry.k8s.io.
	Registry string
	// PullSecret is the name of a Secret for the registry.
	PullSecret string
	// Exporter is the image of the feature "exporter".
	Exporter string
}

// A Plan is a values file, the command that applies it and what is to be done beside it.
type Plan struct {
	Platform  string          `json:"platform"`
	Version   chart.Version   `json:"version"`
	Namespace string          `json:"namespace"`
	Values    []chart.Setting `json:"values"`
	Before    []Step          `json:"before,omitempty"`
	After     []Step          `json:"after,omitempty"`
	Source    string          `json:"source"`
	// Notes are what is left to be decided.
	Notes []report.Row `json:"-"`
	about string
}

// special are the parts of features that depend on more than the release.
var special = map[string]func(g *generator, argument string) error{
	"time-slicing": func(g *generator, n string) error { return g.share("time-slicing", "timeSlicing", n) },
	"mps":          func(g *generator, n string) error { return g.share("mps", "mps", n) },
	"vgpu": func(g *generator, _ string) error {
		if g.request.Registry == "" {
			return fmt.Errorf("%w: vgpu needs --registry: the vGPU driver image is not public, you build and push it", ErrMissing)
		}
		g.set("driver.repository", g.request.Registry, "The vGPU guest driver is built and pushed by you.")
		g.pullSecret("driver")
		g.plan.Notes = append(g.plan.Notes, report.Row{ID: "vgpu", State: report.Failed, Subject: "driver.version",
			Reason: "the chart's default driver is no vGPU driver: the image that you build has the version of the vGPU guest driver",
			Fix:    "set driver.version to the version that you built"})
		return nil
	},
	"exporter": func(g *generator, _ string) error {
		m := reference.FindStringSubmatch(g.request.Exporter)
		if m == nil {
			return fmt.Errorf("%w %q, want registry/path/name:tag", ErrImage, g.request.Exporter)
		}
		g.set("dcgmExporter.enabled", true, "")
		g.set("dcgmExporter.repository", m[1], "This project's exporter: the operator runs it as its own, with the same port, probes and variables.")
		g.set("dcgmExporter.image", m[2], "")
		g.set("dcgmExporter.version", m[3]+m[4], "")
		return nil
	},
}

// ExporterImage is this project's image of the exporter, without a tag.
const ExporterImage = "ghcr.io/gpu-telemetry/dcgm-exporter"

// reference parts an image as the operator joins it: the repository, the name, and the tag or the digest.
var reference = regexp.MustCompile(`^([a-z0-9.-]+(?::[0-9]+)?(?:/[a-z0-9._-]+)*)/([a-zA-Z0-9-]+)(?::([A-Za-z0-9_][A-Za-z0-9._-]{0,127})|@(sha256:[0-9a-f]{64}))$`)

// Platforms and Features return the names that a Request may have, each with what it means.
func Platforms() [][2]string {
	var out [][2]string
	for _, p := range choices().Platforms {
		out = append(out, [2]string{p.Name, p.About})
	}
	return out
}

// Features returns the names of features, each with what it means; one with an argument ends in =.
func Features() [][2]string {
	var out [][2]string
	for _, f := range choices().Features {
		name := f.Name
		if f.Argument != "" {
			name += "[=" + f.Argument + "]"
		}
		out = append(out, [2]string{name, f.About})
	}
	return out
}

func names(list [][2]string) []string {
	out := make([]string, len(list))
	for i, e := range list {
		out[i], _, _ = strings.Cut(e[0], "[")
	}
	return out
}

func unknown(what, word string, known []string) error {
	if near := report.Nearest(word, known); near != "" {
		return fmt.Errorf("%w %s %q, did you mean %s?", ErrUnknown, what, word, near)
	}
	return fmt.Errorf("%w %s %q, want %s", ErrUnknown, what, word, strings.Join(known, ", "))
}

// generator builds a plan.
type generator struct {
	request Request
	table   *chart.Table
	plan    *Plan
	driver  bool // the nodes bring the driver
}

func (g *generator) key(path string) (*chart.Key, bool) {
	k, known := g.table.Key(chart.ParsePath(path))
	return k, known && k.In(g.request.Version)
}

// set sets a value, in place of an earlier one for the same path.
func (g *generator) set(path string, value any, why string) {
	v := chart.Set(path, value, why)
	if i := slices.IndexFunc(g.plan.Values, func(s chart.Setting) bool { return s.Path.String() == path }); i >= 0 {
		g.plan.Values[i] = v
		return
	}
	g.plan.Values = append(g.plan.Values, v)
}

func (g *generator) before(why, command string) {
	g.plan.Before = append(g.plan.Before, Step{why, command})
}

// Generate writes the plan for a request. The error wraps ErrUnknown for a name that does not
// exist, ErrExcludes for features that cannot go together, ErrVersion for one that the release does
// not have and ErrMissing for an option that is needed.
func Generate(r Request) (*Plan, error) {
	platforms := choices().Platforms
	at := slices.IndexFunc(platforms, func(p platform) bool { return p.Name == r.Platform })
	if at < 0 {
		return nil, unknown("platform", r.Platform, names(Platforms()))
	}
	p := platforms[at]
	g := &generator{request: r, table: cmp.Or(r.Table, chart.Load()), driver: slices.Contains(p.Brings, "driver")}
	g.plan = &Plan{Platform: r.Platform, Version: r.Version, Namespace: cmp.Or(p.Namespace, "gpu-operator"), Source: p.Source, about: p.About}
	for _, part := range p.Brings {
		g.set(part+".enabled", false, "The nodes bring the "+map[string]string{"driver": "driver", "toolkit": "NVIDIA Container Toolkit"}[part]+".")
	}
	for _, v := range p.Values {
		if k, known := g.table.Key(chart.ParsePath(v.Path)); !known || !k.In(r.Version) {
			return nil, fmt.Errorf("%w: platform %s needs %s, which came with %s; %s does not have it", ErrVersion, r.Platform, v.Path, k.Since(), r.Version)
		}
	}
	if r.wants("preinstalled-toolkit") {
		p.Values = slices.DeleteFunc(slices.Clone(p.Values), func(v value) bool { return strings.HasPrefix(v.Path, "toolkit.") })
	}
	g.add(p.addition)
	if err := g.features(); err != nil {
		return nil, err
	}
	if r.Platform == "air-gapped" && r.Registry == "" {
		return nil, fmt.Errorf("%w: platform air-gapped needs --registry", ErrMissing)
	}
	if r.Registry != "" && (!r.wants("vgpu") || r.Platform == "air-gapped") {
		g.mirror()
	}
	for _, v := range g.plan.Values {
		if k, known := g.table.Key(v.Path); known && !k.In(r.Version) {
			return nil, fmt.Errorf("%w: %s came with %s; %s does not have it", ErrVersion, v.Path, k.Since(), r.Version)
		}
	}
	return g.plan, nil
}

// wants reports whether the request names the feature.
func (r Request) wants(name string) bool {
	return slices.ContainsFunc(r.Features, func(f string) bool {
		n, _, _ := strings.Cut(f, "=")
		return n == name
	})
}

func (g *generator) features() error {
	r := g.request
	g.driver = g.driver || r.wants("preinstalled-driver")
	if r.wants("mig-single") && r.wants("mig-mixed") {
		return fmt.Errorf("%w: mig-single and mig-mixed", ErrExcludes)
	}
	if r.wants("time-slicing") && r.wants("mps") {
		return fmt.Errorf("%w: time-slicing and mps", ErrExcludes)
	}
	if r.wants("mps") && (r.wants("mig-mixed") || r.wants("mig-single")) {
		return fmt.Errorf("%w: mps and MIG: the device plugin does not share MIG devices by MPS", ErrExcludes)
	}
	features := choices().Features
	for _, word := range r.Features {
		name, argument, hasArgument := strings.Cut(word, "=")
		at := slices.IndexFunc(features, func(f feature) bool { return f.Name == name })
		if at < 0 {
			return unknown("feature", name, names(Features()))
		}
		f := features[at]
		if hasArgument && f.Argument == "" {
			return fmt.Errorf("%w: %s takes no value, found %q", ErrUnknown, name, argument)
		}
		if f.NeedsDriver && g.driver {
			return fmt.Errorf("%w: %s and a driver on the nodes: the operator loads its module from the driver's pod; load it on the nodes instead", ErrExcludes, name)
		}
		with, known := f.With[argument]
		if f.With != nil && !known {
			return fmt.Errorf("%w: %s=%s, want %s or %s=%s", ErrUnknown, name, argument, name, name, f.Argument)
		}
		if add := special[name]; add != nil {
			if err := add(g, argument); err != nil {
				return err
			}
		}
		g.add(f.addition)
		g.add(with)
	}
	return nil
}

// share sets a sharing config with the block of that key.
func (g *generator) share(strategy, key, argument string) error {
	if argument == "" {
		argument = "4"
	}
	replicas, err := strconv.Atoi(argument)
	if err != nil || replicas < 2 || strategy == "mps" && replicas > sharing.MaxClients {
		return fmt.Errorf("%w: %s=%s, want a number of replicas from 2", ErrUnknown, strategy, argument)
	}
	if _, known := g.key("devicePlugin.config.data"); !known {
		return fmt.Errorf("%w: devicePlugin.config.data came with v22.9.1; write a ConfigMap of your own", ErrVersion)
	}
	g.set("devicePlugin.config.create", true, "The chart makes the ConfigMap.")
	g.set("devicePlugin.config.name", "device-plugin-config", "")
	g.set("devicePlugin.config.default", "any", "For every node without the label nvidia.com/device-plugin.config.")
	g.set("devicePlugin.config.data.any", string(sharing.Write(key, replicas)), fmt.Sprintf("Every GPU is offered %d times; see gpuop share predict.", replicas))
	return nil
}

// mirror points every image that the plan pulls at the registry, under the path that it has
// upstream.
func (g *generator) mirror() {
	registry := strings.TrimSuffix(g.request.Registry, "/")
	for _, image := range images.Components(g.table, g.request.Version, slices.Clone(g.plan.Values), images.Nodes{}, false) {
		if image.Operand == "driver" && g.request.wants("vgpu") {
			continue
		}
		if image.Operand == "dcgmExporter" && g.request.wants("exporter") {
			continue
		}
		if image.Operand == "nfd" {
			g.set("node-feature-discovery.image.repository", registry+"/nfd/node-feature-discovery", "")
			if _, known := g.key("node-feature-discovery.imagePullSecrets"); known && g.request.PullSecret != "" {
				g.set("node-feature-discovery.imagePullSecrets", []any{map[string]any{"name": g.request.PullSecret}}, "")
			}
			continue
		}
		_, path, _ := strings.Cut(image.Repository, "/")
		g.set(image.Operand+".repository", registry+"/"+path, "")
		g.pullSecret(image.Operand)
	}
	if g.request.Platform != "air-gapped" {
		return
	}
	g.before("On a machine that reaches both sides: the chart, and the images.", g.copying(registry))
	if !g.driver {
		g.set("driver.repoConfig.configMapName", "repo-config", "The driver's container installs packages: the ConfigMap names repositories that the nodes reach.")
		g.before("Package repositories inside the air gap, as a .list or .repo file for the nodes' system.", "kubectl create configmap repo-config -n "+g.plan.Namespace+" --from-file=custom-repo.list")
	}
}

// pullSecret names the Secret for an operand's image.
func (g *generator) pullSecret(operand string) {
	if _, known := g.key(operand + ".imagePullSecrets"); known && g.request.PullSecret != "" {
		g.set(operand+".imagePullSecrets", []any{g.request.PullSecret}, "")
	}
}

// copying is the commands that bring chart and images to the registry: the path of an image stays
// what it is upstream.
func (g *generator) copying(registry string) string {
	var sets strings.Builder
	for _, v := range g.plan.Values {
		if on, isBool := v.Value.(bool); isBool && v.Path[len(v.Path)-1] == "enabled" {
			fmt.Fprintf(&sets, " --set %s=%t", v.Path, on)
		}
	}
	return fmt.Sprintf("helm pull gpu-operator --repo https://helm.ngc.nvidia.com/nvidia --version %s\n"+
		"gpuop images --version %s%s --os ubuntu24.04 |\n  while read -r i; do skopeo copy --all \"docker://$i\" \"docker://%s/${i#*/}\"; done",
		g.request.Version, g.request.Version, sets.String(), registry)
}

// YAML writes the plan as a values file, with the command and the steps as comments at the top.
func (p *Plan) YAML(file string) ([]byte, error) {
	var head strings.Builder
	fmt.Fprintf(&head, "Values for the gpu-operator chart %s on %s: %s.\nSource: %s\n", p.Version, p.Platform, p.about, p.Source)
	step := func(title string, steps []Step) {
		for _, s := range steps {
			fmt.Fprintf(&head, "\n%s: %s\n", title, s.Why)
			for line := range strings.SplitSeq(s.Command, "\n") {
				head.WriteString("  " + line + "\n")
			}
		}
	}
	step("Before", p.Before)
	head.WriteString("\nInstall:\n")
	for line := range strings.SplitSeq(p.Command(file), "\n") {
		head.WriteString("  " + line + "\n")
	}
	step("After", p.After)
	return Write(head.String(), p.Values)
}

// Command is the helm command that installs the plan from the values file.
func (p *Plan) Command(file string) string {
	if p.Platform == "air-gapped" {
		return fmt.Sprintf("helm upgrade --install gpu-operator ./gpu-operator-%s.tgz \\\n  --namespace %s --create-namespace --version %s --wait \\\n  --values %s", p.Version, p.Namespace, p.Version, file)
	}
	return fmt.Sprintf("helm repo add nvidia https://helm.ngc.nvidia.com/nvidia && helm repo update\n"+
		"helm upgrade --install gpu-operator nvidia/gpu-operator \\\n  --namespace %s --create-namespace --version %s --wait \\\n  --values %s", p.Namespace, p.Version, file)
}
