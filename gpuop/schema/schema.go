// Package schema validates YAML against the custom resource definitions of a GPU Operator release: types, values,
// required and unknown fields. The fields come from package chart.
package schema

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"
)

// Validator validates YAML against the fields of a custom resource. It also validates the chart's values. Most values
// keep their YAML type when the chart copies them into a ClusterPolicy. A value that a template prints as text loses
// its type.
type Validator struct {
	Table   *chart.Table
	Version chart.Version
	// Kind is the kind of the custom resource.
	Kind string
	// Partial means that the YAML is a patch, which may lack required fields.
	Partial bool
	// Assumed means that the release is a guess. Fields that only other releases have are then warnings, not errors.
	Assumed bool
	// Printed means that a template prints the values as text.
	Printed bool
	// Reader collects the findings.
	Reader *fields.Reader
	// Near is the valid word nearest to an invalid scalar, or "". Value sets it.
	Near string
}

// Spec is the field "spec" of a custom resource.
var Spec = &chart.Field{Path: "spec", Type: "object"}

// Add adds an error about a node.
func (v *Validator) Add(id *check.Check, at *yaml.Node, subject, reason, fix string) {
	v.Reader.Add(id, check.Error, at, subject, reason, fix)
}

// wrong reports a value that is not of the field's type. want describes the valid values.
func (v *Validator) wrong(id *check.Check, n *yaml.Node, where, want, fix string) {
	reason := "found " + fields.Describe(n) + ", want " + want
	if !v.Printed {
		reason += ": the API server rejects it"
	}
	v.Add(id, n, where, reason, fix)
}

// Value validates a node as the value of a field. where is the path of the field in findings.
func (v *Validator) Value(f *chart.Field, where string, n *yaml.Node) {
	n = fields.Resolve(n)
	isEmptyText := v.Printed && n != nil && n.Kind == yaml.ScalarNode && n.Value == ""
	switch isGroup := f.Type == "object" || f.Type == "map"; {
	case fields.IsNull(n) || f.Type == "any" || model.UnknownNode(n):
	case !isGroup && f.Type != "array":
		v.scalar(f, where, n)
	case isEmptyText:
	case isGroup && n.Kind == yaml.MappingNode:
		v.group(f, where, n)
	case isGroup:
		v.wrong(fields.WrongType, n, where, "a group of keys", "")
	case n.Kind != yaml.SequenceNode:
		v.wrong(fields.WrongType, n, where, "a list", "")
	default:
		for _, element := range v.below(f) {
			for i, item := range n.Content {
				v.Value(element, fmt.Sprintf("%s[%d]", where, i), item)
			}
		}
	}
}

// below returns the child fields of an object. An array or a map has one, which describes its elements.
func (v *Validator) below(f *chart.Field) []*chart.Field {
	return v.Table.Fields(v.Version, v.Kind, f.Path)
}

func (v *Validator) group(f *chart.Field, where string, n *yaml.Node) {
	known, present := v.below(f), map[string]bool{}
	for _, key := range v.Reader.Mapping(n, where) {
		isKey := func(inner *chart.Field) bool { return f.Type == "map" || inner.Name() == key.Name }
		at := slices.IndexFunc(known, isKey)
		switch {
		case len(known) == 0: // no fields are known: any names are valid
		case at < 0:
			v.unknown(f, known, where+"."+key.Name, key)
		default:
			present[key.Name] = true
			v.Value(known[at], where+"."+key.Name, key.Value)
		}
	}
	var missing []string
	for _, inner := range known {
		if inner.Required && !inner.Default && !present[inner.Name()] && !v.Partial {
			missing = append(missing, where+"."+inner.Name())
		}
	}
	severity, what := check.Error, "the "
	if v.Kind == "ClusterPolicy" && where == "spec" && len(missing) > len(present) {
		severity, what = check.Warning, "a new " // probably a patch for the object that the chart creates
	}
	if len(missing) > 0 {
		reason := "required but missing: the API server rejects " + what + v.Kind
		v.Reader.Add(MissingField, severity, n, strings.Join(missing, ", "), reason, "")
	}
}

// fieldAliases maps names that articles and other tools use to the real names of fields.
var fieldAliases = map[string]string{
	"gpuFeatureDiscovery": "gfd",
	"containerToolkit":    "toolkit",
}

const deleteIt = "delete it"

