package lint

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

const sourceAPI = "Kubernetes API reference"

// A schema says what a value may be: by a field of a custom resource, or by a type of the Kubernetes API.
type schema struct {
	name string
	// kind is object, array, map, any or a scalar of scalarTags.
	kind  string
	field *chart.Field // nil for a type
	of    reflect.Type // nil for a field
	// below are the fields of an object, and element is what an array or a map holds.
	below   func() []*schema
	element func() *schema
}

// names are those of an object's fields.
func (s *schema) names() []string {
	var out []string
	for _, f := range s.below() {
		out = append(out, f.name)
	}
	return out
}

// child is a field of an object, or nil.
func (s *schema) child(name string) *schema {
	list := s.below()
	if i := slices.IndexFunc(list, func(f *schema) bool { return f.name == name }); i >= 0 {
		return list[i]
	}
	return nil
}

// schema is that of a field of the resource.
func (j *schemaJudge) schema(f *chart.Field) *schema {
	below := func() (out []*schema) {
		for _, inner := range j.table.Fields(j.version, j.kind, f.Path) {
			out = append(out, j.schema(inner))
		}
		return out
	}
	s := &schema{name: f.Name(), kind: f.Type, field: f, below: below}
	s.element = func() *schema {
		if list := below(); len(list) > 0 {
			return list[0]
		}
		return &schema{kind: "any"}
	}
	if known := below(); len(known) == 0 && f.Type == "object" {
		s.kind, s.element = "map", func() *schema { return &schema{kind: "any"} }
	}
	return s
}

// spec is the root of what is judged of a resource.
func (j *schemaJudge) spec() *schema { return j.schema(&chart.Field{Path: "spec", Type: "object"}) }

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

var resourceList = reflect.TypeFor[corev1.ResourceList]()

// typeSchema is the schema of a type of the API.
func typeSchema(name string, t reflect.Type) *schema {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	s := &schema{name: name, kind: "any", of: t, below: func() []*schema { return structFields(t) }}
	switch kind := t.Kind(); {
	case t == reflect.TypeFor[resource.Quantity]():
		s.kind = "quantity"
	case t == reflect.TypeFor[intstr.IntOrString](), slices.Contains([]string{"Time", "MicroTime", "FieldsV1"}, t.Name()):
		s.kind = "scalar"
	case kind == reflect.Struct:
		s.kind = "object"
	case kind == reflect.Map, kind == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		s.kind = map[reflect.Kind]string{reflect.Map: "map", reflect.Slice: "array"}[kind]
		s.element = func() *schema { return typeSchema("", t.Elem()) }
	case kind == reflect.Bool:
		s.kind = "boolean"
	case kind >= reflect.Int && kind <= reflect.Uint64:
		s.kind = "integer"
	case kind == reflect.String:
		s.kind = "string"
	}
	return s
}

// structFields are the fields of a struct of the API by their names in YAML.
func structFields(t reflect.Type) (out []*schema) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			out = append(out, typeSchema("", f.Type).below()...)
		case name != "" && name != "-":
			out = append(out, typeSchema(name, f.Type))
		}
	}
	slices.SortFunc(out, func(a, b *schema) int { return strings.Compare(a.name, b.name) })
	return out
}

// kubePath follows the path of a value into one of Kubernetes' own types: at is the index of the first name that the type
// does not have, and near the name that may be meant. ok is false where the path leads into none.
func kubePath(path chart.Path) (at int, near string, ok bool) {
	for i, name := range path {
		t, known := kubeTypes[name]
		if !known || i == 0 {
			continue
		}
		s := typeSchema(name, t)
		for n := i + 1; n < len(path); n++ {
			switch {
			case s.of == resourceList && !standardResource(path[n]):
				return n, report.Nearest(path[n], plainResources), true
			case s.kind == "map":
				s = s.element()
			case s.kind != "object":
				return n, "", true
			case s.child(path[n]) == nil:
				return n, report.Nearest(path[n], s.names()), true
			default:
				s = s.child(path[n])
			}
		}
		return len(path), "", true
	}
	return 0, "", false
}

// plainResources are the names of resources without a domain.
var plainResources = []string{"cpu", "memory", "ephemeral-storage", "storage"}

// standardResource reports whether a resource is one of Kubernetes' own or has a domain. Another rule judges GPUs.
func standardResource(name string) bool {
	return slices.Contains(plainResources, name) || strings.HasPrefix(name, "hugepages-") || strings.Contains(name, "/") || gpuResource(name)
}

