package chart

import (
	"reflect"
	"slices"
)

// Release has the facts of one release, as read from its chart.
type Release struct {
	Version    Version
	AppVersion string
	// Discovery is the version of Node Feature Discovery in the chart.
	Discovery string
	// Values are the defaults. Those of a subchart are below its name.
	Values map[string]any
	// Reads maps each dotted path that the templates read to how they use it.
	Reads map[string]Use
	// Fields are the fields of the custom resources by kind. It is nil if the CRDs are not available.
	Fields map[string][]Field
}

// leaves calls visit for every value that is not a map, and for empty maps.
func leaves(path Path, value any, visit func(Path, any)) {
	m, isMap := value.(map[string]any)
	if !isMap || len(m) == 0 && len(path) > 0 {
		visit(path, value)
		return
	}
	for name, inner := range m {
		leaves(append(path[:len(path):len(path)], name), inner, visit)
	}
}

// With returns a table that includes the release and replaces previous facts about it. A chart does not list operands,
// so a known release keeps its operands, and a new one gets those of the preceding release. If the CRDs are not
// available, a known release also keeps its fields.
func (t *Table) With(r *Release) *Table {
	out := newTable()
	out.about, out.exclusions = t.about, t.exclusions
	at, known := t.find(r.Version)
	f := facts{version: r.Version, appVersion: r.AppVersion, discovery: r.Discovery}
	switch {
	case known:
		f.operands = t.releases[at].operands
	case at > 0:
		f.operands = t.releases[at-1].operands
	}
	out.releases = withEntry(t.releases, at, known, f)
	for name, k := range t.keys {
		out.keys[name] = &Key{Path: k.Path, table: out, at: withEntry(k.at, at, known, cell{})}
	}
	leaves(nil, r.Values, func(path Path, value any) {
		c := &out.key(path).at[at]
		c.listed, c.value = true, value
	})
	for path, use := range r.Reads {
		out.key(ParsePath(path)).at[at].use = use
	}
	for kind, groups := range t.fields {
		for _, list := range groups {
			for _, f := range list {
				next := *f
				next.at = withEntry(f.at, at, known, known && r.Fields == nil && f.at[at])
				out.putField(kind, &next)
			}
		}
	}
	for kind, list := range r.Fields {
		for _, f := range list {
			out.setField(kind, f, at)
		}
	}
	out.arrange()
	return out
}

// withEntry returns a copy of list whose entry at index i is value. If replace is true, value replaces the old entry;
// otherwise it is inserted before that entry.
func withEntry[T any](list []T, i int, replace bool, value T) []T {
	if replace {
		list = slices.Clone(list)
		list[i] = value
		return list
	}
	return slices.Insert(slices.Clip(list), i, value)
}

// setField records that t.releases[at] has the field f.
func (t *Table) setField(kind string, f Field, at int) {
	parent, _ := cutField(f.Path)
	for _, have := range t.fields[kind][parent] {
		f.at = have.at
		if reflect.DeepEqual(have, &f) {
			have.at[at] = true
			return
		}
	}
	f.at = make([]bool, len(t.releases))
	f.at[at] = true
	t.putField(kind, &f)
}
