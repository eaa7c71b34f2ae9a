package chart

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// A Release is what one release of the chart says of itself.
type Release struct {
	Version    Version
	AppVersion string
	Kubernetes string // the constraint on the cluster's version
	Parts      []Part
	// Values are the defaults, those of subcharts under their names.
	Values map[string]any
	// Reads are the paths that templates read, dotted.
	Reads map[string]Use
	// Fields are those of the custom resources, by kind; nil where the definitions are not at hand.
	Fields map[string][]Field
	// Images are the operands whose image the templates write, by the path of their settings.
	Images map[string]Image
}

// An Image says how the image of an operand comes about: repository/image:version, or @version for
// a digest.
type Image struct {
	// When are the conditions under which templates write it, one list for each place: values that
	// must be true, or false after a "!".
	When [][]string `json:"when,omitempty"`
	// Release says that a version that is not set is that of the operator itself.
	Release bool `json:"release,omitempty"`
}

// AddImage notes a place where a template writes an operand's image, and the conditions around it.
func (r *Release) AddImage(operand string, when []string) {
	i := r.Images[operand]
	own := slices.DeleteFunc(append([]string{}, when...), func(w string) bool {
		// a group, or a part of the image itself: it is there when there is an image
		return w == operand+".image" || operand == w || strings.HasPrefix(operand, w+".")
	})
	if !slices.ContainsFunc(i.When, func(have []string) bool { return slices.Equal(have, own) }) {
		i.When = append(i.When, own)
	}
	r.setImage(operand, i)
}

// Released notes that an operand's version is the operator's where the values name none.
func (r *Release) Released(operand string) {
	i := r.Images[operand]
	i.Release = true
	r.setImage(operand, i)
}

func (r *Release) setImage(operand string, i Image) {
	if r.Images == nil {
		r.Images = map[string]Image{}
	}
	r.Images[operand] = i
}

// leaves calls visit with every leaf of the values: what is no map, and maps that are empty.
func leaves(path Path, value any, visit func(Path, any)) {
	m, isMap := value.(map[string]any)
	if !isMap || len(m) == 0 && len(path) > 0 {
		visit(path, value)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		leaves(append(path[:len(path):len(path)], name), m[name], visit)
	}
}

// With returns a table that knows the release too, in place of what it knew of it.
func (t *Table) With(r *Release) *Table {
	out := &Table{keys: map[string]*Key{}, fields: map[string]map[string][]*Field{}, drivers: t.drivers, about: t.about}
	out.versions = slices.Clone(t.versions)
	if t.index(r.Version) < 0 {
		out.versions = append(out.versions, r.Version)
		slices.SortFunc(out.versions, Version.Compare)
	}
	old := make([]int, len(out.versions)) // where each release stood before
	for i, v := range out.versions {
		old[i] = t.index(v)
		if v == r.Version {
			old[i] = -1
		}
		m := meta{r.AppVersion, r.Kubernetes, r.Parts}
		if old[i] >= 0 {
			m = t.meta[old[i]]
		}
		out.meta = append(out.meta, m)
	}
	for _, k := range t.order {
		to := out.key(k.Path)
		for i, was := range old {
			if was >= 0 {
				to.at[i] = k.at[was]
			}
		}
	}
	out.addFields(t, r, old)
	out.images = maps.Clone(t.images)
	if out.images == nil {
		out.images = map[Version]map[string]Image{}
	}
	out.images[r.Version] = r.Images
	if r.Images == nil && out.index(r.Version) > 0 {
		out.images[r.Version] = out.images[out.versions[out.index(r.Version)-1]]
	}
	at := out.index(r.Version)
	out.operands = maps.Clone(t.operands)
	if out.operands == nil {
		out.operands = map[Version][]Operand{}
	}
	if out.operands[r.Version] == nil && at > 0 {
		// without the operator's source the release before is the best that is known
		out.operands[r.Version] = out.operands[out.versions[at-1]]
	}
	leaves(nil, r.Values, func(path Path, value any) {
		c := &out.key(path).at[at]
		c.listed, c.value = true, value
	})
	for path, use := range r.Reads {
		out.key(ParsePath(path)).at[at].use = use
	}
	if len(r.Reads) == 0 && at > 0 {
		// without templates the release before is the best that is known
		for _, k := range out.keys {
			k.at[at].use = k.at[at-1].use
		}
	}
	out.arrange()
	return out
}

func (t *Table) addFields(from *Table, r *Release, old []int) {
	at := t.index(r.Version)
	seen := map[string][]*Field{}
	for kind, groups := range from.fields {
		for _, list := range groups {
			for _, f := range list {
				next := *f
				next.at = make([]bool, len(t.versions))
				for i, was := range old {
					next.at[i] = was >= 0 && f.at[was]
				}
				if r.Fields == nil && at > 0 {
					// without definitions the release before is the best that is known
					next.at[at] = next.at[at-1]
				}
				t.putField(kind, &next)
				seen[kind+" "+f.Path] = append(seen[kind+" "+f.Path], &next)
			}
		}
	}
	for kind, list := range r.Fields {
		for _, f := range list {
			t.setField(kind, f, at, seen[kind+" "+f.Path])
		}
	}
}

func (t *Table) setField(kind string, f Field, at int, known []*Field) {
	text, _ := json.Marshal(&f)
	for _, k := range known {
		if have, _ := json.Marshal(k); string(have) == string(text) {
			k.at[at] = true
			return
		}
	}
	f.at = make([]bool, len(t.versions))
	f.at[at] = true
	t.putField(kind, &f)
}
