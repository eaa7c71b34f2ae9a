package chart

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
)

// Use is how a template reads a path. If templates read it in several ways, the largest Use is recorded.
type Use uint8

// Uses of a path.
const (
	Unread  Use = iota
	Tested      // read only by a condition
	Printed     // printed as text
	Copied      // copied with everything below it
)

var useNames = [...]string{"", "tested", "printed", "copied"}

// String returns the use as written in reads.txt, or "" for Unread.
func (u Use) String() string { return useNames[u] }

// Key is a leaf of the chart's values, or a path that only templates read.
type Key struct {
	Path  Path
	name  string // the path as text
	table *Table
}

// Key returns the key at the path.
func (t *Table) Key(path Path) (*Key, bool) {
	k, ok := t.keys[path.String()]
	return k, ok
}

// Keys returns the keys of release v, sorted by path. It omits groups that templates read as a whole.
func (t *Table) Keys(v Version) []*Key {
	return slices.DeleteFunc(t.AllKeys(), func(k *Key) bool { return !k.In(v) || t.group(v, k.Path) })
}

// AllKeys returns the keys of all releases, sorted by path. It includes groups that templates read as a whole.
func (t *Table) AllKeys() []*Key { return slices.Clone(t.groups[""]) }

// Default returns the default, at release v, of the key at path. known is false if values.yaml does not have the key.
func (t *Table) Default(v Version, path string) (value any, known bool) {
	value, known = t.release(v).Values[path]
	return value, known
}

// Default returns the key's default at release v. known is false if values.yaml does not have the key.
func (k *Key) Default(v Version) (value any, known bool) { return k.table.Default(v, k.name) }

// Use returns how the templates of v read the key.
func (k *Key) Use(v Version) Use { return k.table.release(v).Reads[k.name] }

// In reports whether release v has the key in values.yaml or in a template.
func (k *Key) In(v Version) bool { return k.table.release(v).has(k) }

// has is like Key.In. It saves the search for the release if many keys are tested.
func (r *Release) has(k *Key) bool {
	_, listed := r.Values[k.name]
	return listed || r.Reads[k.name] != Unread
}

// Since returns the first release that has the key.
func (k *Key) Since() Version {
	i := slices.IndexFunc(k.table.releases, func(r *Release) bool { return k.In(r.Version) })
	return k.table.releases[i].Version // every key is in a release
}

// end returns the index of the first release after the last one that has the key.
func (k *Key) end() int {
	i := len(k.table.releases)
	for i > 0 && !k.In(k.table.releases[i-1].Version) {
		i--
	}
	return i
}

// Removed returns the release that removed the key, or no release if the newest has the key.
func (k *Key) Removed() Version {
	if i := k.end(); i < len(k.table.releases) {
		return k.table.releases[i].Version
	}
	return Version{}
}

// Group reports whether the key is a group that templates read as a whole.
func (k *Key) Group() bool { return len(k.table.groups[k.name]) > 0 && len(k.Defaults()) == 0 }

// shape returns the type of the key's value at release v: array, map, any or, for a scalar, string.
func (k *Key) shape(v Version) string {
	value, listed := k.Default(v)
	f := k.table.policyField(v, k.Path, "")
	switch value.(type) {
	case []any:
		return "array"
	case map[string]any:
		return "map"
	case nil:
		if f != nil {
			return f.shape()
		}
		if listed || k.Use(v) != Printed {
			return "any"
		}
	}
	return "string"
}

// Change is a new default, and the release that introduced it.
type Change struct {
	From  Version
	Value any
}

// Defaults returns the key's defaults over time, oldest first.
func (k *Key) Defaults() (out []Change) {
	for _, r := range k.table.releases {
		value, listed := r.Values[k.name]
		if n := len(out); listed && (n == 0 || !reflect.DeepEqual(out[n-1].Value, value)) {
			out = append(out, Change{r.Version, value})
		}
	}
	return out
}

// Replaced returns the release that replaced value as the key's default. found is false if value was never the default,
// or is the newest default.
func (k *Key) Replaced(value string) (since Version, found bool) {
	last := ""
	for _, d := range k.Defaults() {
		if last == value {
			since = d.From
		}
		last = Text(d.Value)
	}
	return since, since != (Version{}) && last != value
}

// WasDefault reports whether the setting's value is the key's default in any release.
func (t *Table) WasDefault(s Setting) bool {
	k, known := t.Key(s.Path)
	return known && slices.ContainsFunc(k.Defaults(), func(d Change) bool { return Same(d.Value, s.Value) })
}

// Same reports whether a default equals a value that the user set. Maps are equal if they have the same number of keys.
func Same(value, given any) bool {
	switch value := value.(type) {
	case []any:
		list, isList := given.([]any)
		return isList && fmt.Sprint(list) == fmt.Sprint(value)
	case map[string]any:
		m, isMap := given.(map[string]any)
		return isMap && len(m) == len(value)
	}
	return Text(value) == Text(given)
}

// Text formats a string, boolean or number without quotes. It returns "" for other values.
func Text(v any) string {
	switch v := v.(type) {
	case string, bool, int, int64, uint64:
		return fmt.Sprint(v)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return ""
}
