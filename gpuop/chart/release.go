package chart

import (
	"encoding/json"
	"fmt"
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

// NewTable makes a table of the releases alone.
func NewTable(releases []*Release) *Table {
	t := &Table{keys: map[string]*Key{}, fields: map[string]map[string][]*Field{}}
	for _, r := range releases {
		t = t.With(r)
	}
	return t
}

// Text writes the generated files of the table, by name.
func (t *Table) Text() map[string][]byte {
	var releases, values, reads, fields, images, operands strings.Builder
	releases.WriteString("# The releases of NVIDIA's gpu-operator chart, a line each:\n#   release <TAB> the operator's version <TAB> the versions of Kubernetes that it accepts <TAB> a subchart, its version and its\n#   application's version\n" + generated)
	for i, v := range t.versions {
		m := t.meta[i]
		fmt.Fprintf(&releases, "%s\t%s\t%s", v, m.appVersion, m.kubernetes)
		for _, p := range m.parts {
			fmt.Fprintf(&releases, "\t%s %s %s", p.Name, p.Version, p.AppVersion)
		}
		releases.WriteByte('\n')
	}
	values.WriteString("# The values of NVIDIA's gpu-operator chart, a leaf of values.yaml a line, those of subcharts under the subchart's name:\n#   key <TAB> the releases that list it <TAB> its default, as JSON, from a release on\n" + generated)
	reads.WriteString("# What the chart's templates read, a path a line:\n#   path <TAB> the releases <TAB> tested (in a condition alone), printed, or copied with everything below it\n" + generated)
	for _, k := range t.order {
		t.writeKey(&values, &reads, k)
	}
	fields.WriteString("# The fields of the operator's custom resources, a field a line; [] are the elements of a list, {} the values of a map:\n#   kind <TAB> path <TAB> the releases <TAB> its schema\n" + generated)
	t.writeFields(&fields)
	images.WriteString("# The operands whose image the chart's templates write:\n#   path of the operand's settings <TAB> the releases <TAB> the conditions, and whether its version is the operator's when not set\n" + generated)
	t.writeImages(&images)
	operands.WriteString("# The operands of the operator, a DaemonSet a line, in the order in which it makes them:\n#   name of the DaemonSet <TAB> the releases <TAB> its settings, conditions, label and containers\n# Generated by go generate ./gpuop/chart from the operator's source; not to be edited.\n")
	t.writeOperands(&operands)
	return map[string][]byte{"releases.txt": []byte(releases.String()), "values.txt": []byte(values.String()),
		"reads.txt": []byte(reads.String()), "fields.txt": []byte(fields.String()), "images.txt": []byte(images.String()), "operands.txt": []byte(operands.String())}
}

const generated = "# Generated by go generate ./gpuop/chart from the charts themselves; not to be edited.\n"

func (t *Table) writeKey(values, reads *strings.Builder, k *Key) {
	listed := func(i int) bool { return k.at[i].listed }
	if text := t.spanText(listed); text != "" {
		fmt.Fprintf(values, "%s\t%s", k.Path, text)
		for _, c := range k.Defaults() {
			value, _ := json.Marshal(c.Value)
			fmt.Fprintf(values, "\t%s=%s", c.From, value)
		}
		values.WriteByte('\n')
	}
	for use := Tested; use <= Copied; use++ {
		if text := t.spanText(func(i int) bool { return k.at[i].use == use }); text != "" {
			fmt.Fprintf(reads, "%s\t%s\t%s\n", k.Path, text, useNames[use])
		}
	}
}

func (t *Table) writeFields(w *strings.Builder) {
	for _, kind := range slices.Sorted(maps.Keys(t.fields)) {
		var list []*Field
		for _, group := range t.fields[kind] {
			list = append(list, group...)
		}
		lines := make([]string, len(list))
		for i, f := range list {
			schema, _ := json.Marshal(f)
			lines[i] = fmt.Sprintf("%s\t%s\t%s\t%s\n", kind, f.Path, t.spanText(func(i int) bool { return f.at[i] }), schema)
		}
		slices.Sort(lines)
		w.WriteString(strings.Join(lines, ""))
	}
}

// spanText writes the releases for which in holds.
func (t *Table) spanText(in func(int) bool) string {
	var spans []string
	for i := 0; i < len(t.versions); i++ {
		if !in(i) {
			continue
		}
		first := i
		for i+1 < len(t.versions) && in(i+1) {
			i++
		}
		switch {
		case i == len(t.versions)-1:
			spans = append(spans, t.versions[first].String()+"-")
		case i == first:
			spans = append(spans, t.versions[first].String())
		default:
			spans = append(spans, t.versions[first].String()+"-"+t.versions[i].String())
		}
	}
	return strings.Join(spans, " ")
}

func (t *Table) writeImages(w *strings.Builder) {
	lines := map[string]map[int]bool{}
	for i, v := range t.versions {
		for operand, image := range t.images[v] {
			text, _ := json.Marshal(image)
			line := operand + "\t%s\t" + string(text)
			if lines[line] == nil {
				lines[line] = map[int]bool{}
			}
			lines[line][i] = true
		}
	}
	for _, line := range slices.Sorted(maps.Keys(lines)) {
		fmt.Fprintf(w, line+"\n", t.spanText(func(i int) bool { return lines[line][i] }))
	}
}
