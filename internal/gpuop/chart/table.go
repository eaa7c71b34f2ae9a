package chart

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
)

//go:embed values.txt
var valuesText string

//go:embed templates.txt
var templatesText string

//go:embed operands.txt
var operandsText string

//go:embed about.txt
var aboutText string

// A Shape says what a key holds.
type Shape uint8

// The shapes of a value.
const (
	Scalar Shape = iota // a string, number, boolean or null
	List
	Map // a map whose keys are free, such as labels, or Kubernetes' own, such as resources
)

// A Key is a leaf of the chart's values, or a map whose keys are free.
type Key struct {
	Path  Path
	Since Version
	Until Version // the last version that has the key; no release while the key is current
	Shape Shape
	// Template says that only the templates know the key: values.yaml does not list it.
	Template bool
	defaults []defaultFrom
	// listed is the last release whose values.yaml has the key; no release while it is current.
	listed Version
}

type defaultFrom struct {
	from  Version
	known bool
	value any
}

// In reports whether the chart has the key at version v.
func (k *Key) In(v Version) bool {
	return !v.Before(k.Since) && (k.Until == Version{} || !k.Until.Before(v))
}

// Listed reports whether values.yaml lists the key at version v: the templates read some keys that it does not.
func (k *Key) Listed(v Version) bool {
	return !k.Template && k.In(v) && (k.listed == Version{} || !k.listed.Before(v))
}

// Default returns the key's default at version v, in JSON's types, and whether it is known. A key that the templates
// alone know has no default.
func (k *Key) Default(v Version) (value any, known bool) {
	if !k.Listed(v) {
		return nil, false
	}
	for _, d := range slices.Backward(k.defaults) {
		if !v.Before(d.from) {
			return d.value, d.known
		}
	}
	return nil, false
}

// A Change is a default from a version on; Known is false where the table does not say.
type Change struct {
	From  Version `json:"from"`
	Value any     `json:"value,omitempty"`
	Known bool    `json:"known"`
}

// Defaults returns the key's defaults over time, the oldest first.
func (k *Key) Defaults() []Change {
	out := make([]Change, len(k.defaults))
	for i, d := range k.defaults {
		out[i] = Change{d.from, d.value, d.known}
	}
	return out
}

// A Table is what is known of the chart. It never changes.
type Table struct {
	versions []Version
	keys     map[string]*Key
	order    []*Key
	// components are the top-level names of all versions.
	components []string
	operands   map[Version]map[string][]string
	about      map[string]About
}

// Load returns the table, which is parsed once. The text is part of the program, so that a mistake in it is a bug:
// a test parses every line.
func Load() *Table { return load() }

var load = sync.OnceValue(func() *Table {
	t, err := parse(valuesText, templatesText, operandsText, aboutText)
	if err != nil {
		return &Table{versions: []Version{{}}, keys: map[string]*Key{}}
	}
	return t
})

func parse(values, templates, operands, about string) (*Table, error) {
	t := &Table{keys: map[string]*Key{}, operands: map[Version]map[string][]string{}, about: map[string]About{}}
	for _, file := range []struct {
		name, text string
		line       func([]string) error
	}{
		{"values.txt", values, t.addValue},
		{"templates.txt", templates, t.addTemplate},
		{"operands.txt", operands, t.addOperands},
		{"about.txt", about, t.addAbout},
	} {
		n := 0
		for line := range strings.Lines(file.text) {
			n++
			line = strings.TrimSuffix(line, "\n")
			if line == "" || line[0] == '#' {
				continue
			}
			if err := file.line(strings.Split(line, "\t")); err != nil {
				return nil, fmt.Errorf("%s:%d: %w", file.name, n, err)
			}
		}
	}
	for _, k := range t.order {
		if !slices.Contains(t.components, k.Path[0]) {
			t.components = append(t.components, k.Path[0])
		}
	}
	slices.SortFunc(t.order, func(a, b *Key) int { return strings.Compare(a.Path.String(), b.Path.String()) })
	return t, nil
}

func version(s string) (Version, error) {
	v, parts, ok := parseVersion(s)
	if !ok || parts != 3 {
		return Version{}, fmt.Errorf("%w %q", ErrVersion, s)
	}
	return v, nil
}

func (t *Table) add(path Path, since, until string) (*Key, error) {
	k := &Key{Path: path}
	var err error
	if k.Since, err = version(since); err != nil {
		return nil, err
	}
	if until != "-" {
		if k.Until, err = version(until); err != nil {
			return nil, err
		}
	}
	return k, nil
}

