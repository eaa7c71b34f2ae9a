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
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/images"
)

// Errors of Generate.
var (
	ErrUnknown  = errors.New("unknown")
	ErrInvalid  = errors.New("invalid")
	ErrExcludes = errors.New("cannot be combined")
	ErrVersion  = errors.New("not in this release")
	ErrMissing  = errors.New("missing")
	// ErrImage is returned for images that are not registry/path/name:tag.
	ErrImage = errors.New("unusable image")
)

// Request selects the platform, features and release of a values file.
type Request struct {
	Platform string
	// Features are names of features, some with =value: "time-slicing=4".
	Features []string
	Version  chart.Version
	// Table has the facts about the chart; nil means the built-in table.
	Table *chart.Table
	// Registry is a private registry, with an optional path, that replaces nvcr.io and registry.k8s.io.
	Registry string
	// PullSecret is the name of the Secret for the registry.
	PullSecret string
	// Exporter is the image of the feature "exporter".
	Exporter string
}

// Plan is a values file with the command that installs it and manual steps.
type Plan struct {
	Platform  string          `json:"platform"`
	Version   chart.Version   `json:"version"`
	Namespace string          `json:"namespace"`
	Values    []chart.Setting `json:"values"`
	Before    []Step          `json:"before,omitempty"`
	After     []Step          `json:"after,omitempty"`
	Source    string          `json:"source"`
	about     string
}

// ExporterImage is this project's exporter image without a tag.
const ExporterImage = "ghcr.io/gpu-telemetry/dcgm-exporter"

// reference matches an image reference. Its groups are the repository, the name, and the tag or digest. The operator
// joins them again.
var reference = regexp.MustCompile(`^([a-z0-9.-]+(?::[0-9]+)?(?:/[a-z0-9._-]+)*)/([a-zA-Z0-9-]+)` +
	`(?::([A-Za-z0-9_][A-Za-z0-9._-]{0,127})|@(sha256:[0-9a-f]{64}))$`)

// Platforms returns the name and description of each platform.
func Platforms() [][2]string { return listed(choices().Platforms) }

// Features returns the name and description of each feature. The name of a feature with an argument is name=argument,
// or name[=argument] if the argument is optional.
func Features() [][2]string { return listed(choices().Features) }

func listed(list []choice) (out [][2]string) {
	for _, c := range list {
		name := c.Name
		switch {
		case c.Needed:
			name += "=" + c.Argument
		case c.Argument != "":
			name += "[=" + c.Argument + "]"
		}
		out = append(out, [2]string{name, c.About})
	}
	return out
}

// choose finds a platform or feature by name.
func choose(what, name string, list []choice) (choice, error) {
	var names []string
	for _, c := range list {
		if c.Name == name {
			return c, nil
		}
		names = append(names, c.Name)
	}
	if near := check.Nearest(name, names); near != "" {
		return choice{}, fmt.Errorf("%w %s %q: did you mean %s?", ErrUnknown, what, name, near)
	}
	return choice{}, fmt.Errorf("%w %s %q: expected one of %s", ErrUnknown, what, name, strings.Join(names, ", "))
}

// generator builds a plan.
type generator struct {
	Request
	plan *Plan
	// words are the arguments of strings.NewReplacer: placeholders, each followed by its replacement.
	words []string
}

