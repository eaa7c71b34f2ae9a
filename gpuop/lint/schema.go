package lint

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/input"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// A validator compares YAML with the fields of a custom resource. Values that the chart copies into one are judged alike.
type validator struct {
	table   *chart.Table
	version chart.Version
	// kind is that of the custom resource.
	kind string
	// partial says that the YAML is a patch, in which what is required may be missing.
	partial bool
	// assumed says that the release is not known, so that a field of an earlier one may be right.
	assumed bool
	reader  *fields.Reader
}

// specField is the field of a resource below which it is judged.
var specField = &chart.Field{Path: "spec", Type: "object"}

func (v *validator) add(id report.ID, at *yaml.Node, subject, reason, fix string) {
	v.reader.Findings = append(v.reader.Findings, report.Row{
		ID: id, State: report.Failed, Line: at.Line, Column: at.Column, Subject: subject, Reason: reason, Fix: fix, Source: sourceCRD,
	})
}

// wrong reports a value of another type.
func (v *validator) wrong(n *yaml.Node, where, want, fix string) {
	v.add("wrong-type", n, where, "found "+nodeText(n)+", want "+want+": the API server refuses it", fix)
}

// value judges a node as the field; where is its name in findings.
func (v *validator) value(f *chart.Field, where string, n *yaml.Node) {
	n = fields.Resolve(n)
	if fields.IsNull(n) || f.Type == "any" || model.UnknownNode(n) {
		return
	}
	switch f.Type {
	case "object", "map":
		if n.Kind != yaml.MappingNode {
			v.wrong(n, where, "a group of keys", "")
			return
		}
		v.group(f, where, n)
	case "array":
		if n.Kind != yaml.SequenceNode {
			v.wrong(n, where, "a list", "")
			return
		}
		for _, element := range v.below(f) {
			for i, item := range n.Content {
				v.value(element, fmt.Sprintf("%s[%d]", where, i), item)
			}
		}
	default:
		v.scalar(f, where, n)
	}
}

// below are the fields of an object, or the one of the elements of an array or map.
func (v *validator) below(f *chart.Field) []*chart.Field {
	return v.table.Fields(v.version, v.kind, f.Path)
}

func (v *validator) group(f *chart.Field, where string, n *yaml.Node) {
	known, present := v.below(f), map[string]bool{}
	for _, key := range v.reader.Mapping(n, where) {
		at := slices.IndexFunc(known, func(inner *chart.Field) bool { return f.Type == "map" || inner.Name() == key.Name })
		switch {
		case len(known) == 0: // any names do
		case at < 0:
			v.unknown(f, known, where+"."+key.Name, key)
		default:
			present[key.Name] = true
			v.value(known[at], where+"."+key.Name, key.Value)
		}
	}
	if f.Type == "map" || v.partial {
		return
	}
	var missing []string
	for _, inner := range known {
		if inner.Required && !inner.Default && !present[inner.Name()] {
			missing = append(missing, where+"."+inner.Name())
		}
	}
	if len(missing) > 0 {
		v.add("missing-field", n, strings.Join(missing, ", "), "missing: the API server refuses the "+v.kind+" without", "")
	}
}

// fieldAliases are names that articles and other tools give to fields.
var fieldAliases = map[string]string{"gpuFeatureDiscovery": "gfd", "containerToolkit": "toolkit", "gpuPodDeletion": "podDeletion"}

// unknown reports a field that an object does not have.
func (v *validator) unknown(f *chart.Field, known []*chart.Field, subject string, key fields.Field) {
	var names []string
	for _, inner := range known {
		names = append(names, inner.Name())
	}
	fix := write(key.Name, names, "delete it")
	if right := fieldAliases[key.Name]; slices.Contains(names, right) {
		fix = "write " + right
	}
	if fix == "delete it" && key.Value != nil && strings.Contains(key.Value.Value, input.Filled) {
		return // a condition of the template may leave it out
	}
	state := report.Failed
	reason := fmt.Sprintf("the %s has no such field: the API server drops it, or refuses the object with strict validation", v.kind)
	for _, other := range v.table.Versions() {
		if _, ok := v.table.Field(other, v.kind, strings.TrimPrefix(f.Path+"."+key.Name, ".")); !ok {
			continue
		}
		reason = fmt.Sprintf("the %s of %s has no such field any more: the API server drops it", v.kind, v.version)
		if v.assumed {
			state = report.Warning
		}
		if v.version.Before(other) {
			reason = fmt.Sprintf("the field came with %s: the API server of %s drops it", other, v.version)
		}
		break
	}
	v.add("unknown-field", key.Key, subject, reason, fix)
	v.reader.Findings[len(v.reader.Findings)-1].State = state
}

// scalarTags are the YAML tags that a scalar of a type takes.
var scalarTags = map[string]struct {
	tags []string
	want string
}{
	"boolean":       {[]string{"!!bool"}, "true or false"},
	"integer":       {[]string{"!!int"}, "a whole number"},
	"number":        {[]string{"!!int", "!!float"}, "a number"},
	"string":        {[]string{"!!str", "!!timestamp"}, "a string"},
	"int-or-string": {[]string{"!!str", "!!int"}, "a number or a string"},
}

func (v *validator) scalar(f *chart.Field, where string, n *yaml.Node) {
	t := scalarTags[f.Type]
	if right := n.Kind == yaml.ScalarNode && slices.Contains(t.tags, n.Tag); !right && !(f.Type == "boolean" && oldBool(n)) {
		v.wrong(n, where, t.want, retyped(f, n, t.tags))
		return
	}
	if len(f.Enum) > 0 && !slices.Contains(f.Enum, n.Value) {
		v.add("wrong-value", n, where, fmt.Sprintf("found %q, want %s; the API server refuses it", n.Value, alternatives(f.Enum)), write(strings.ToLower(n.Value), f.Enum, ""))
		return
	}
	if number, err := strconv.ParseFloat(n.Value, 64); err == nil && outside(f, number) {
		v.add("wrong-value", n, where, "found "+n.Value+", which is out of the range that the API server accepts", "")
	}
	if f.Pattern != "" && n.Tag == "!!str" {
		if want, err := regexp.Compile(f.Pattern); err == nil && !want.MatchString(n.Value) {
			v.add("wrong-value", n, where, fmt.Sprintf("found %q, want what matches %s; the API server refuses it", n.Value, f.Pattern), "")
		}
	}
}

// outside reports whether a number is out of the range of its field.
func outside(f *chart.Field, number float64) bool {
	return f.Min != nil && number < *f.Min || f.Max != nil && number > *f.Max
}

// retyped is how the value would be written in the type of the field, or "".
func retyped(f *chart.Field, n *yaml.Node, tags []string) string {
	if n.Kind != yaml.ScalarNode {
		return ""
	}
	if f.Type == "string" {
		if want, err := regexp.Compile(f.Pattern); err == nil && !want.MatchString(n.Value) {
			return "write what matches " + f.Pattern
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
