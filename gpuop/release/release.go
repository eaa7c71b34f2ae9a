package release

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
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
	r := &chart.Release{AppVersion: d.AppVersion, Values: coalesce(c.Values, nil), Reads: map[string]chart.Use{}}
	var err error
	if r.Version, err = chart.ParseVersion(d.Version); err != nil || d.Version == "v1.0.0-devel" {
		if r.Version, err = chart.ParseVersion(name); err != nil {
			const advice = "name the folder or archive after the release, such as gpu-operator-v26.7.0"
			return nil, fmt.Errorf("version %q in Chart.yaml is not a release; %s", d.Version, advice)
		}
		r.AppVersion = r.Version.String()
	}
	if err := readTemplates(c.Templates, nil, r); err != nil {
		return nil, err
	}
	for _, sub := range c.Dependencies() {
		if sub.Name() == "node-feature-discovery" {
			r.Discovery = sub.Metadata.AppVersion
		}
		// the chart's values override those of the subchart
		own, _ := r.Values[sub.Name()].(map[string]any)
		r.Values[sub.Name()] = coalesce(own, sub.Values)
		if err := readTemplates(sub.Templates, chart.Path{sub.Name()}, r); err != nil {
			return nil, err
		}
	}
	r.Fields, err = definitions(c.Files)
	return r, err
}

// coalesce merges over into under, as Helm merges a chart's values into those of a subchart. null removes a default.
func coalesce(over, under map[string]any) map[string]any {
	out := maps.Clone(under)
	if out == nil {
		out = map[string]any{}
	}
	for k, v := range over {
		upper, isMap := v.(map[string]any)
		lower, both := out[k].(map[string]any)
		switch {
		case v == nil && out[k] != nil:
			delete(out, k)
		case isMap && both:
			out[k] = coalesce(upper, lower)
		default:
			out[k] = v
		}
	}
	return out
}

// definitions reads the fields of the custom resources in crds/.
func definitions(files []*helm.File) (map[string][]chart.Field, error) {
	var out map[string][]chart.Field
	for _, f := range files {
		if path.Dir(f.Name) != "crds" {
			continue
		}
		for text := range strings.SplitSeq("\n"+string(f.Data), "\n---") {
			var crd struct {
				Kind string `yaml:"kind"`
				Spec struct {
					Names struct {
						Kind string `yaml:"kind"`
					} `yaml:"names"`
					// in v1beta1, the schema is here
					Validation struct {
						Schema *schema `yaml:"openAPIV3Schema"`
					} `yaml:"validation"`
					Versions []struct {
						Schema struct {
							Schema *schema `yaml:"openAPIV3Schema"`
						} `yaml:"schema"`
					} `yaml:"versions"`
				} `yaml:"spec"`
			}
			if err := yaml.Unmarshal([]byte(text), &crd); err != nil {
				return nil, fmt.Errorf("%s: %w", f.Name, err)
			}
			if crd.Kind != "CustomResourceDefinition" {
				continue
			}
			root := crd.Spec.Validation.Schema
			if n := len(crd.Spec.Versions); n > 0 && crd.Spec.Versions[n-1].Schema.Schema != nil {
				root = crd.Spec.Versions[n-1].Schema.Schema
			}
			if root == nil {
				continue
			}
			if out == nil {
				out = map[string][]chart.Field{}
			}
			list := root.fields("", nil)
			for _, field := range list {
				if _, err := regexp.Compile(field.Pattern); err != nil {
					return nil, fmt.Errorf("%s: %s: %w", f.Name, field.Path, err)
				}
			}
			out[crd.Spec.Names.Kind] = list
		}
	}
	return out, nil
}

// schema is the part of a CRD's OpenAPI schema that gpuop's tables use.
type schema struct {
	Type       string             `yaml:"type"`
	Enum       []any              `yaml:"enum"`
	Pattern    string             `yaml:"pattern"`
	Minimum    *float64           `yaml:"minimum"`
	Maximum    *float64           `yaml:"maximum"`
	Required   []string           `yaml:"required"`
	Default    any                `yaml:"default"`
	Properties map[string]*schema `yaml:"properties"`
	Items      *schema            `yaml:"items"`
	Additional yaml.Node          `yaml:"additionalProperties"`
	IntOrText  bool               `yaml:"x-kubernetes-int-or-string"`
	Preserve   bool               `yaml:"x-kubernetes-preserve-unknown-fields"`
}

func (s *schema) kind() string {
	switch {
	case s.IntOrText:
		return "int-or-string"
	case s.Preserve, s.Type == "":
		return "any"
	case s.Type == "object" && s.additional() != nil:
		return "map"
	case s.Type == "object" && len(s.Properties) == 0:
		return "any"
	}
	return s.Type
}

func (s *schema) additional() *schema {
	if s.Additional.Kind != yaml.MappingNode {
		return nil
	}
	var inner schema
	if s.Additional.Decode(&inner) != nil {
		return nil
	}
	return &inner
}

// skipped lists top-level fields that are not settings.
var skipped = []string{"apiVersion", "kind", "metadata", "status"}

// fields appends the fields of a schema to out. at is the path of the schema.
func (s *schema) fields(at string, out []chart.Field) []chart.Field {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		p := s.Properties[name]
		if p == nil || at == "" && slices.Contains(skipped, name) {
			continue
		}
		out = p.field(strings.TrimPrefix(at+"."+name, "."), slices.Contains(s.Required, name), out)
	}
	if s.Items != nil {
		out = s.Items.field(at+"[]", false, out)
	}
	if inner := s.additional(); inner != nil {
		out = inner.field(at+"{}", false, out)
	}
	return out
}

func (s *schema) field(at string, required bool, out []chart.Field) []chart.Field {
	f := chart.Field{
		Path: at, Type: s.kind(), Pattern: s.Pattern, Min: s.Minimum, Max: s.Maximum,
		Required: required, Default: s.Default != nil,
	}
	for _, e := range s.Enum {
		text := fmt.Sprint(e)
		if n, isNumber := e.(float64); isNumber {
			text = strconv.FormatFloat(n, 'f', -1, 64)
		}
		f.Enum = append(f.Enum, text)
	}
	out = append(out, f)
	if f.Type == "any" || f.Type == "int-or-string" {
		return out
	}
	return s.fields(at, out)
}