// Generate returns the plan for a request. Errors wrap ErrUnknown for an unknown name, ErrInvalid for an invalid
// argument, and ErrExcludes for features that exclude each other. They wrap ErrVersion if the release lacks a value,
// ErrMissing if a required option or argument is missing, and ErrImage for an unusable image.
func Generate(r Request) (*Plan, error) {
	p, err := choose("platform", r.Platform, choices().Platforms)
	if err != nil {
		return nil, err
	}
	r.Table, r.Registry = cmp.Or(r.Table, chart.Load()), strings.TrimSuffix(r.Registry, "/")
	r.Features = slices.Concat(p.Features, r.Features)
	plan := &Plan{Platform: r.Platform, Version: r.Version, Source: p.Source, about: p.About}
	plan.Namespace = cmp.Or(p.Namespace, "gpu-operator")
	words := []string{"{namespace}", plan.Namespace, "{version}", r.Version.String(), "{registry}", r.Registry}
	g := &generator{r, plan, words}
	if m := reference.FindStringSubmatch(r.Exporter); m != nil {
		g.words = append(g.words, "{repository}", m[1], "{image}", m[2], "{tag}", m[3]+m[4])
	} else if r.wants("exporter") {
		return nil, fmt.Errorf("%w %q, expected registry/path/name:tag", ErrImage, r.Exporter)
	}
	for _, word := range r.Features {
		if err := g.feature(word); err != nil {
			return nil, err
		}
	}
	g.words = append(g.words, "{switches}", g.switches())
	if err := g.add(p, p.addition); err != nil {
		return nil, err
	}
	if r.wants("vgpu") {
		g.pullSecret("driver.imagePullSecrets", r.PullSecret)
	}
	// with vgpu, the registry has only the driver image
	if r.Registry != "" && (!r.wants("vgpu") || r.Platform == "air-gapped") {
		g.mirror()
	}
	for _, v := range plan.Values {
		if k, known := r.Table.Key(v.Path); known && !k.In(r.Version) {
			const format = "%w: %s was added in %s; %s does not have it"
			return nil, fmt.Errorf(format, ErrVersion, v.Path, k.Since(), r.Version)
		}
	}
	return plan, nil
}

// wants reports whether the request includes the feature.
func (r Request) wants(name string) bool {
	return slices.ContainsFunc(r.Features, func(f string) bool { return f == name || strings.HasPrefix(f, name+"=") })
}

// has reports whether the release has the key.
func (r Request) has(path string) bool {
	k, known := r.Table.Key(chart.ParsePath(path))
	return known && k.In(r.Version)
}

// feature adds a feature of the request.
func (g *generator) feature(word string) error {
	name, argument, hasArgument := strings.Cut(word, "=")
	f, err := choose("feature", name, choices().Features)
	if err != nil {
		return err
	}
	for other, why := range f.Excludes {
		if g.wants(other) {
			return fmt.Errorf("%w: %s and %s: %s", ErrExcludes, name, other, why)
		}
	}
	argument = cmp.Or(argument, f.Default)
	with, known := f.With[argument]
	n, err := strconv.Atoi(argument)
	switch {
	case hasArgument && f.Argument == "":
		return fmt.Errorf("%w value %q: %s takes no value", ErrInvalid, argument, name)
	case f.Needed && argument == "":
		return fmt.Errorf("%w argument: write %s=%s", ErrMissing, name, f.Argument)
	case f.With != nil && !known:
		want := name + " or " + name + "=" + f.Argument
		return fmt.Errorf("%w value: found %s=%s, expected %s", ErrInvalid, name, argument, want)
	case f.Argument == "replicas" && (err != nil || n < 2 || f.Most > 0 && n > f.Most):
		want := "at least 2"
		if f.Most > 0 {
			want = fmt.Sprintf("2 to %d", f.Most)
		}
		return fmt.Errorf("%w number of replicas: %s=%s, expected %s", ErrInvalid, name, argument, want)
	}
	g.words = append([]string{"{argument}", argument}, g.words...)
	return cmp.Or(g.add(f, f.addition), g.add(f, with))
}

