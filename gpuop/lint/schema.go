package lint

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/finding"
)

// A schemaJudge compares YAML with the fields of a custom resource.
type schemaJudge struct {
	table   *chart.Table
	version chart.Version
	kind    string
	// partial says that the YAML is a patch, in which what is required may be missing.
	partial bool
	reader  *fields.Reader
}

func (j *schemaJudge) add(id string, severity finding.Severity, at *yaml.Node, subject, reason, fix string) {
	j.reader.Findings = append(j.reader.Findings, finding.Finding{ID: id, Severity: severity, Line: at.Line, Column: at.Column, Subject: subject, Reason: reason, Fix: fix, Source: sourceCRD})
}

// below judges what a node holds against the fields below the path of its own field; where is the
// node's name in findings.
func (j *schemaJudge) below(path, where string, n *yaml.Node) {
	known := j.table.Fields(j.version, j.kind, path)
	if len(known) == 0 {
		return
	}
	n = fields.Resolve(n)
	switch known[0].Name() {
	case "[]":
		for i, item := range n.Content {
			j.value(known[0], fmt.Sprintf("%s[%d]", where, i), item)
		}
	case "{}":
		for _, f := range j.reader.Mapping(n, where) {
			j.value(known[0], where+"."+f.Name, f.Value)
		}
	default:
		j.object(known, path, where, n)
	}
}

// fieldAliases are names that articles and other tools give to fields.
var fieldAliases = map[string]string{"gpuFeatureDiscovery": "gfd", "containerToolkit": "toolkit", "gpuPodDeletion": "podDeletion"}

func (j *schemaJudge) object(known []*chart.Field, path, where string, n *yaml.Node) {
	names := make([]string, len(known))
	for i, f := range known {
		names[i] = f.Name()
	}
	present := map[string]bool{}
	for _, f := range j.reader.Mapping(n, where) {
		i := slices.Index(names, f.Name)
		if i < 0 {
			j.unknown(names, path, where, f)
			continue
		}
		present[f.Name] = true
		j.value(known[i], where+"."+f.Name, f.Value)
	}
	var missing []string
	for _, f := range known {
		if f.Required && !f.Default && !present[f.Name()] {
			missing = append(missing, where+"."+f.Name())
		}
	}
	if len(missing) > 0 && !j.partial {
		j.add("missing-field", finding.Error, n, strings.Join(missing, ", "), "missing: the API server refuses the "+j.kind+" without", "")
	}
}

func (j *schemaJudge) unknown(names []string, path, where string, f fields.Field) {
	fix := "delete it"
	if near := finding.Nearest(f.Name, names); near != "" {
		fix = "write " + near
	} else if right := fieldAliases[f.Name]; slices.Contains(names, right) {
		fix = "write " + right
	}
	for _, v := range j.table.Versions() {
		if _, ok := j.table.Field(v, j.kind, strings.TrimPrefix(path+"."+f.Name, ".")); !ok {
			continue
		}
		reason := fmt.Sprintf("the %s of %s has no such field any more: the API server drops it", j.kind, j.version)
		if j.version.Before(v) {
			reason = fmt.Sprintf("the field came with %s: the API server of %s drops it", v, j.version)
		}
		j.add("unknown-field", finding.Error, f.Key, where+"."+f.Name, reason, fix)
		return
	}
	j.add("unknown-field", finding.Error, f.Key, where+"."+f.Name, fmt.Sprintf("the %s has no such field: the API server drops it, or refuses the object with strict validation", j.kind), fix)
}

// scalarTags are the YAML tags that a field of a type takes.
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

// value judges one value against its field.
func (j *schemaJudge) value(known *chart.Field, where string, n *yaml.Node) {
	n = fields.Resolve(n)
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" || known.Type == "any" || unknownNode(n) {
		return
	}
	switch known.Type {
	case "object", "map":
		if n.Kind != yaml.MappingNode {
			j.add("wrong-type", finding.Error, n, where, "found "+nodeText(n)+", want a group of keys", "")
			return
		}
		j.below(known.Path, where, n)
	case "array":
		if n.Kind != yaml.SequenceNode {
			j.add("wrong-type", finding.Error, n, where, "found "+nodeText(n)+", want a list", "")
			return
		}
		j.below(known.Path, where, n)
	default:
		j.scalar(known, where, n)
	}
}

func (j *schemaJudge) scalar(known *chart.Field, where string, n *yaml.Node) {
	t := scalarTags[known.Type]
	if n.Kind != yaml.ScalarNode || !slices.Contains(t.tags, n.Tag) && !(known.Type == "boolean" && oldBool(n)) {
		j.add("wrong-type", finding.Error, n, where, "found "+nodeText(n)+", want "+t.want+": the API server refuses it", retyped(known, n, t.tags))
		return
	}
	if len(known.Enum) > 0 && !slices.Contains(known.Enum, n.Value) {
		fix := ""
		if near := finding.Nearest(strings.ToLower(n.Value), known.Enum); near != "" {
			fix = "write " + near
		}
		j.add("wrong-value", finding.Error, n, where, fmt.Sprintf("found %q, want %s; the API server refuses it", n.Value, alternatives(known.Enum)), fix)
		return
	}
	number, err := strconv.ParseFloat(n.Value, 64)
	if err == nil && outside(known, number) {
		j.add("wrong-value", finding.Error, n, where, "found "+n.Value+", which is out of the range that the API server accepts", "")
	}
	if known.Pattern != "" && n.Tag == "!!str" {
		if want, err := regexp.Compile(known.Pattern); err == nil && !want.MatchString(n.Value) {
			j.add("wrong-value", finding.Error, n, where, fmt.Sprintf("found %q, want what matches %s; the API server refuses it", n.Value, known.Pattern), "")
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
	var plain yaml.Node
	if n.Tag == "!!str" && n.Value != "" && yaml.Unmarshal([]byte(n.Value), &plain) == nil && len(plain.Content) == 1 && slices.Contains(tags, plain.Content[0].Tag) {
		return "write " + n.Value + " without quotes"
	}
	return ""
}

// oldBool reports whether Kubernetes and Helm, which read YAML 1.1, take the plain word for true or
// false.
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
