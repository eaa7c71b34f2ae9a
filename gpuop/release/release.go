// Package release reads the facts about a release from NVIDIA's gpu-operator chart. These are the values of the chart
// and its subcharts, the paths that templates read, and the fields of the custom resources.
//
// The chart is a folder or an archive of helm pull. The package renders no templates. The generator of gpuop's tables
// and --chart both use it.
package release

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	helm "helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
)

// ErrChart is returned for anything that is not a readable gpu-operator chart.
var ErrChart = errors.New("unreadable chart")

// Open reads a release from a chart's folder or archive. If there is no such file, the error wraps fs.ErrNotExist.
// Other errors wrap ErrChart.
func Open(name string) (*chart.Release, error) {
	c, err := loader.Load(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var r *chart.Release
	if err == nil {
		r, err = read(c, strings.TrimPrefix(strings.TrimSuffix(filepath.Base(name), ".tgz"), "gpu-operator-"))
	}
	if err != nil {
		return nil, fmt.Errorf("%w %s: %w", ErrChart, name, err)
	}
	return r, nil
}

// read reads a chart. A chart from the source tree has no release version, so its versions are taken from name.
func read(c *helm.Chart, name string) (*chart.Release, error) {
	d := c.Metadata
	if d.Name != "gpu-operator" {
		return nil, fmt.Errorf("the chart is %s, expected gpu-operator", d.Name)
	}
	r := &chart.Release{AppVersion: d.AppVersion, Values: map[string]any{}, Reads: map[string]chart.Use{}}
	var err error
	if r.Version, err = chart.ParseVersion(d.Version); err != nil || d.Version == "v1.0.0-devel" {
		if r.Version, err = chart.ParseVersion(name); err != nil {
			const advice = "name the folder or archive after the release, such as gpu-operator-v26.7.0"
			return nil, fmt.Errorf("version %q in Chart.yaml is not a release; %s", d.Version, advice)
		}
		r.AppVersion = r.Version.String()
	}
	if err := readTemplates(c.Templates, nil, r.Reads); err != nil {
		return nil, err
	}
	parts := map[string]any{}
	for _, sub := range c.Dependencies() {
		if sub.Name() == "node-feature-discovery" {
			r.Discovery = sub.Metadata.AppVersion
		}
		parts[sub.Name()] = sub.Values
		if err := readTemplates(sub.Templates, chart.Path{sub.Name()}, r.Reads); err != nil {
			return nil, err
		}
	}
	flatten(nil, c.Values, parts, r.Values)
	r.Fields, err = definitions(c.Files)
	return r, err
}

// flatten merges the values of a chart with those of its subcharts, as Helm does, and adds them to out by their dotted
// paths. null removes a subchart's default.
func flatten(at chart.Path, over, under, out map[string]any) {
	both := map[string]any{}
	maps.Copy(both, under)
	maps.Copy(both, over)
	for name, value := range both {
		path := append(slices.Clip(at), name)
		upper, isMap := value.(map[string]any)
		lower, _ := under[name].(map[string]any)
		switch {
		case value == nil && under[name] != nil:
		case isMap && len(upper)+len(lower) > 0:
			flatten(path, upper, lower, out)
		default:
			out[path.String()] = value
		}
	}
}

// definition is the part of a CustomResourceDefinition that gpuop's tables use.
type definition struct {
	Spec struct {
		Names      struct{ Kind string }
		Validation validation // in v1beta1, the schema is here
		Versions   []struct{ Schema validation }
	}
}

type validation struct {
	Schema *schema `yaml:"openAPIV3Schema"`
}

// schema is the part of a definition's OpenAPI schema that gpuop's tables use.
type schema struct {
	Type, Pattern    string
	Enum             []any
	Minimum, Maximum *float64
	Required         []string
	Default          any
	Properties       map[string]*schema
	Items            *schema
	Additional       yaml.Node `yaml:"additionalProperties"`
	IntOrText        bool      `yaml:"x-kubernetes-int-or-string"`
	Preserve         bool      `yaml:"x-kubernetes-preserve-unknown-fields"`
}

// definitions reads the fields of the custom resources in crds/.
func definitions(files []*helm.File) (map[chart.Parent][]*chart.Field, error) {
	out := map[chart.Parent][]*chart.Field{}
	for _, f := range files {
		if path.Dir(f.Name) != "crds" {
			continue
		}
		for text := range strings.SplitSeq("\n"+string(f.Data), "\n---") {
			var crd definition
			if err := yaml.Unmarshal([]byte(text), &crd); err != nil {
				return nil, fmt.Errorf("%s: %w", f.Name, err)
			}
			root := crd.Spec.Validation.Schema
			for _, v := range crd.Spec.Versions {
				root = cmp.Or(v.Schema.Schema, root)
			}
			if root != nil {
				root.addFields(chart.Parent{Kind: crd.Spec.Names.Kind}, out)
			}
		}
	}
	for at, list := range out {
		for _, f := range list {
			if _, err := regexp.Compile(f.Pattern); err != nil {
				return nil, fmt.Errorf("%s: %s: %w", at.Kind, f.Path, err)
			}
		}
	}
	return out, nil
}

// skipped lists top-level fields that are not settings.
var skipped = []string{"apiVersion", "kind", "metadata", "status"}

// addFields adds the fields below a schema, whose path is at, to out.
func (s *schema) addFields(at chart.Parent, out map[chart.Parent][]*chart.Field) {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if path := strings.TrimPrefix(at.Path+"."+name, "."); !slices.Contains(skipped, path) {
			s.Properties[name].add(at, path, slices.Contains(s.Required, name), out)
		}
	}
	s.Items.add(at, at.Path+"[]", false, out)
	s.additional().add(at, at.Path+"{}", false, out)
}

// additional returns the schema of a map's values, or nil.
func (s *schema) additional() (out *schema) {
	if s.Additional.Kind == yaml.MappingNode {
		_ = s.Additional.Decode(&out) // without a schema, any values are valid
	}
	return out
}

// add adds a field and the fields below it to out. A nil schema is no field.
func (s *schema) add(parent chart.Parent, at string, required bool, out map[chart.Parent][]*chart.Field) {
	if s == nil {
		return
	}
	f := &chart.Field{
		Path: at, Type: s.Type, Pattern: s.Pattern, Min: s.Minimum, Max: s.Maximum,
		Required: required, Default: s.Default != nil,
	}
	for _, e := range s.Enum {
		f.Enum = append(f.Enum, chart.Text(e))
	}
	out[parent] = append(out[parent], f)
	switch isObject := s.Type == "object"; {
	case s.IntOrText:
		f.Type = "int-or-string"
		return
	case isObject && !s.Preserve && s.additional() != nil:
		f.Type = "map"
	case s.Preserve || s.Type == "" || isObject && len(s.Properties) == 0:
		f.Type = "any"
		return
	}
	s.addFields(chart.Parent{Kind: parent.Kind, Path: at}, out)
}
