package chart

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

//go:embed releases.txt
var releasesText string

//go:embed values.txt
var valuesText string

//go:embed reads.txt
var readsText string

//go:embed fields.txt
var fieldsText string

//go:embed images.txt
var imagesText string

//go:embed operands.txt
var operandsText string

//go:embed drivers.txt
var driversText string

//go:embed about.txt
var aboutText string

// A Shape says what a key holds.
type Shape uint8

// The shapes of a value.
const (
	Scalar Shape = iota // a string, number or boolean
	List
	Map // a map whose keys are free, such as labels, or Kubernetes' own, such as resources
	Any // not known: values.yaml has null, or the templates alone know the key
)

// A Use says how a template reads a path.
type Use uint8

// The uses of a path.
const (
	Unread  Use = iota
	Tested      // a condition alone reads it
	Printed     // its text is written into a manifest
	Copied      // it is copied with everything below it
)

var useNames = [...]string{"", "tested", "printed", "copied"}

// String is the use as reads.txt has it; "" for Unread.
func (u Use) String() string { return useNames[u] }

// A cell is what one release says of one key.
type cell struct {
	listed bool // values.yaml of the chart or of a subchart has it
	value  any  // the default, in JSON's types
	use    Use
}

// A Key is a leaf of the chart's values, or a path that only templates know.
type Key struct {
	Path  Path
	table *Table
	at    []cell
}

func (k *Key) cell(v Version) cell {
	if i := k.table.index(v); i >= 0 {
		return k.at[i]
	}
	return cell{}
}

// In reports whether the chart has the key at version v, in values.yaml or in a template.
func (k *Key) In(v Version) bool {
	c := k.cell(v)
	return c.listed || c.use != Unread
}

// Listed reports whether values.yaml lists the key at version v: the templates read some keys that
// it does not.
func (k *Key) Listed(v Version) bool { return k.cell(v).listed }

// Use returns how the templates of v read the key.
func (k *Key) Use(v Version) Use { return k.cell(v).use }

// Since returns the first release that has the key.
func (k *Key) Since() Version {
	for _, v := range k.table.versions {
		if k.In(v) {
			return v
		}
	}
	return Version{}
}

// Until returns the last release that has the key, and no release while the newest has it.
func (k *Key) Until() Version {
	if k.In(k.table.Latest()) {
		return Version{}
	}
	for _, v := range slices.Backward(k.table.versions) {
		if k.In(v) {
			return v
		}
	}
	return Version{}
}

// Group reports whether the key is a group that templates read, with keys of its own below it.
func (k *Key) Group() bool {
	return len(k.table.groups[k.Path.String()]) > 0 && !slices.ContainsFunc(k.at, func(c cell) bool { return c.listed })
}

// Shape returns what the key holds at version v.
func (k *Key) Shape(v Version) Shape {
	c := k.cell(v)
	if c.listed {
		switch c.value.(type) {
		case nil:
		case []any:
			return List
		case map[string]any:
			return Map
		default:
			return Scalar
		}
	}
	if f, ok := k.table.PolicyField(v, k.Path); ok {
		return f.Shape()
	}
	if c.use == Printed && !c.listed {
		return Scalar
	}
	return Any
}

// Default returns the key's default at version v, in JSON's types, and whether values.yaml lists
// it.
func (k *Key) Default(v Version) (value any, known bool) {
	c := k.cell(v)
	return c.value, c.listed
}

// A Change is a default from a version on; Known is false where values.yaml does not list the key.
type Change struct {
	From  Version `json:"from"`
	Value any     `json:"value,omitempty"`
	Known bool    `json:"known"`
}

// Defaults returns the key's defaults over time, the oldest first.
func (k *Key) Defaults() []Change {
	var out []Change
	for i, c := range k.at {
		if !c.listed {
			continue
		}
		if n := len(out); n > 0 && equal(out[n-1].Value, c.value) {
			continue
		}
		out = append(out, Change{k.table.versions[i], c.value, true})
	}
	return out
}

func equal(a, b any) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}

// A Table has the facts of the chart. It never changes; With makes another. An empty one has no release.
type Table struct {
	versions []Version
	meta     []meta
	keys     map[string]*Key
	order    []*Key
	at       []func() []*Key   // the keys of each release
	groups   map[string][]*Key // keys below a path, by the path
	// children are the names directly below a path, by release; a path without is no group.
	children []map[string][]string
	fields   map[string]map[string][]*Field
	images   map[Version]map[string]Image
	operands map[Version][]Operand
	drivers  map[Version][]string
	about    map[string]About
}

// meta are a release's own facts.
type meta struct {
	appVersion, kubernetes string
	parts                  []Part
}

// A Part is a subchart of a release.
type Part struct {
	Name, Version, AppVersion string
}

// Load returns the table, which is parsed once. The text is part of the program, so that a mistake
// in it is a bug: a test parses every line.
func Load() *Table { return load() }

var load = sync.OnceValue(func() *Table {
	t, err := parse(texts{releasesText, valuesText, readsText, fieldsText, imagesText, operandsText, driversText, aboutText})
	if err != nil {
		return &Table{versions: []Version{{}}, meta: make([]meta, 1), keys: map[string]*Key{}}
	}
	return t
})

