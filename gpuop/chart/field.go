package chart

import (
	"cmp"
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
	Default bool `json:"default,omitempty"`
}

// Parent is the path of a field that has other fields directly below it. The path "" is the root of the resource.
type Parent struct{ Kind, Path string }

// shape returns the type of the chart's value for the field, as Key.shape does.
func (f *Field) shape() string {
	switch f.Type {
	case "array", "map", "any":
		return f.Type
	case "object":
		return "map"
	}
	return "string"
}

// cutField splits the path of a field into the path of its parent and its name.
func cutField(path string) (parent, name string) {
	i := max(strings.LastIndexAny(path, ".[{"), 0)
	return path[:i], strings.TrimPrefix(path[i:], ".")
}

// Name returns the field's own name, [] for list elements and {} for map values.
func (f *Field) Name() string {
	_, name := cutField(f.Path)
	return name
}

// AllFields returns the fields of the custom resources that release v defines.
func (t *Table) AllFields(v Version) map[Parent][]*Field { return t.release(v).Fields }

// Fields returns the fields of release v that are directly below a path of a custom resource. "" is the root.
func (t *Table) Fields(v Version, kind, path string) []*Field {
	return t.release(v).Fields[Parent{kind, path}]
}

// Field returns the field at a path of a custom resource, or nil.
func (t *Table) Field(v Version, kind, path string) *Field {
	parent, _ := cutField(path)
	for _, f := range t.Fields(v, kind, parent) {
		if f.Path == path {
			return f
		}
	}
	return nil
}

// policyField returns the ClusterPolicy field of a value of the chart, or nil. If element is not empty, such as [] or
// [].value, the field is that of an element of the list at path.
func (t *Table) policyField(v Version, path Path, element string) *Field {
	at := "spec." + strings.Join(path, ".") + element
	// templates/clusterpolicy.yaml writes this group to a field of another name
	at = strings.Replace(at, ".upgradePolicy.gpuPodDeletion", ".upgradePolicy.podDeletion", 1)
	return t.Field(v, "ClusterPolicy", at)
}

// copiedField returns the ClusterPolicy field of a value inside a group or map that the chart copies as a whole. For an
// entry of a map, it returns the field of the map's values.
func (t *Table) copiedField(v Version, path Path) *Field {
	for n := len(path) - 1; n > 0; n-- {
		if k := t.keys[path[:n].String()]; k == nil || k.Use(v) != Copied {
			continue
		}
		f := t.policyField(v, path[:n], "")
		for i := n; f != nil && i < len(path); i++ {
			f = cmp.Or(t.Field(v, "ClusterPolicy", f.Path+"."+path[i]), t.Field(v, "ClusterPolicy", f.Path+"{}"))
		}
		return f
	}
	return nil
}

// ValueField returns the field that describes the value at a path, or nil if any value is valid. If element is not
// empty, such as [] or [].value, the field describes an element of the list at the path. m is the result of Lookup for
// the path. printed is true if templates may print the value as text. Then only the text must be valid, not its type.
func (t *Table) ValueField(v Version, m Match, path Path, element string) (f *Field, printed bool) {
	if f = t.copiedField(v, path); f != nil && element == "" {
		return f, false
	}
	f = t.policyField(v, Path{"daemonsets", "tolerations"}, element)
	if f != nil && path[len(path)-1] == "tolerations" {
		return f, false // all tolerations have the same fields
	}
	f = t.policyField(v, path, element)
	if f != nil && m.Key.Use(v) != Copied {
		f = nil
	}
	k, known := t.Key(path)
	if known && k.In(v) && element == "" && (f == nil || f.shape() == "string") {
		return t.printedField(v, k), true
	}
	return f, false
}

// printedField returns a field for a key that templates may print. It is based on the key's default and its
// ClusterPolicy field.
func (t *Table) printedField(v Version, k *Key) *Field {
	f := &Field{Path: "values", Type: k.shape(v)}
	policy := cmp.Or(t.policyField(v, k.Path, ""), &Field{})
	value, _ := k.Default(v)
	_, isBool := value.(bool)
	_, isNumber := value.(float64)
	switch {
	case f.Type != "string":
	case k.name == "migManager.config.default" && !v.Before(Version{26, 3, 0}):
		f.Enum = []string{"all-disabled", ""}
	case isBool || policy.Type == "boolean":
		f.Type = "boolean"
	case policy.Type == "integer" || policy.Type == "string":
		f.Type, f.Enum, f.Min, f.Max = policy.Type, policy.Enum, policy.Min, policy.Max
	case isNumber && policy.Type == "":
		f.Type = "number"
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
	{"ullPolicy", []string{"Always", "IfNotPresent", "Never"}},
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