// unknown reports an unknown field of an object.
func (v *Validator) unknown(f *chart.Field, known []*chart.Field, subject string, key fields.Field) {
	var names []string
	for _, inner := range known {
		names = append(names, inner.Name())
	}
	fix := check.Suggest(key.Name, names, deleteIt)
	if right := fieldAliases[key.Name]; slices.Contains(names, right) {
		fix = "write " + right
	}
	severity, reason := check.Error, v.Kind+" has no such field: the API server drops it, or "+
		"rejects the object with strict validation"
	for _, other := range v.Table.Versions() {
		if v.Table.Field(other, v.Kind, strings.TrimPrefix(f.Path+"."+key.Name, ".")) == nil {
			continue
		}
		reason = fmt.Sprintf("%s has no such field in %s (%s has it): the API server drops it",
			v.Kind, v.Version, other)
		if v.Assumed {
			severity = check.Warning
		}
		break
	}
	v.Reader.Add(UnknownField, severity, key.Key, subject, reason, fix)
	if fix == deleteIt { // nothing is suggested, so the finding can be merged with others
		v.Reader.Findings[len(v.Reader.Findings)-1].Cause = reason
	}
}

// scalarTypes lists the YAML tags that each type accepts, and describes its values for messages.
var scalarTypes = map[string]struct {
	tags []string
	want string
}{
	"boolean":       {[]string{"!!bool"}, "true or false"},
	"integer":       {[]string{"!!int"}, "a whole number"},
	"number":        {[]string{"!!int", "!!float"}, "a number"},
	"string":        {[]string{"!!str", "!!timestamp"}, "a string"},
	"int-or-string": {[]string{"!!str", "!!int"}, "a number or a string"},
}

// oldBool matches words that are booleans only in YAML 1.1, which Kubernetes and Helm read.
var oldBool = regexp.MustCompile(`^(y|Y|yes|Yes|YES|on|On|ON|n|N|no|No|NO|off|Off|OFF)$`)

func (v *Validator) scalar(f *chart.Field, where string, n *yaml.Node) {
	t, isScalar := scalarTypes[f.Type], n.Kind == yaml.ScalarNode
	tag, mismatch := n.Tag, fields.WrongType
	if v.Printed && isScalar { // printed values have no type; only their text can be wrong
		tag = (&yaml.Node{Kind: yaml.ScalarNode, Value: n.Value}).ShortTag()
		mismatch = WrongValue
	}
	isOldBool := f.Type == "boolean" && tag == "!!str" && n.Style == 0 && oldBool.MatchString(n.Value)
	isText := v.Printed && f.Type == "string"
	if !isScalar || !isOldBool && !isText && !slices.Contains(t.tags, tag) {
		fix := fields.Retype(n, t.tags...)
		if v.Printed && f.Type == "boolean" {
			v.Near = check.Nearest(n.Value, []string{"true", "false"})
			fix = check.Suggest(n.Value, []string{"true", "false"}, fix)
		}
		v.wrong(mismatch, n, where, t.want, fix)
		return
	}
	enum := f.Values(model.ListIndex.ReplaceAllString(where, "[]"))
	number, err := strconv.ParseFloat(n.Value, 64)
	switch {
	case enum != nil && !slices.Contains(enum, n.Value):
		found, fix := fields.Describe(n), ""
		if v.Near = check.Nearest(n.Value, enum); v.Near != "" {
			found, fix = strconv.Quote(n.Value), "write "+v.Near
		}
		reason := fmt.Sprintf("found %s, expected %s; the API server rejects it", found, alternatives(enum))
		v.Add(WrongValue, n, where, reason, fix)
	case err == nil && f.Min != nil && number < *f.Min:
		v.Add(WrongValue, n, where, fmt.Sprintf("found %s, expected at least %v", n.Value, *f.Min), "")
	case err == nil && f.Max != nil && number > *f.Max:
		v.Add(WrongValue, n, where, fmt.Sprintf("found %s, expected at most %v", n.Value, *f.Max), "")
	case tag == "!!str" && !regexp.MustCompile(f.Pattern).MatchString(n.Value): // package release tests the patterns
		reason := fmt.Sprintf("found %q, expected a match of %s; the API server rejects it", n.Value, f.Pattern)
		v.Add(WrongValue, n, where, reason, "")
	}
}

func alternatives(words []string) string {
	last := len(words) - 1
	quoted := slices.Clone(words)
	for i, w := range words {
		quoted[i] = cmp.Or(w, `""`)
	}
	return strings.TrimPrefix(strings.Join(quoted[:last], ", ")+" or "+quoted[last], " or ")
}