// A schemaJudge compares YAML with a schema.
type schemaJudge struct {
	table   *chart.Table
	version chart.Version
	// kind is that of the custom resource; empty for a pod.
	kind string
	// partial says that the YAML is a patch, in which what is required may be missing.
	partial bool
	// mixed says that there may be fields of another type beside those of the outermost.
	mixed  bool
	reader *fields.Reader
}

func (j *schemaJudge) add(id string, severity report.State, at *yaml.Node, subject, reason, fix string) {
	source := sourceCRD
	if j.kind == "" {
		source = sourceAPI
	}
	j.reader.Findings = append(j.reader.Findings, report.Row{ID: id, State: severity, Line: at.Line, Column: at.Column, Subject: subject, Reason: reason, Fix: fix, Source: source})
}

// wrong reports a value of another type.
func (j *schemaJudge) wrong(n *yaml.Node, where, want, fix string) {
	refuses := "the API server refuses it"
	if j.kind == "" {
		refuses = "the API server refuses the pod"
	}
	j.add("wrong-type", report.Failed, n, where, "found "+nodeText(n)+", want "+want+": "+refuses, fix)
}

// value judges a node; where is its name in findings.
func (j *schemaJudge) value(s *schema, where string, n *yaml.Node) {
	n = fields.Resolve(n)
	if fields.IsNull(n) || s.kind == "any" {
		return
	}
	if model.UnknownNode(n) {
		if s.of != nil && s.kind != "string" {
			j.add("not-judged", report.Note, n, where, filledIn, "")
		}
		return
	}
	switch s.kind {
	case "object", "map":
		if n.Kind != yaml.MappingNode {
			j.wrong(n, where, "a group of keys", "")
			return
		}
		j.group(s, where, n)
	case "array":
		if n.Kind != yaml.SequenceNode {
			j.wrong(n, where, "a list", "")
			return
		}
		for i, item := range n.Content {
			j.value(s.element(), fmt.Sprintf("%s[%d]", where, i), item)
		}
	default:
		j.scalar(s, where, n)
	}
}

func (j *schemaJudge) group(s *schema, where string, n *yaml.Node) {
	present := map[string]bool{}
	for _, f := range j.reader.Mapping(n, where) {
		subject := strings.TrimPrefix(where+"."+f.Name, ".")
		inner := (*schema)(nil)
		switch {
		case s.of == resourceList && !standardResource(f.Name):
			j.add("unknown-key", report.Failed, f.Key, subject, "Kubernetes has no such resource: the API server refuses the pod", write(f.Name, plainResources, ""))
			continue
		case s.of == resourceList && gpuResource(f.Name):
			continue
		case s.kind == "map":
			inner = s.element()
		default:
			inner = s.child(f.Name)
		}
		if inner == nil {
			j.unknown(s, subject, where == "", f)
			continue
		}
		present[f.Name] = true
		j.value(inner, subject, f.Value)
	}
	if s.kind == "map" || s.of != nil || j.partial {
		return
	}
	var missing []string
	for _, f := range s.below() {
		if f.field.Required && !f.field.Default && !present[f.name] {
			missing = append(missing, where+"."+f.name)
		}
	}
	if len(missing) > 0 {
		j.add("missing-field", report.Failed, n, strings.Join(missing, ", "), "missing: the API server refuses the "+j.kind+" without", "")
	}
}

// fieldAliases are names that articles and other tools give to fields.
var fieldAliases = map[string]string{"gpuFeatureDiscovery": "gfd", "containerToolkit": "toolkit", "gpuPodDeletion": "podDeletion"}

