package lint

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// enumerations are the values that a key accepts by the comments of values.yaml alone.
var enumerations = map[string][]string{
	"sandboxWorkloads.mode":                      {"kubevirt", "kata"},
	"driver.nvidiaDriverCRD.driverType":          {"gpu", "vgpu", "vgpu-host-manager"},
	"dcgmExporter.service.internalTrafficPolicy": {"Cluster", "Local"},
	"operator.logging.timeEncoding":              {"epoch", "millis", "nano", "iso8601", "rfc3339", "rfc3339nano"},
}

var pullPolicies = []string{"Always", "IfNotPresent", "Never"}

// allowed are the values that the setting may have; nil for any.
func (in *installation) allowed(s *model.Setting) []string {
	last := s.Path[len(s.Path)-1]
	switch {
	case last == "imagePullPolicy" || s.Name() == "node-feature-discovery.image.pullPolicy":
		return pullPolicies
	case s.Name() == "migManager.config.default" && !in.Version.Before(mustVersion(in.Table, "v26.3.0")):
		return []string{"all-disabled", ""}
	}
	if list := enumerations[s.Name()]; list != nil {
		return list
	}
	if f, ok := in.Table.PolicyField(in.Version, s.Path); ok && f.Type == "string" {
		return f.Enum
	}
	return nil
}

// types judges each value against what the chart has there, or the custom resource that it is copied into.
func (in *installation) types() {
	for _, s := range in.Settings {
		v := in.Verdict(s)
		if v.Status != chart.Known && v.Status != chart.Free || s.Unknown || s.Value == nil || s.Edit.Rename != nil {
			continue
		}
		if f, ok := in.Table.CopiedField(in.Version, s.Path); ok && s.Element == "" {
			in.against(s, f)
			continue
		}
		if v.Status == chart.Free {
			continue
		}
		if k, ok := in.Table.Key(s.Path); ok && k.In(in.Version) && s.Element == "" && !in.shape(k, s) {
			continue
		}
		in.content(s, v.Key)
	}
}

// shape judges a setting against the key's shape; false says that it is of another.
func (in *installation) shape(k *chart.Key, s *model.Setting) bool {
	_, isList := s.Value.([]any)
	_, isMap := s.Value.(map[string]any)
	empty := s.Text() == "" && !isList && !isMap
	want := ""
	switch shape := k.Shape(in.Version); {
	case shape == chart.List && !isList && !empty:
		want = "a list"
	case shape == chart.Map && !isMap && !empty:
		want = "a group of keys"
	case shape == chart.Scalar && (isList || isMap):
		want = "a single value"
	case shape == chart.Scalar:
		in.scalar(k, s)
		return false
	}
	if want != "" {
		in.add("wrong-type", report.Failed, fmt.Sprintf("found %s, want %s", describe(s.Value), want), "", sourceValues, s)
	}
	return want == ""
}

// scalar judges a single value: words of an enumeration, booleans and numbers.
func (in *installation) scalar(k *chart.Key, s *model.Setting) {
	if allowed := in.allowed(s); allowed != nil {
		if !slices.Contains(allowed, s.Text()) {
			in.enumeration(s, allowed)
		}
		return
	}
	value, _ := k.Default(in.Version)
	f, typed := in.Table.PolicyField(in.Version, s.Path)
	_, isBool := value.(bool)
	_, isNumber := value.(float64)
	switch {
	case isBool || typed && f.Type == "boolean":
		in.bool(k, s)
	case isNumber && (!typed || f.Type != "int-or-string") || typed && f.Type == "integer":
		number, err := strconv.ParseFloat(s.Text(), 64)
		if err != nil {
			in.add("wrong-value", report.Failed, fmt.Sprintf("found %s, want a number", describe(s.Value)), "", sourceValues, s)
		} else if typed && outside(f, number) {
			in.add("wrong-value", report.Failed, "found "+s.Text()+", which is out of the range that the API server accepts", "", sourceCRD, s)
		}
	}
}

// content judges what the chart copies into the ClusterPolicy as it is.
func (in *installation) content(s *model.Setting, k *chart.Key) {
	if k == nil || k.Use(in.Version) != chart.Copied {
		return
	}
	f, ok := in.Table.PolicyElement(in.Version, s.Path, model.ListIndex.ReplaceAllString(s.Element, "[]"))
	if ok {
		in.against(s, f)
	}
}

