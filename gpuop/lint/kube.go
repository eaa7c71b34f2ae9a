package lint

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/finding"
)

// kubeTypes are Kubernetes' own types by the names that charts give to values of them.
var kubeTypes = map[string]reflect.Type{
	"resources":          reflect.TypeFor[corev1.ResourceRequirements](),
	"affinity":           reflect.TypeFor[corev1.Affinity](),
	"tolerations":        reflect.TypeFor[[]corev1.Toleration](),
	"securityContext":    reflect.TypeFor[corev1.SecurityContext](),
	"podSecurityContext": reflect.TypeFor[corev1.PodSecurityContext](),
	"livenessProbe":      reflect.TypeFor[corev1.Probe](),
	"readinessProbe":     reflect.TypeFor[corev1.Probe](),
	"startupProbe":       reflect.TypeFor[corev1.Probe](),
	"env":                reflect.TypeFor[[]corev1.EnvVar](),
	"extraEnvs":          reflect.TypeFor[[]corev1.EnvVar](),
}

var (
	quantityType = reflect.TypeFor[resource.Quantity]()
	intOrText    = reflect.TypeFor[intstr.IntOrString]()
	resourceList = reflect.TypeFor[corev1.ResourceList]()
)

// kubeFields are the fields of a struct of the API by their names in YAML.
func kubeFields(t reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			inner := f.Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			for n, t := range kubeFields(inner) {
				out[n] = t
			}
			continue
		}
		if name != "" && name != "-" {
			out[name] = f.Type
		}
	}
	return out
}

// isStruct reports whether the type is a struct of fields, not a value with a text of its own.
func isStruct(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && t != quantityType && t != intOrText && t.Name() != "Time" && t.Name() != "MicroTime" && t.Name() != "FieldsV1"
}

func names[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for name := range m {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// kubeJudge compares YAML with types of the Kubernetes API.
type kubeJudge struct {
	what string // what the API server refuses
	add  func(id string, severity finding.Severity, at *yaml.Node, subject, reason, fix, source string)
	// misplaced says where a field belongs that stands in a type of the wrong name.
	misplaced func(t reflect.Type, name string) string
	// mixed says that there may be fields of another type beside those of the outermost one.
	mixed bool
}

const sourceAPI = "Kubernetes API reference"

// value judges what a node holds.
func (j *kubeJudge) value(t reflect.Type, where string, n *yaml.Node) {
	n = fields.Resolve(n)
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == resourceList:
		j.resources(where, n)
	case isStruct(t), t.Kind() == reflect.Map:
		if n.Kind != yaml.MappingNode {
			j.wrong(n, where, "a group of keys")
			return
		}
		j.group(t, where, n)
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		if n.Kind != yaml.SequenceNode {
			j.wrong(n, where, "a list")
			return
		}
		for i, item := range n.Content {
			j.value(t.Elem(), fmt.Sprintf("%s[%d]", where, i), item)
		}
	default:
		j.scalar(t, where, n)
	}
}

func (j *kubeJudge) wrong(n *yaml.Node, where, want string) {
	fix := ""
	if want == "a text" && n.Kind == yaml.ScalarNode {
		fix = "write " + strconv.Quote(n.Value)
	}
	j.add("wrong-type", finding.Error, n, where, "found "+nodeText(n)+", want "+want+": the API server refuses "+j.what, fix, sourceAPI)
}

func (j *kubeJudge) group(t reflect.Type, where string, n *yaml.Node) {
	if t.Kind() == reflect.Map {
		for _, f := range fields.Of(n) {
			j.value(t.Elem(), where+"."+f.Name, f.Value)
		}
		return
	}
	known := kubeFields(t)
	for _, f := range fields.Of(n) {
		inner, ok := known[f.Name]
		if ok {
			j.value(inner, strings.TrimPrefix(where+"."+f.Name, "."), f.Value)
			continue
		}
		if j.mixed && where == "" && slipFor(f.Name, names(known)...) == "" {
			continue
		}
		fix := "delete it"
		if near := finding.Nearest(f.Name, names(known)); near != "" {
			fix = "write " + near
		} else if j.misplaced != nil {
			if place := j.misplaced(t, f.Name); place != "" {
				fix = place
			}
		}
		j.add("unknown-key", finding.Error, f.Key, strings.TrimPrefix(where+"."+f.Name, "."), "Kubernetes has no such field here: the API server drops it, or refuses "+j.what+" with strict validation", fix, sourceAPI)
	}
}

// plainResources are the names of resources without a domain.
var plainResources = []string{"cpu", "memory", "ephemeral-storage", "storage"}

func (j *kubeJudge) resources(where string, n *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		j.wrong(n, where, "a group of keys")
		return
	}
	for _, f := range fields.Of(n) {
		if !standardResource(f.Name) {
			fix := ""
			if near := finding.Nearest(f.Name, plainResources); near != "" {
				fix = "write " + near
			}
			j.add("unknown-key", finding.Error, f.Key, where+"."+f.Name, "Kubernetes has no such resource: the API server refuses "+j.what, fix, sourceAPI)
			continue
		}
		if !gpuResource(f.Name) {
			j.value(quantityType, where+"."+f.Name, f.Value)
		}
	}
}

// standardResource reports whether a resource is one of Kubernetes' own or has a domain; GPUs are
// judged by another rule.
func standardResource(name string) bool {
	return slices.Contains(plainResources, name) || strings.HasPrefix(name, "hugepages-") || strings.Contains(name, "/") || gpuResource(name)
}

func (j *kubeJudge) scalar(t reflect.Type, where string, n *yaml.Node) {
	if n.Kind != yaml.ScalarNode {
		j.wrong(n, where, "a single value")
		return
	}
	switch {
	case t == quantityType:
		if _, err := resource.ParseQuantity(n.Value); err != nil {
			j.wrong(n, where, "a quantity such as 500m or 2Gi")
		}
	case t == intOrText:
	case t.Kind() == reflect.Bool:
		if n.Tag != "!!bool" && !oldBool(n) {
			j.wrong(n, where, "true or false")
		}
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64:
		if n.Tag != "!!int" {
			j.wrong(n, where, "a whole number")
		}
	case t.Kind() == reflect.String:
		if n.Tag != "!!str" && n.Tag != "!!timestamp" || oldBool(n) {
			j.wrong(n, where, "a text")
		}
	}
}

// kubePath follows the path of a value into one of Kubernetes' own types: at is the index of the
// first name that the type does not have, and near the one that may be meant. ok is false when the
// path leads into none.
func kubePath(path chart.Path) (at int, near string, ok bool) {
	for i, name := range path {
		t, known := kubeTypes[name]
		if !known || i == 0 {
			continue
		}
		for n := i + 1; n < len(path); n++ {
			for t.Kind() == reflect.Pointer {
				t = t.Elem()
			}
			switch {
			case t == resourceList:
				if !standardResource(path[n]) {
					return n, finding.Nearest(path[n], plainResources), true
				}
				t = t.Elem()
			case isStruct(t):
				inner, has := kubeFields(t)[path[n]]
				if !has {
					return n, finding.Nearest(path[n], names(kubeFields(t))), true
				}
				t = inner
			case t.Kind() == reflect.Map:
				t = t.Elem()
			default:
				return n, "", true
			}
		}
		return len(path), "", true
	}
	return 0, "", false
}