// unknown reports a field that an object does not have.
func (j *schemaJudge) unknown(s *schema, subject string, outermost bool, f fields.Field) {
	known := s.names()
	if j.mixed && outermost && slipFor(f.Name, known...) == "" {
		return
	}
	fix := "delete it"
	if near := report.Nearest(f.Name, known); near != "" {
		fix = "write " + near
	} else if right := fieldAliases[f.Name]; slices.Contains(known, right) {
		fix = "write " + right
	} else if place := misplaced(s.of, f.Name); place != "" {
		fix = place
	}
	if s.of != nil {
		j.add("unknown-key", report.Failed, f.Key, subject, "Kubernetes has no such field here: the API server drops it, or refuses the pod with strict validation", fix)
		return
	}
	reason := fmt.Sprintf("the %s has no such field: the API server drops it, or refuses the object with strict validation", j.kind)
	for _, v := range j.table.Versions() {
		if _, ok := j.table.Field(v, j.kind, strings.TrimPrefix(s.field.Path+"."+f.Name, ".")); !ok {
			continue
		}
		reason = fmt.Sprintf("the %s of %s has no such field any more: the API server drops it", j.kind, j.version)
		if j.version.Before(v) {
			reason = fmt.Sprintf("the field came with %s: the API server of %s drops it", v, j.version)
		}
		break
	}
	j.add("unknown-field", report.Failed, f.Key, subject, reason, fix)
}

// scalarTags are the YAML tags that a scalar of a kind takes.
var scalarTags = map[string]struct {
	tags []string
	want string
}{
	"boolean":       {[]string{"!!bool"}, "true or false"},
	"integer":       {[]string{"!!int"}, "a whole number"},
	"number":        {[]string{"!!int", "!!float"}, "a number"},
	"string":        {[]string{"!!str", "!!timestamp"}, "a string"},
	"int-or-string": {[]string{"!!str", "!!int"}, "a number or a string"},
	"quantity":      {[]string{"!!str", "!!int", "!!float"}, "a quantity such as 500m or 2Gi"},
	"scalar":        {[]string{"!!str", "!!int", "!!float", "!!bool", "!!timestamp"}, "a single value"},
}

func (j *schemaJudge) scalar(s *schema, where string, n *yaml.Node) {
	t := scalarTags[s.kind]
	right := n.Kind == yaml.ScalarNode && slices.Contains(t.tags, n.Tag)
	switch {
	case s.kind == "boolean":
		right = right || oldBool(n)
	case s.of != nil && s.kind == "string":
		right = right && !oldBool(n)
	case s.kind == "quantity" && right:
		_, err := resource.ParseQuantity(n.Value)
		right = err == nil
	}
	known := s.field
	if known == nil {
		known = &chart.Field{Type: s.kind}
	}
	if !right {
		j.wrong(n, where, t.want, retyped(known, n, t.tags))
		return
	}
	if len(known.Enum) > 0 && !slices.Contains(known.Enum, n.Value) {
		fix := write(strings.ToLower(n.Value), known.Enum, "")
		j.add("wrong-value", report.Failed, n, where, fmt.Sprintf("found %q, want %s; the API server refuses it", n.Value, alternatives(known.Enum)), fix)
		return
	}
	number, err := strconv.ParseFloat(n.Value, 64)
	if err == nil && outside(known, number) {
		j.add("wrong-value", report.Failed, n, where, "found "+n.Value+", which is out of the range that the API server accepts", "")
	}
	if known.Pattern != "" && n.Tag == "!!str" {
		if want, err := regexp.Compile(known.Pattern); err == nil && !want.MatchString(n.Value) {
			j.add("wrong-value", report.Failed, n, where, fmt.Sprintf("found %q, want what matches %s; the API server refuses it", n.Value, known.Pattern), "")
		}
	}
}

// outside reports whether a number is out of the range of its field.
func outside(f *chart.Field, number float64) bool {
	return f.Min != nil && number < *f.Min || f.Max != nil && number > *f.Max
}

// retyped is how the value would be written in the type of the field, or "".
func retyped(known *chart.Field, n *yaml.Node, tags []string) string {
	if n.Kind != yaml.ScalarNode {
		return ""
	}
	if known.Type == "string" {
		if want, err := regexp.Compile(known.Pattern); err == nil && !want.MatchString(n.Value) {
			return "write what matches " + known.Pattern
		}
		return "write " + strconv.Quote(n.Value)
	}
	return fields.Unquote(n, tags...)
}

// oldBool reports whether YAML 1.1, which Kubernetes and Helm read, takes the plain word for true or false.
func oldBool(n *yaml.Node) bool {
	return n.Style == 0 && n.Tag == "!!str" && oldBools.MatchString(n.Value)
}

var oldBools = regexp.MustCompile(`^(y|Y|yes|Yes|YES|on|On|ON|n|N|no|No|NO|off|Off|OFF)$`)

// nodeText says what a node holds.
func nodeText(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a group of keys"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Tag == "!!str":
		return "the text " + strconv.Quote(n.Value)
	}
	return n.Value
}