// add adds the values and steps of an addition to the plan, if their conditions hold. It fails if the choice needs a
// registry and the request has none.
func (g *generator) add(c choice, a addition) error {
	if c.Registry != "" && g.Registry == "" {
		return fmt.Errorf("%w: %s needs --registry: %s", ErrMissing, c.Name, c.Registry)
	}
	fill := strings.NewReplacer(g.words...).Replace
	holds := func(c condition) bool {
		return (c.Has == "" || g.has(c.Has)) && !g.has(c.Lacks) && !g.wants(c.Without)
	}
	for _, v := range a.Values {
		if text, isText := v.Value.(string); isText {
			v.Value = fill(text)
		}
		if holds(v.condition) {
			g.set(v.Path, v.Value, fill(v.Why))
		}
	}
	for _, s := range a.Before {
		if holds(s.condition) {
			g.plan.Before = append(g.plan.Before, Step{s.Why, fill(s.Command)})
		}
	}
	for _, s := range a.After {
		if holds(s.condition) {
			g.plan.After = append(g.plan.After, Step{s.Why, fill(s.Command)})
		}
	}
	return nil
}

// set appends a value to the plan. It removes an earlier value for the same path.
func (g *generator) set(path string, value any, why string) {
	isEarlier := func(s chart.Setting) bool { return s.Path.String() == path }
	g.plan.Values = append(slices.DeleteFunc(g.plan.Values, isEarlier), chart.Set(path, value, why))
}

// switches formats the plan's "enabled" values as options for gpuop images.
func (g *generator) switches() string {
	var sets strings.Builder
	for _, v := range g.plan.Values {
		if on, isBool := v.Value.(bool); isBool && v.Path[len(v.Path)-1] == "enabled" {
			fmt.Fprintf(&sets, " --set %s=%t", v.Path, on)
		}
	}
	return sets.String()
}

// mirror points the images of the plan to the private registry and keeps the path after the registry. Images whose
// repository the plan already sets are skipped.
func (g *generator) mirror() {
	own := slices.Clone(g.plan.Values)
	for _, image := range images.Components(g.Table, g.Version, own, images.Nodes{}, false) {
		_, path, _ := strings.Cut(image.Repository, "/")
		key := image.Operand + ".repository"
		switch {
		case image.Operand == "nfd":
			g.set("node-feature-discovery.image.repository", g.Registry+"/"+path+"/"+image.Image, "")
			g.pullSecret("node-feature-discovery.imagePullSecrets", map[string]any{"name": g.PullSecret})
		case !slices.ContainsFunc(own, func(s chart.Setting) bool { return s.Path.String() == key }):
			g.set(key, g.Registry+"/"+path, "")
			g.pullSecret(image.Operand+".imagePullSecrets", g.PullSecret)
		}
	}
}

// pullSecret sets the list at the path to the secret, if the request has a pull secret and the release has the key.
func (g *generator) pullSecret(path string, secret any) {
	if g.PullSecret != "" && g.has(path) {
		g.set(path, []any{secret}, "")
	}
}

// YAML renders the plan as a values file, with the command and the steps in comments at the top.
func (p *Plan) YAML(file string) ([]byte, error) {
	var head strings.Builder
	fmt.Fprintf(&head, "Values for the gpu-operator chart %s on %s: %s.\n", p.Version, p.Platform, p.about)
	fmt.Fprintf(&head, "Source: %s\n", p.Source)
	step := func(title, why, command string) {
		fmt.Fprintf(&head, "\n%s:%s\n  %s\n", title, why, strings.ReplaceAll(command, "\n", "\n  "))
	}
	for _, s := range p.Before {
		step("Before", " "+s.Why, s.Command)
	}
	step("Install", "", p.Command(file))
	for _, s := range p.After {
		step("After", " "+s.Why, s.Command)
	}
	return write(head.String(), p.Values)
}

// Command returns the helm command that installs the plan from the values file.
func (p *Plan) Command(file string) string {
	prepare := "helm repo add nvidia https://helm.ngc.nvidia.com/nvidia && helm repo update\n"
	from := "nvidia/gpu-operator"
	if p.Platform == "air-gapped" {
		prepare, from = "", "./gpu-operator-"+p.Version.String()+".tgz"
	}
	return prepare + "helm upgrade --install gpu-operator " + from + " \\\n" +
		"  --namespace " + p.Namespace + " --create-namespace --version " + p.Version.String() + " --wait \\\n" +
		"  --values " + file
}