// texts are the tables as files: all but the last two are generated.
type texts struct{ releases, values, reads, fields, images, operands, drivers, about string }

func parse(in texts) (*Table, error) {
	t := &Table{keys: map[string]*Key{}, fields: map[string]map[string][]*Field{}, images: map[Version]map[string]Image{}, operands: map[Version][]Operand{}, drivers: map[Version][]string{}, about: map[string]About{}}
	for _, file := range []struct {
		name, text    string
		columns, span int // how many at least, and the column of releases
		line          func(columns []string, in []int) error
	}{
		{"releases.txt", in.releases, 3, -1, t.addRelease},
		{"values.txt", in.values, 3, 1, t.addValue},
		{"reads.txt", in.reads, 3, 1, t.addRead},
		{"fields.txt", in.fields, 4, 2, t.addField},
		{"images.txt", in.images, 3, 1, t.addImages},
		{"operands.txt", in.operands, 3, 1, t.addOperands},
		{"drivers.txt", in.drivers, 3, -1, t.addDrivers},
		{"about.txt", in.about, 3, -1, t.addAbout},
	} {
		n := 0
		for line := range strings.Lines(file.text) {
			n++
			line = strings.TrimSuffix(line, "\n")
			if line == "" || line[0] == '#' {
				continue
			}
			columns := strings.Split(line, "\t")
			err := error(nil)
			var releases []int
			switch {
			case len(columns) < file.columns:
				err = fmt.Errorf("%d columns, want %d", len(columns), file.columns)
			case file.span > 0:
				releases, err = t.spans(columns[file.span])
			}
			if err == nil {
				err = file.line(columns, releases)
			}
			if err != nil {
				return nil, fmt.Errorf("%s:%d: %w", file.name, n, err)
			}
		}
	}
	t.arrange()
	return t, nil
}

// arrange builds what is derived from the keys.
func (t *Table) arrange() {
	t.at = make([]func() []*Key, len(t.versions))
	for i, v := range t.versions {
		t.at[i] = sync.OnceValue(func() []*Key {
			return slices.DeleteFunc(slices.Clone(t.order), func(k *Key) bool { return !k.In(v) || t.group(v, k.Path) })
		})
	}
	t.order = slices.SortedFunc(maps.Values(t.keys), func(a, b *Key) int { return strings.Compare(a.Path.String(), b.Path.String()) })
	t.groups, t.children = map[string][]*Key{}, make([]map[string][]string, len(t.versions))
	for i := range t.children {
		t.children[i] = map[string][]string{}
	}
	for _, k := range t.order {
		for n, name := range k.Path {
			group := k.Path[:n].String()
			t.groups[group] = append(t.groups[group], k)
			for i, c := range k.at {
				if (c.listed || c.use != Unread) && !slices.Contains(t.children[i][group], name) {
					t.children[i][group] = append(t.children[i][group], name)
				}
			}
		}
	}
}

func version(s string) (Version, error) {
	v, parts, ok := parseVersion(s)
	if !ok || parts != 3 {
		return Version{}, fmt.Errorf("%w %q", ErrVersion, s)
	}
	return v, nil
}

func (t *Table) index(v Version) int {
	i, found := slices.BinarySearchFunc(t.versions, v, Version.Compare)
	if !found {
		return -1
	}
	return i
}

func (t *Table) addRelease(columns []string, _ []int) error {
	v, err := version(columns[0])
	if err != nil {
		return err
	}
	m := meta{appVersion: columns[1], kubernetes: columns[2]}
	for _, c := range columns[3:] {
		words := strings.Fields(c)
		if len(words) != 3 {
			return fmt.Errorf("subchart %q, want name, version and application version", c)
		}
		m.parts = append(m.parts, Part{words[0], words[1], words[2]})
	}
	t.versions, t.meta = append(t.versions, v), append(t.meta, m)
	return nil
}

// key returns the key at the path, made if it is new.
func (t *Table) key(path Path) *Key {
	name := path.String()
	k, ok := t.keys[name]
	if !ok {
		k = &Key{Path: path, table: t, at: make([]cell, len(t.versions))}
		t.keys[name] = k
	}
	return k
}

// spans reads "v1.7.0-v1.8.2 v23.3.0-" as indices of releases.
func (t *Table) spans(text string) ([]int, error) {
	var out []int
	for word := range strings.FieldsSeq(text) {
		first, last, isRange := strings.Cut(word, "-")
		from, err := version(first)
		if err != nil {
			return nil, err
		}
		to := from
		if isRange {
			to = t.Latest()
			if last != "" {
				if to, err = version(last); err != nil {
					return nil, err
				}
			}
		}
		start, end := t.index(from), t.index(to)
		if start < 0 || end < start {
			return nil, fmt.Errorf("%w in %q", ErrVersion, word)
		}
		for i := start; i <= end; i++ {
			out = append(out, i)
		}
	}
	return out, nil
}

