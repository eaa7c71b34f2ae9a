package chart

import (
	"encoding/json"
	"slices"
	"strings"
)

// Field is a field of a custom resource. It is named by its path from the root, such as spec.driver.env[].name. The
// path of a list's elements ends in [], and that of a map's values ends in {}.
type Field struct {
	Path string `json:"-"`
	// Type is boolean, integer, number, string, object, array, map, any or int-or-string.
	Type     string   `json:"type"`
	Enum     []string `json:"enum,omitempty"`
	Pattern  string   `json:"pattern,omitempty"`
	Min      *float64 `json:"min,omitempty"`
	Max      *float64 `json:"max,omitempty"`
	Required bool     `json:"required,omitempty"`
	// Default means that the API server sets a default. The field is then optional.
	Default bool   `json:"default,omitempty"`
	at      []bool // whether each release of the table has the field
}

// Shape returns the shape of the chart's value for the field.
func (f *Field) Shape() Shape {
	switch f.Type {
	case "array":
		return List
	case "object", "map":
		return Map
	case "any":
		return Any
	}
	return Scalar
}

func (t *Table) addField(columns []string, in []int) error {
	f := &Field{Path: columns[1], at: make([]bool, len(t.releases))}
	for _, i := range in {
		f.at[i] = true
	}
	t.putField(columns[0], f)
	return json.Unmarshal([]byte(columns[3]), f)
}

func (t *Table) putField(kind string, f *Field) {
	if t.fields[kind] == nil {
		t.fields[kind] = map[string][]*Field{}
	}
	parent, _ := cutField(f.Path)
	t.fields[kind][parent] = append(t.fields[kind][parent], f)
}

// cutField splits the path of a field into the path of its parent and its name.
func cutField(path string) (parent, name string) {
	if rest, found := strings.CutSuffix(path, "[]"); found {
		return rest, "[]"
	}
	if rest, found := strings.CutSuffix(path, "{}"); found {
		return rest, "{}"
	}
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		return path[:i], path[i+1:]
	}
	return "", path
}

// Name returns the field's own name, [] for list elements and {} for map values.
func (f *Field) Name() string {
	_, name := cutField(f.Path)
	return name
}

// Kinds returns the kinds of custom resources that release v defines.
func (t *Table) Kinds(v Version) []string {
	var out []string
	for kind := range t.fields {
		if len(t.Fields(v, kind, "")) > 0 {
			out = append(out, kind)
		}
	}
	slices.Sort(out)
	return out
}

// Fields returns the fields of release v that are directly below a path of a custom resource. "" is the root.
func (t *Table) Fields(v Version, kind, path string) []*Field {
	i := t.index(v)
	if i < 0 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(t.fields[kind][path]), func(f *Field) bool { return !f.at[i] })
}

// Field returns the field at a path of a custom resource.
func (t *Table) Field(v Version, kind, path string) (*Field, bool) {
	parent, _ := cutField(path)
	for _, f := range t.Fields(v, kind, parent) {
		if f.Path == path {
			return f, true
		}
	}
	return nil, false
}

// PolicyField returns the ClusterPolicy field that corresponds to a value of the chart.
func (t *Table) PolicyField(v Version, path Path) (*Field, bool) {
	return t.policyElement(v, path, "")
}

// copiedField returns the ClusterPolicy field of a value inside a group or map that the chart copies as a whole. For an
// entry of a map, it returns the field of the map's values.
func (t *Table) copiedField(v Version, path Path) (*Field, bool) {
	for n := len(path) - 1; n > 0; n-- {
		if k, ok := t.keys[path[:n].String()]; !ok || k.Use(v) != Copied {
			continue
		}
		f, ok := t.PolicyField(v, path[:n])
		for _, name := range path[n:] {
			if !ok {
				break
			}
			at := f.Path
			if f, ok = t.Field(v, "ClusterPolicy", at+"."+name); !ok {
				f, ok = t.Field(v, "ClusterPolicy", at+"{}")
			}
		}
		return f, ok
	}
	return nil, false
}