// against judges a setting by the field of the ClusterPolicy that takes it as it is written.
func (in *installation) against(s *model.Setting, f *chart.Field) {
	node := s.Node
	if node == nil {
		node = &yaml.Node{}
		if node.Encode(s.Value) != nil {
			return
		}
	}
	v := &validator{table: in.Table, version: in.Version, kind: "ClusterPolicy", reader: &fields.Reader{}}
	v.value(f, s.Name(), node)
	for _, found := range v.reader.Findings {
		m := mistake{found, []*model.Setting{s}}
		m.File = s.File
		if s.Node == nil {
			m.Line, m.Column = s.Line, s.Column
		} else {
			m.Line += s.Shift
		}
		if found.ID == "unknown-field" {
			m.ID = "unknown-key"
		}
		if found.ID == "wrong-type" && f.Type == "string" && model.ScalarText(s.Value) != "" && in.alone(s) {
			s.AsString = true
			m.Fix = cmp.Or(s.AsText, "write --set-string")
		}
		if found.ID == "wrong-type" && s.Node != nil && strings.HasPrefix(found.Fix, `write "`) {
			s.Edit.Tree = quoted(cmp.Or(s.Edit.Tree, s.Node), found.Line, found.Column)
		}
		in.mistakes = append(in.mistakes, m)
	}
}

// quoted returns a copy of the value with a text at the place; nil where anchors or aliases forbid a copy.
func quoted(n *yaml.Node, line, column int) *yaml.Node {
	if n.Anchor != "" || n.Kind == yaml.AliasNode {
		return nil
	}
	out := *n
	if n.Kind == yaml.ScalarNode && n.Line == line && n.Column == column {
		out.Tag, out.Style = "!!str", yaml.DoubleQuotedStyle
	}
	out.Content = make([]*yaml.Node, len(n.Content))
	for i, c := range n.Content {
		if out.Content[i] = quoted(c, line, column); out.Content[i] == nil {
			return nil
		}
	}
	return &out
}

// alone reports whether a --set may become --set-string, which Helm applies last: no other flag decides the value.
func (in *installation) alone(s *model.Setting) bool {
	in.Index()
	return s.Typed && !in.opaque && !slices.ContainsFunc(in.ByName[s.Name()], func(other *model.Setting) bool { return other != s && !other.Edit.Drop })
}

func (in *installation) enumeration(s *model.Setting, allowed []string) {
	quoted := make([]string, len(allowed))
	for i, a := range allowed {
		quoted[i] = a
		if a == "" {
			quoted[i] = `""`
		}
	}
	fix := ""
	if near := report.Nearest(strings.ToLower(s.Text()), allowed); near != "" {
		fix = "write " + near
		s.Edit.Value = &near
	}
	found := strconv.Quote(s.Text())
	if fix == "" && !fields.Plain(s.Text()) {
		found = "a text"
	}
	in.add("wrong-value", report.Failed, fmt.Sprintf("found %s, want %s; the API server refuses the ClusterPolicy", found, alternatives(quoted)), fix, sourceCRD, s)
}

// compared are switches that a template compares with true or false, and the release since when: for a text
// Helm ends there, where other templates print or test it. From templates/validations.yaml.
var compared = map[string]string{"cdi.enabled": "v26.3.0", "cdi.nriPluginEnabled": "v26.7.0"}

// bool judges a switch. Kubernetes and Helm read YAML 1.1, in which yes and no are booleans too; a
// text, though, is true wherever a condition tests it, even "false".
func (in *installation) bool(k *chart.Key, s *model.Setting) {
	_, isText := s.Value.(string)
	plain := isText && (s.Node == nil && s.Typed || s.Node != nil && s.Node.Style == 0)
	text := s.Text()
	condition := s.Name() == "nfd.enabled" || k.Use(in.Version) == chart.Tested
	if since, ok := compared[s.Name()]; ok && isText && !in.Version.Before(mustVersion(in.Table, since)) && (s.Node == nil || !plain || !oldBools.MatchString(text)) {
		fix := "write true or false without quotes"
		if s.Node == nil {
			fix = "write --set " + s.Name() + "=true, or false"
		}
		in.add("wrong-type", report.Failed, fmt.Sprintf("found the text %q, want true or false: a template compares it, and helm ends with incompatible types", text), fix, sourceTemplates, s)
		return
	}
	switch {
	case !isText && (text == "true" || text == "false"), plain && oldBools.MatchString(text):
		return
	case (text == "true" || text == "false") && !condition:
		return
	case text == "true" || text == "false":
		if text == "false" {
			in.add("wrong-type", report.Failed, `found the text "false", want false: Helm takes any text for true here, and the switch stays on`, "write false without quotes", model.SourceHelm, s)
		}
		return
	}
	fix := "write true or false"
	if near := report.Nearest(strings.ToLower(text), []string{"true", "false"}); near != "" {
		fix = "write " + near
		s.Edit.Value = &near
	} else if text == "1" || text == "0" {
		value := strconv.FormatBool(text == "1")
		fix, s.Edit.Value = "write "+value, &value
	}
	in.add("wrong-value", report.Failed, fmt.Sprintf("found %s, want true or false", describe(s.Value)), fix, sourceValues, s)
}

func describe(v any) string {
	switch v := v.(type) {
	case nil:
		return "nothing"
	case []any:
		return "a list"
	case map[string]any:
		return "a group of keys"
	case string:
		if !fields.Plain(v) {
			return "a text"
		}
		return fmt.Sprintf("%q", v)
	default:
		return model.ScalarText(v)
	}
}

func alternatives(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}