func (t *Table) addValue(columns []string, in []int) error {
	k := t.key(ParsePath(columns[0]))
	for _, i := range in {
		k.at[i].listed = true
	}
	for _, c := range columns[2:] {
		from, text, _ := strings.Cut(c, "=")
		v, err := version(from)
		if err != nil {
			return err
		}
		var value any
		if err := json.Unmarshal([]byte(text), &value); err != nil {
			return fmt.Errorf("default %s: %w", text, err)
		}
		for i := t.index(v); i >= 0 && i < len(k.at); i++ {
			if k.at[i].listed {
				k.at[i].value = value
			}
		}
	}
	return nil
}

func (t *Table) addRead(columns []string, in []int) error {
	use := slices.Index(useNames[:], columns[2])
	if use < 1 {
		return fmt.Errorf("use %q, want %s", columns[2], strings.Join(useNames[1:], ", "))
	}
	k := t.key(ParsePath(columns[0]))
	for _, i := range in {
		k.at[i].use = Use(use)
	}
	return nil
}

func (t *Table) addImages(columns []string, in []int) error {
	var image Image
	if err := json.Unmarshal([]byte(columns[2]), &image); err != nil {
		return fmt.Errorf("image %s: %w", columns[2], err)
	}
	for _, i := range in {
		v := t.versions[i]
		if t.images[v] == nil {
			t.images[v] = map[string]Image{}
		}
		t.images[v][columns[0]] = image
	}
	return nil
}

func (t *Table) addDrivers(columns []string, _ []int) error {
	v, err := version(columns[0])
	if err != nil {
		return err
	}
	if columns[2] == "" {
		return fmt.Errorf("%s: no source", columns[0])
	}
	t.drivers[v] = strings.Fields(columns[1])
	return nil
}

// Versions returns the releases that the table knows, the oldest first.
func (t *Table) Versions() []Version { return slices.Clone(t.versions) }

// Latest returns the newest release that the table knows.
func (t *Table) Latest() Version { return t.versions[len(t.versions)-1] }

// AppVersion returns the version of the operator that release v of the chart installs.
func (t *Table) AppVersion(v Version) string {
	if i := t.index(v); i >= 0 {
		return t.meta[i].appVersion
	}
	return ""
}

// Kubernetes returns the versions of Kubernetes that release v accepts, as its chart has them.
func (t *Table) Kubernetes(v Version) string {
	if i := t.index(v); i >= 0 {
		return t.meta[i].kubernetes
	}
	return ""
}

// Parts returns the subcharts of release v.
func (t *Table) Parts(v Version) []Part {
	if i := t.index(v); i >= 0 {
		return slices.Clone(t.meta[i].parts)
	}
	return nil
}

// Part returns the subchart of release v with the name.
func (t *Table) Part(v Version, name string) (Part, bool) {
	parts := t.Parts(v)
	if i := slices.IndexFunc(parts, func(p Part) bool { return p.Name == name }); i >= 0 {
		return parts[i], true
	}
	return Part{}, false
}

// Key returns the key at the path.
func (t *Table) Key(path Path) (*Key, bool) {
	k, ok := t.keys[path.String()]
	return k, ok
}

// Keys returns the keys that the chart has at v, by path.
func (t *Table) Keys(v Version) []*Key { return slices.Clone(t.keysAt(v)) }

// keysAt is Keys without a copy.
func (t *Table) keysAt(v Version) []*Key {
	if i := t.index(v); i >= 0 && i < len(t.at) {
		return t.at[i]()
	}
	return nil
}

// AllKeys returns every key that the chart has or had, and every group that its templates read, by path.
func (t *Table) AllKeys() []*Key { return slices.Clone(t.order) }

// Default returns the default at v of the key at the path, and whether it is known.
func (t *Table) Default(v Version, path string) (value any, known bool) {
	k, ok := t.keys[path]
	if !ok {
		return nil, false
	}
	return k.Default(v)
}

// Next returns the release that follows v.
func (t *Table) Next(v Version) (Version, bool) {
	i := t.index(v)
	if i < 0 || i+1 == len(t.versions) {
		return Version{}, false
	}
	return t.versions[i+1], true
}

// Operand returns the version of an operand, such as "toolkit" or "driver.manager", that release v
// brings; "nfd" is Node Feature Discovery. known is false where the release names none.
func (t *Table) Operand(v Version, operand string) (tag string, known bool) {
	if operand == "nfd" {
		p, ok := t.Part(v, "node-feature-discovery")
		return p.AppVersion, ok
	}
	value, _ := t.Default(v, operand+".version")
	tag, _ = value.(string)
	return tag, tag != ""
}

// Images returns the operands of release v whose image the templates write, by the path of their
// settings.
func (t *Table) Images(v Version) map[string]Image { return maps.Clone(t.images[v]) }

// Drivers returns the driver versions that NVIDIA's documentation names for release v, and false
// where gpuop's table has no row for it: nothing is known then.
func (t *Table) Drivers(v Version) ([]string, bool) {
	list, ok := t.drivers[v]
	return slices.Clone(list), ok
}