func (t *Table) addValue(fields []string) error {
	if fields[0] == "versions" {
		for _, s := range strings.Fields(fields[1]) {
			v, err := version(s)
			if err != nil {
				return err
			}
			t.versions = append(t.versions, v)
		}
		return nil
	}
	if len(fields) < 4 {
		return fmt.Errorf("%d fields, want 4 or more", len(fields))
	}
	path := dotted(fields[0])
	k, err := t.add(path, fields[1], fields[2])
	if err != nil {
		return err
	}
	for _, f := range fields[3:] {
		from, text, _ := strings.Cut(f, "=")
		d := defaultFrom{known: text != "?"}
		if d.from, err = version(from); err != nil {
			return err
		}
		if d.known {
			if err := json.Unmarshal([]byte(text), &d.value); err != nil {
				return fmt.Errorf("default %s: %w", text, err)
			}
			switch d.value.(type) {
			case []any:
				k.Shape = List
			case map[string]any:
				k.Shape = Map
			default:
				k.Shape = Scalar
			}
		}
		k.defaults = append(k.defaults, d)
	}
	k.listed = k.Until
	t.keys[path.String()] = k
	t.order = append(t.order, k)
	return nil
}

// dotted reads a path of the table, in which the names of labels and annotations hold dots of their own.
func dotted(s string) Path {
	for _, m := range []string{"annotations.", "nodeSelector."} {
		if before, label, found := strings.Cut(s, "."+m); found {
			return append(strings.Split(before+"."+strings.TrimSuffix(m, "."), "."), label)
		}
	}
	return strings.Split(s, ".")
}

func (t *Table) addTemplate(fields []string) error {
	if len(fields) != 4 {
		return fmt.Errorf("%d fields, want 4", len(fields))
	}
	k, err := t.add(dotted(fields[0]), fields[1], fields[2])
	if err != nil {
		return err
	}
	k.Template = true
	switch fields[3] {
	case "scalar":
	case "list":
		k.Shape = List
	case "map":
		k.Shape = Map
	default:
		return fmt.Errorf("shape %q, want scalar, list or map", fields[3])
	}
	if have, known := t.keys[fields[0]]; known {
		// the templates read the key before or after the time in which values.yaml lists it
		have.Since, have.Until = oldest(have.Since, k.Since), newest(have.Until, k.Until)
		return nil
	}
	t.keys[k.Path.String()] = k
	t.order = append(t.order, k)
	return nil
}

func oldest(a, b Version) Version {
	if b.Before(a) {
		return b
	}
	return a
}

// newest is the later end of two lifetimes; no release means that one goes on.
func newest(a, b Version) Version {
	if a == (Version{}) || b == (Version{}) || b.Before(a) {
		if b == (Version{}) {
			return b
		}
		return a
	}
	return b
}

func (t *Table) addOperands(fields []string) error {
	v, err := version(fields[0])
	if err != nil {
		return err
	}
	operands := map[string][]string{}
	for _, f := range fields[1:] {
		name, list, found := strings.Cut(f, "=")
		if !found {
			return fmt.Errorf("operand %q, want name=version", f)
		}
		operands[name] = strings.Split(list, ",")
	}
	t.operands[v] = operands
	return nil
}

// Versions returns the releases that the table knows, the oldest first.
func (t *Table) Versions() []Version { return slices.Clone(t.versions) }

// Latest returns the newest release that the table knows.
func (t *Table) Latest() Version { return t.versions[len(t.versions)-1] }

// Key returns the key at the path.
func (t *Table) Key(path Path) (*Key, bool) {
	k, ok := t.keys[path.String()]
	return k, ok
}

// Keys returns the keys that the chart has at v, by path.
func (t *Table) Keys(v Version) []*Key {
	var out []*Key
	for _, k := range t.order {
		if k.In(v) {
			out = append(out, k)
		}
	}
	return out
}

// AllKeys returns every key that the chart has or had, by path.
func (t *Table) AllKeys() []*Key { return slices.Clone(t.order) }

// Default returns the default at v of the key at the path, and whether it is known.
func (t *Table) Default(v Version, path string) (value any, known bool) {
	k, ok := t.keys[path]
	if !ok || !k.In(v) {
		return nil, false
	}
	return k.Default(v)
}

// Next returns the release that follows v.
func (t *Table) Next(v Version) (Version, bool) {
	i := slices.Index(t.versions, v)
	if i < 0 || i+1 == len(t.versions) {
		return Version{}, false
	}
	return t.versions[i+1], true
}

// Operand returns the versions of an operand, such as "driver" or "dcgmExporter", that release v is made for, the
// default first, without a leading v. Where the table has no matrix for v it takes that of another patch of the same
// line; known is false when there is none.
func (t *Table) Operand(v Version, operand string) (versions []string, known bool) {
	if list, ok := t.operands[v][operand]; ok {
		return slices.Clone(list), true
	}
	for _, other := range t.versions {
		if other.Minor() == v.Minor() {
			if list, ok := t.operands[other][operand]; ok {
				return slices.Clone(list), true
			}
		}
	}
	return nil, false
}