// policyElement is like PolicyField, for an element of the list at path, such as [] or [].value.
func (t *Table) policyElement(v Version, path Path, element string) (*Field, bool) {
	at := "spec." + strings.Join(path, ".") + element
	// templates/clusterpolicy.yaml writes this group to a field of another name
	at = strings.Replace(at, ".upgradePolicy.gpuPodDeletion", ".upgradePolicy.podDeletion", 1)
	return t.Field(v, "ClusterPolicy", at)
}

// ValueField returns the field that describes the value at a path, or nil if any value is valid. If element is not
// empty, such as [] or [].value, the field describes an element of the list at the path. m is the result of Lookup for
// the path. printed is true if templates may print the value as text. Then only the text must be valid, not its type.
func (t *Table) ValueField(v Version, m Match, path Path, element string) (f *Field, printed bool) {
	if f, ok := t.copiedField(v, path); ok && element == "" {
		return f, false
	}
	k, exact := t.Key(path)
	exact = exact && k.In(v) && element == ""
	policy, copied := t.policyElement(v, path, element)
	copied = copied && m.Key.Use(v) == Copied
	switch {
	case exact && !(copied && policy.Shape() != Scalar):
		return t.printedField(v, k), true
	case copied:
		return policy, false
	}
	return nil, false
}

// printedField returns a field for a key that templates may print. It is based on the key's default and its
// ClusterPolicy field.
func (t *Table) printedField(v Version, k *Key) *Field {
	f := &Field{Path: "values", Type: "any"}
	switch k.Shape(v) {
	case List:
		f.Type = "array"
	case Map:
		f.Type = "map"
	case Scalar:
		f.Type = "string"
		value, _ := k.Default(v)
		field, typed := t.PolicyField(v, k.Path)
		_, isBool := value.(bool)
		_, isNumber := value.(float64)
		switch {
		case k.Path.String() == "migManager.config.default" && !v.Before(Version{26, 3, 0}):
			f.Enum = []string{"all-disabled", ""}
		case isBool || typed && field.Type == "boolean":
			f.Type = "boolean"
		case typed && (field.Type == "integer" || field.Type == "string"):
			f.Type, f.Enum, f.Min, f.Max = field.Type, field.Enum, field.Min, field.Max
		case isNumber && !typed:
			f.Type = "number"
		}
	}
	return f
}

// enumerations lists valid values that the CRDs do not list, by the end of the field's path. They are from the comments
// of values.yaml and from Kubernetes.
var enumerations = []struct {
	end    string
	values []string
}{
	{"sandboxWorkloads.mode", []string{"kubevirt", "kata"}},
	{"driver.nvidiaDriverCRD.driverType", []string{"gpu", "vgpu", "vgpu-host-manager"}},
	{"dcgmExporter.service.internalTrafficPolicy", []string{"Cluster", "Local"}},
	{"operator.logging.timeEncoding", []string{"epoch", "millis", "nano", "iso8601", "rfc3339", "rfc3339nano"}},
	{"node-feature-discovery.image.pullPolicy", []string{"Always", "IfNotPresent", "Never"}},
	{"imagePullPolicy", []string{"Always", "IfNotPresent", "Never"}},
	{"olerations[].operator", []string{"Exists", "Equal", "Lt", "Gt", ""}},
	{"olerations[].effect", []string{"NoSchedule", "PreferNoSchedule", "NoExecute", ""}},
}

// Values returns the valid values of the field, or nil if there is no list of them. path is the path in the
// ClusterPolicy or in the chart, with [] for the elements of lists.
func (f *Field) Values(path string) []string {
	if len(f.Enum) > 0 || f.Type != "string" {
		return f.Enum
	}
	for _, e := range enumerations {
		if strings.HasSuffix(path, e.end) {
			return e.values
		}
	}
	return nil
}
