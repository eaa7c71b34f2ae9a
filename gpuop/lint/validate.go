package lint

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// A validator compares YAML with the fields of a custom resource. Values of the chart are compared alike: copied into
// the ClusterPolicy they keep their YAML type, printed by a template they lose their quotes.
type validator struct {
	table   *chart.Table
	version chart.Version
	// kind is that of the custom resource.
	kind string
	// partial says that the YAML is a patch, which may lack required fields.
	partial bool
	// assumed says that the release is not known, so that a field of an earlier one may be right.
	assumed bool
	// printed says that a template prints the values.
	printed bool
	reader  *fields.Reader
	// near is the word that a scalar is a slip for.
	near string
}

// specField is the field of a resource below which it is judged.
var specField = &chart.Field{Path: "spec", Type: "object"}

func (v *validator) add(id report.ID, at *yaml.Node, subject, reason, fix string) {
	v.reader.Add(id, report.Failed, at, subject, reason, fix)
}

// wrong reports a value of another type.
func (v *validator) wrong(id report.ID, n *yaml.Node, where, want, fix string) {
	reason := "found " + fields.Describe(n) + ", want " + want
	if !v.printed {
		reason += ": the API server refuses it"
	}
	v.add(id, n, where, reason, fix)
}

// value judges a node as the field; where is its name in findings.
func (v *validator) value(f *chart.Field, where string, n *yaml.Node) {
	n = fields.Resolve(n)
	if fields.IsNull(n) || f.Type == "any" || model.UnknownNode(n) {
		return
	}
	scalar := n.Kind == yaml.ScalarNode
	switch f.Type {
	case "object", "map":
		if n.Kind == yaml.MappingNode {
			v.group(f, where, n)
		} else if !scalar || !v.printed || n.Value != "" {
			v.wrong("wrong-type", n, where, "a group of keys", "")
		}
	case "array":
		if n.Kind != yaml.SequenceNode && (!scalar || !v.printed || n.Value != "") {
			v.wrong("wrong-type", n, where, "a list", "")
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
	switch {
	case v.kind == "ClusterPolicy" && where == "spec" && len(missing) > len(present): // kubectl applies a part over the object of the chart
		v.reader.Add("missing-field", report.Warning, n, strings.Join(missing, ", "), "missing: the API server refuses a new "+v.kind+" without", "")
	case len(missing) > 0:
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
	fix := report.Suggest(key.Name, names, "delete it")
	if right := fieldAliases[key.Name]; slices.Contains(names, right) {
		fix = "write " + right
	}
	state := report.Failed
	reason := fmt.Sprintf("the %s has no such field: the API server drops it, or refuses the object with strict validation", v.kind)
	for _, other := range v.table.Versions() {
		if _, ok := v.table.Field(other, v.kind, strings.TrimPrefix(f.Path+"."+key.Name, ".")); !ok {
			continue
		}
		reason = fmt.Sprintf("the %s of %s has no such field, that of %s has: the API server drops it", v.kind, v.version, other)
		if v.assumed {
			state = report.Warning
		}
		break
	}
	v.reader.Add("unknown-field", state, key.Key, subject, reason, fix)
}

// scalarTypes are the YAML tags that a scalar of a type takes.
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

func (v *validator) scalar(f *chart.Field, where string, n *yaml.Node) {
	t := scalarTypes[f.Type]
	tag := n.Tag
	if v.printed && n.Kind == yaml.ScalarNode {
		tag = (&yaml.Node{Kind: yaml.ScalarNode, Value: n.Value}).ShortTag()
	}
	// YAML 1.1, which Kubernetes and Helm read, has more words for true and false
	right := slices.Contains(t.tags, tag) || v.printed && f.Type == "string" || f.Type == "boolean" && tag == "!!str" && n.Style == 0 && oldBools.MatchString(n.Value)
	if n.Kind != yaml.ScalarNode || !right {
		id := report.ID("wrong-type")
		if v.printed && n.Kind == yaml.ScalarNode {
			id = "wrong-value" // printed text has no type
		}
		v.wrong(id, n, where, t.want, v.retyped(f, n, t.tags))
		return
	}
	if enum := f.Values(model.ListIndex.ReplaceAllString(where, "[]")); enum != nil && !slices.Contains(enum, n.Value) {
		found, fix := fields.Describe(n), ""
		if near := report.Nearest(n.Value, enum); near != "" {
			found, fix = strconv.Quote(n.Value), "write "+near
			v.near = near
		}
		v.add("wrong-value", n, where, fmt.Sprintf("found %s, want %s; the API server refuses it", found, alternatives(enum)), fix)
		return
	}
	if number, err := strconv.ParseFloat(n.Value, 64); err == nil && (f.Min != nil && number < *f.Min || f.Max != nil && number > *f.Max) {
		v.add("wrong-value", n, where, "found "+n.Value+", which is out of the range that the API server accepts", "")
	}
	if want, err := regexp.Compile(f.Pattern); err == nil && tag == "!!str" && !want.MatchString(n.Value) {
		v.add("wrong-value", n, where, fmt.Sprintf("found %q, want what matches %s; the API server refuses it", n.Value, f.Pattern), "")
	}
}

// retyped is how the value would be written in the type of the field, or "".
func (v *validator) retyped(f *chart.Field, n *yaml.Node, tags []string) string {
	if n.Kind != yaml.ScalarNode {
		return ""
	}
	switch f.Type {
	case "string":
		return "write " + strconv.Quote(n.Value)
	case "boolean":
		meant := report.Nearest(n.Value, []string{"true", "false"})
		if meant != "" && v.printed {
			v.near = meant
			return "write " + meant
		}
	}
	return fields.Unquote(n, tags...)
}

var oldBools = regexp.MustCompile(`^(y|Y|yes|Yes|YES|on|On|ON|n|N|no|No|NO|off|Off|OFF)$`)

// types judges each value by the chart's key, or by the field of the custom resource that it is copied into.
func (in *installation) types() {
	for _, s := range in.Settings {
		v := in.Verdict(s)
		if v.Status != chart.Known && v.Status != chart.Free || s.Unknown || s.Value == nil || in.correction(s).Rename != nil {
			continue
		}
		if f, ok := in.Table.CopiedField(in.Version, s.Path); ok && s.Element == "" {
			in.against(s, f, false)
			continue
		}
		if v.Status == chart.Free {
			continue
		}
		k, exact := in.Table.Key(s.Path)
		exact = exact && k.In(in.Version) && s.Element == ""
		if exact && (in.textForSwitch(k, s) || in.against(s, in.Table.PrintedField(in.Version, k), true)) || v.Key.Use(in.Version) != chart.Copied {
			continue
		}
		if f, ok := in.Table.PolicyElement(in.Version, s.Path, model.ListIndex.ReplaceAllString(s.Element, "[]")); ok && (!exact || f.Shape() != chart.Scalar) {
			in.against(s, f, false)
		}
	}
}

// against judges a setting by a field, and reports whether something is wrong with it.
func (in *installation) against(s *model.Setting, f *chart.Field, printed bool) bool {
	node := s.Node
	if node == nil {
		node = &yaml.Node{}
		if node.Encode(s.Value) != nil {
			return false
		}
		if printed && s.Typed {
			node.Style = 0 // as --set has it
		}
	}
	v := &validator{table: in.Table, version: in.Version, kind: "ClusterPolicy", printed: printed, reader: &fields.Reader{}}
	v.value(f, s.Name(), node)
	for _, found := range v.reader.Findings {
		m := mistake{Row: found, settings: []*model.Setting{s}}
		m.File = s.File
		if s.Node == nil {
			m.Line, m.Column = s.Line, s.Column
		} else {
			m.Line += s.Shift
		}
		if found.ID == "unknown-field" {
			m.ID = "unknown-key"
		}
		if found.ID == "wrong-type" && f.Type == "string" && s.Text() != "" && s.Typed {
			m.Fix = cmp.Or(s.AsText, "write --set-string")
		}
		in.mistakes = append(in.mistakes, m)
	}
	if v.near != "" && node.Kind == yaml.ScalarNode {
		in.set(s, v.near)
	}
	return len(v.reader.Findings) > 0
}

// textForSwitch reports a text where a template tests a switch: a condition takes any text for true, even "false". Unquoted
// yes and no are no texts for Helm.
func (in *installation) textForSwitch(k *chart.Key, s *model.Setting) bool {
	text, isText := s.Value.(string)
	quoted := s.Node == nil && !s.Typed || s.Node != nil && s.Node.Style != 0
	if !isText || !quoted && oldBools.MatchString(text) && s.Node != nil {
		return false
	}
	if text != "false" || s.Name() != "nfd.enabled" && k.Use(in.Version) != chart.Tested {
		return false
	}
	in.add("wrong-type", report.Failed, `found the text "false", want false: Helm takes any text for true here, and the switch stays on`, "write false without quotes", s)
	return true
}

func alternatives(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		if quoted[i] = w; w == "" {
			quoted[i] = `""`
		}
	}
	if len(words) < 2 {
		return strings.Join(quoted, "")
	}
	return strings.Join(quoted[:len(words)-1], ", ") + " or " + quoted[len(words)-1]
}

// apiVersions are the versions of the operator's resources.
var apiVersions = map[kind]string{kindClusterPolicy: "nvidia.com/v1", kindNVIDIADriver: "nvidia.com/v1alpha1", kindGPUCluster: "nvidia.com/v1alpha1"}

// resource judges a ClusterPolicy, NVIDIADriver or GPUCluster.
func (r *run) resource(d *doc) {
	v := &validator{table: r.table, version: r.orLatest(), kind: string(d.kind), partial: d.partial || r.isPatch(d.file),
		assumed: r.version == (chart.Version{}), reader: d.reader}
	if found, want := fields.Text(d.root, "apiVersion"), apiVersions[d.kind]; found != want && !(d.partial && found == "") {
		v.add("api-version", cmp.Or(fields.Get(d.root, "apiVersion"), d.root), "apiVersion", fmt.Sprintf("found %s; the %s is of %s", cmp.Or(found, "nothing"), d.kind, want), "write "+want)
	}
	if spec := fields.Get(d.root, "spec"); spec != nil {
		v.value(specField, "spec", spec)
		if selector := fields.Get(spec, "nodeSelector"); d.kind == kindNVIDIADriver && fields.Text(spec, "default") == "true" && selector != nil && len(selector.Content) > 0 {
			v.add("excludes", selector, "spec.nodeSelector", "the API server refuses it: the default driver is for the nodes that no other selects", "delete nodeSelector, or default: true")
		}
		r.rulesOf(d, spec, v.assumed)
	}
	r.report(d, v.reader.Findings)
}

// rulesOf applies the rules about values to a resource, whose fields have the names of the chart's keys.
func (r *run) rulesOf(d *doc, spec *yaml.Node, assumed bool) {
	ofDriver := d.kind == kindNVIDIADriver
	var prefix chart.Path
	if ofDriver {
		prefix = chart.Path{"driver"}
	}
	in := newInstallation(r.table, r.orLatest(), model.Flatten(&fields.Reader{}, d.file, d.line, prefix, spec))
	in.kind, in.assumed = d.kind, assumed
	for _, s := range in.Settings {
		switch s.Name() {
		case "driver.gds.enabled", "driver.gdrcopy.enabled":
			s.Path, s.Called = s.Path[1:], ""
		}
	}
	if !d.partial { // what the other values are is not known
		in.judge()
	}
	for i := range in.mistakes {
		m := &in.mistakes[i]
		if ofDriver {
			m.Subject = strings.ReplaceAll(m.Subject, "driver.", "")
		}
		m.Subject = "spec." + m.Subject
	}
	r.add(d.file, in.findings()...)
	r.configUses(in, "spec.")
}
