// Package values generates values for the gpu-operator chart: for a platform with features, which choices.yaml defines,
// or by migrating a values file to another release. It writes no files.
package values

import (
	"bytes"
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

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
	ErrImage    = errors.New("unusable image") // not registry/path/name:tag
)

// Request selects the platform, features and release of a values file.
type Request struct {
	Platform string
	Features []string // names, some with =value: "time-slicing=4"
	Version  chart.Version
	Table    *chart.Table // nil means the built-in table
	// Registry is a private registry, with an optional path, that replaces nvcr.io and registry.k8s.io.
	Registry   string
	PullSecret string // the name of the Secret for the registry
	Exporter   string // the image of the feature "exporter"
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

// reference matches an image reference. Its groups are the repository, the name, and the tag or digest.
var reference = regexp.MustCompile(`^([a-z0-9.-]+(?::[0-9]+)?(?:/[a-z0-9._-]+)*)/([a-zA-Z0-9-]+)` +
	`(?::([A-Za-z0-9_][A-Za-z0-9._-]{0,127})|@(sha256:[0-9a-f]{64}))$`)

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
	plan := &Plan{Platform: r.Platform, Version: r.Version, Source: p.Source, about: p.About,
		Namespace: cmp.Or(p.Namespace, "gpu-operator")}
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
	switches := "" // options for gpuop images
	for _, s := range plan.Values {
		if on, isBool := s.Value.(bool); isBool && s.Path[len(s.Path)-1] == "enabled" {
			switches += fmt.Sprintf(" --set %s=%t", s.Path, on)
		}
	}
	g.words = append(g.words, "{switches}", switches)
	if err := g.add(p, p.addition, ""); err != nil {
		return nil, err
	}
	if r.wants("vgpu") {
		g.pullSecret("driver.imagePullSecrets", r.PullSecret)
	}
	// with vgpu, the registry has only the driver image
	if r.Registry != "" && (!r.wants("vgpu") || r.Platform == "air-gapped") {
		g.mirror()
	}
	for _, s := range plan.Values {
		if k, known := r.Table.Key(s.Path); known && !k.In(r.Version) {
			const format = "%w: %s was added in %s; %s does not have it"
			return nil, fmt.Errorf(format, ErrVersion, s.Path, k.Since(), r.Version)
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
	want := ""
	switch {
	case f.Needed && argument == "":
		return fmt.Errorf("%w argument: write %s=%s", ErrMissing, name, f.Argument)
	case hasArgument && f.Argument == "":
		want = name + " without a value"
	case f.With != nil && !known:
		want = name + " or " + name + "=" + f.Argument
	case f.Argument == "replicas" && (err != nil || n < 2 || f.Most > 0 && n > f.Most):
		want = "2 or more replicas"
		if f.Most > 0 {
			want = fmt.Sprintf("2 to %d replicas", f.Most)
		}
	}
	if want != "" {
		return fmt.Errorf("%w value: found %s=%s, expected %s", ErrInvalid, name, argument, want)
	}
	return cmp.Or(g.add(f, f.addition, argument), g.add(f, with, argument))
}

// add adds an addition to the plan, as far as its conditions hold. It fails if the choice needs a registry.
func (g *generator) add(c choice, a addition, argument string) error {
	if c.Registry != "" && g.Registry == "" {
		return fmt.Errorf("%w: %s needs --registry: %s", ErrMissing, c.Name, c.Registry)
	}
	fill := strings.NewReplacer(append(g.words, "{argument}", argument)...).Replace
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

// mirror points the images of the plan to the private registry, unless the plan sets their repository.
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

// YAML renders the plan as a values file, with the command and the steps in comments at the top, and the reason of each
// value above it.
func (p *Plan) YAML(file string) ([]byte, error) {
	head := fmt.Sprintf("Values for the gpu-operator chart %s on %s: %s.\nSource: %s\n",
		p.Version, p.Platform, p.about, p.Source)
	step := func(title, command string) {
		head += fmt.Sprintf("\n%s\n  %s\n", title, strings.ReplaceAll(command, "\n", "\n  "))
	}
	for _, s := range p.Before {
		step("Before: "+s.Why, s.Command)
	}
	step("Install:", p.Command(file))
	for _, s := range p.After {
		step("After: "+s.Why, s.Command)
	}
	root := &yaml.Node{Kind: yaml.MappingNode}
	for _, s := range p.Values {
		if err := put(root, s.Path, s); err != nil {
			return nil, fmt.Errorf("%s: %w", s.Path, err)
		}
	}
	var out bytes.Buffer
	for line := range strings.SplitSeq(strings.TrimSpace(head), "\n") {
		out.WriteString(strings.TrimRight("# "+line, " ") + "\n")
	}
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	err := cmp.Or(enc.Encode(root), enc.Close())
	return out.Bytes(), err
}

// put sets a value at a path of a mapping, with its reason as the comment above the key. It creates missing groups.
func put(n *yaml.Node, path chart.Path, s chart.Setting) error {
	at := 0
	for at < len(n.Content) && n.Content[at].Value != path[0] {
		at += 2
	}
	if at == len(n.Content) {
		n.Content = append(n.Content,
			&yaml.Node{Kind: yaml.ScalarNode, Value: path[0]}, &yaml.Node{Kind: yaml.MappingNode})
	}
	if len(path) > 1 {
		return put(n.Content[at+1], path[1:], s)
	}
	n.Content[at].HeadComment = strings.Join(check.Fold(s.Origin, 96), "\n")
	return n.Content[at+1].Encode(s.Value)
}

// Command returns the helm command that installs the plan from the values file.
func (p *Plan) Command(file string) string {
	const add = "helm repo add nvidia https://helm.ngc.nvidia.com/nvidia && helm repo update\n"
	prepare, from := add, "nvidia/gpu-operator"
	if p.Platform == "air-gapped" {
		prepare, from = "", "./gpu-operator-"+p.Version.String()+".tgz"
	}
	return fmt.Sprintf("%shelm upgrade --install gpu-operator %s \\\n"+
		"  --namespace %s --create-namespace --version %s --wait \\\n  --values %s",
		prepare, from, p.Namespace, p.Version, file)
}

//go:embed choices.yaml
var choicesText []byte

// choice is a platform or a feature. choices.yaml describes the fields. Most is 0 if there is no limit.
type choice struct {
	Name, About       string
	Namespace, Source string // only of platforms, like Features
	Features          []string
	Argument, Default string
	Most              int
	Needed            bool
	With              map[string]addition
	Excludes          map[string]string
	Registry          string
	addition          `yaml:",inline"`
}

// addition is the settings and steps that a choice adds to a plan.
type addition struct {
	Values []struct {
		Path, Why string
		Value     any
		condition `yaml:",inline"`
	}
	Before, After []struct {
		Step      `yaml:",inline"`
		condition `yaml:",inline"`
	}
}

// condition restricts when a value or step is added. Empty fields do not restrict.
type condition struct{ Has, Lacks, Without string }

// Step is a command to run in addition to helm, or a manifest to apply.
type Step struct {
	Why     string `json:"why"`
	Command string `json:"command"`
}

var choices = sync.OnceValue(func() (t struct{ Platforms, Features []choice }) {
	_ = yaml.Unmarshal(choicesText, &t) // cannot fail: a test parses the file
	return t
})

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

func choose(what, name string, list []choice) (choice, error) {
	var names []string
	for _, c := range list {
		if c.Name == name {
			return c, nil
		}
		names = append(names, c.Name)
	}
	hint := check.Ask(name, names, "expected one of these")
	return choice{}, fmt.Errorf("%w %s %q: %s (%ss: %s)", ErrUnknown, what, name, hint, what, strings.Join(names, ", "))
}
