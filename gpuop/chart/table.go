package chart

import (
	"embed"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
)

//go:embed *.txt
var tables embed.FS

// Shape says whether a value is a scalar, a list or a map.
type Shape uint8

// Shapes of a value.
const (
	Scalar Shape = iota // a string, number or boolean
	List
	Map // a map with free names, such as labels, or with Kubernetes' own names, such as resources
	Any // unknown, for example because the default is null
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

// cell has the facts about a key at one release.
type cell struct {
	listed bool // in the chart's or a subchart's values.yaml
	value  any  // the default, decoded as JSON
	use    Use
}

// Key is a leaf of the chart's values, or a path that only templates read.
type Key struct {
	Path  Path
	table *Table
	at    []cell // by release, like Table.releases
}

// in reports whether the release has the key in values.yaml or in a template.
func (c cell) in() bool { return c.listed || c.use != Unread }

func (k *Key) cell(v Version) cell {
	if i := k.table.index(v); i >= 0 {
		return k.at[i]
	}
	return cell{}
}

// In reports whether release v has the key in values.yaml or in a template.
func (k *Key) In(v Version) bool { return k.cell(v).in() }

// Listed reports whether values.yaml of release v has the key. Templates read some keys that values.yaml lacks.
func (k *Key) Listed(v Version) bool { return k.cell(v).listed }

// Use returns how the templates of v read the key.
func (k *Key) Use(v Version) Use { return k.cell(v).use }

// Since returns the first release that has the key.
func (k *Key) Since() Version {
	if i := slices.IndexFunc(k.at, cell.in); i >= 0 {
		return k.table.releases[i].version
	}
	return Version{}
}

// last returns the index of the newest release that has the key, or -1.
func (k *Key) last() int {
	for i, c := range slices.Backward(k.at) {
		if c.in() {
			return i
		}
	}
	return -1
}

// Until returns the last release that has the key, or no release if the newest has it.
func (k *Key) Until() Version {
	if i := k.last(); i >= 0 && i < len(k.at)-1 {
		return k.table.releases[i].version
	}
	return Version{}
}

// Group reports whether the key is a group that templates read as a whole.
func (k *Key) Group() bool {
	return len(k.table.groups[k.Path.String()]) > 0 && !slices.ContainsFunc(k.at, func(c cell) bool { return c.listed })
}

// Shape returns the shape of the key's value at release v.
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

// Default returns the key's default at release v, decoded as JSON. known is false if values.yaml does not have the key.
func (k *Key) Default(v Version) (value any, known bool) {
	c := k.cell(v)
	return c.value, c.listed
}

// Change is a new default, and the release that introduced it.
type Change struct {
	From  Version
	Value any
}

// Defaults returns the key's defaults over time, oldest first.
func (k *Key) Defaults() []Change {
	var out []Change
	for i, c := range k.at {
		if n := len(out); c.listed && (n == 0 || !reflect.DeepEqual(out[n-1].Value, c.value)) {
			out = append(out, Change{k.table.releases[i].version, c.value})
		}
	}
	return out
}

// Replaced returns the release that replaced value as the key's default. found is false if value was never the default,
// or is the newest default.
func (k *Key) Replaced(value string) (since Version, found bool) {
	was := false
	for _, d := range k.Defaults() {
		is := Text(d.Value) == value
		if was && !is {
			since, found = d.From, true
		}
		was = is
	}
	return since, found && !was
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

// Table has the facts about the chart. It is immutable. The zero value has no releases.
type Table struct {
	releases []facts // oldest first
	keys     map[string]*Key
	order    []*Key            // sorted by path
	groups   map[string][]*Key // the keys below each path
	// children has, for each release, the names directly below each path. A path without an entry is not a group.
	children []map[string][]string
	// components are the top-level names in the values of any release.
	components []string
	fields     map[string]map[string][]*Field // by kind and path of the parent
	about      map[string]About
	exclusions []Exclusion
}

// facts is the data of a release other than keys and fields.
type facts struct {
	version    Version
	appVersion string
	discovery  string // version of Node Feature Discovery
	operands   []Operand
}

// Load returns the built-in table, which is parsed once. An invalid table would be empty, so a test parses every line.
var Load = sync.OnceValue(func() *Table {
	t, err := parse()
	if err != nil {
		return &Table{releases: make([]facts, 1)}
	}
	return t
})

func newTable() *Table {
	return &Table{keys: map[string]*Key{}, fields: map[string]map[string][]*Field{}}
}

func parse() (*Table, error) {
	t := newTable()
	t.about = map[string]About{}
	for _, file := range []struct {
		name string
		span int // index of the column that lists releases, or -1
		line func(columns []string, in []int) error
	}{
		{"releases.txt", -1, t.addRelease},
		{"values.txt", 1, t.addValue},
		{"reads.txt", 1, t.addRead},
		{"fields.txt", 2, t.addField},
		{"operands.txt", 1, t.addOperands},
		{"about.txt", -1, t.addAbout},
		{"exclusions.txt", -1, t.addExclusion},
	} {
		text, err := tables.ReadFile(file.name)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSuffix(line, "\n")
			if line == "" || line[0] == '#' {
				continue
			}
			columns := strings.Split(line, "\t")
			var in []int
			if file.span >= 0 {
				in, err = t.spans(columns[file.span])
			}
			if err == nil {
				err = file.line(columns, in)
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", file.name, line, err)
			}
		}
	}
	t.arrange()
	return t, nil
}

// arrange builds the indexes from the keys.
func (t *Table) arrange() {
	t.order = nil
	for _, name := range slices.Sorted(maps.Keys(t.keys)) {
		t.order = append(t.order, t.keys[name])
	}
	t.groups, t.children, t.components = map[string][]*Key{}, make([]map[string][]string, len(t.releases)), nil
	for i := range t.children {
		t.children[i] = map[string][]string{}
	}
	for _, k := range t.order {
		if !slices.Contains(t.components, k.Path[0]) {
			t.components = append(t.components, k.Path[0])
		}
		for n, name := range k.Path {
			group := k.Path[:n].String()
			t.groups[group] = append(t.groups[group], k)
			for i, c := range k.at {
				if c.in() && !slices.Contains(t.children[i][group], name) {
					t.children[i][group] = append(t.children[i][group], name)
				}
			}
		}
	}
}

func (t *Table) index(v Version) int {
	i, found := t.find(v)
	if !found {
		return -1
	}
	return i
}

// find returns the index of a release. If it is unknown, find returns the index at which to insert it, and false.
func (t *Table) find(v Version) (int, bool) {
	return slices.BinarySearchFunc(t.releases, v, func(f facts, v Version) int { return f.version.Compare(v) })
}

// facts returns the data of a release. It is empty for unknown releases.
func (t *Table) facts(v Version) facts {
	if i := t.index(v); i >= 0 {
		return t.releases[i]
	}
	return facts{}
}

func (t *Table) addRelease(columns []string, _ []int) error {
	v, err := ParseVersion(columns[0])
	t.releases = append(t.releases, facts{version: v, appVersion: columns[1], discovery: columns[2]})
	return err
}

// key returns the key at the path. It adds the key if it is new.
func (t *Table) key(path Path) *Key {
	name := path.String()
	k, ok := t.keys[name]
	if !ok {
		k = &Key{Path: path, table: t, at: make([]cell, len(t.releases))}
		t.keys[name] = k
	}
	return k
}

// spans parses ranges of releases, such as "v1.7.0-v1.8.2 v23.3.0-", to indexes.
func (t *Table) spans(text string) ([]int, error) {
	var out []int
	for word := range strings.FieldsSeq(text) {
		first, last, isRange := strings.Cut(word, "-")
		switch {
		case !isRange:
			last = first
		case last == "":
			last = t.Latest().String()
		}
		from, err := ParseVersion(first)
		to, lastErr := ParseVersion(last)
		start, end := t.index(from), t.index(to)
		if err != nil || lastErr != nil || start < 0 || end < start {
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
		v, err := ParseVersion(from)
		if err != nil {
			return err
		}
		var value any
		if err := json.Unmarshal([]byte(text), &value); err != nil {
			return err
		}
		for _, i := range in {
			if i >= t.index(v) {
				k.at[i].value = value
			}
		}
	}
	return nil
}

func (t *Table) addRead(columns []string, in []int) error {
	use := slices.Index(useNames[:], columns[2])
	if use < 1 {
		return fmt.Errorf("use %q, expected %s", columns[2], strings.Join(useNames[1:], ", "))
	}
	k := t.key(ParsePath(columns[0]))
	for _, i := range in {
		k.at[i].use = Use(use)
	}
	return nil
}

func (t *Table) addOperands(columns []string, in []int) error {
	o := Operand{DaemonSet: columns[0]}
	err := json.Unmarshal([]byte(columns[2]), &o)
	for _, i := range in {
		t.releases[i].operands = append(t.releases[i].operands, o)
	}
	return err
}

// Exclusion is a combination of settings that does not work.
type Exclusion struct {
	State check.Severity
	// When lists the conditions, which must all be true.
	When []Condition
	// At lists the settings to which findings refer.
	At          []string
	Reason, Fix string
}

func (t *Table) addExclusion(columns []string, _ []int) error {
	e := Exclusion{State: check.Warning, At: strings.Fields(columns[2]), Reason: columns[3], Fix: columns[4]}
	if columns[0] == "error" {
		e.State = check.Error
	}
	for condition := range strings.FieldsSeq(columns[1]) {
		e.When = append(e.When, Condition(condition))
	}
	t.exclusions = append(t.exclusions, e)
	return nil
}

// Exclusions returns the invalid combinations of all releases.
func (t *Table) Exclusions() []Exclusion { return slices.Clone(t.exclusions) }

// Versions returns the known releases, oldest first.
func (t *Table) Versions() []Version {
	out := make([]Version, len(t.releases))
	for i, f := range t.releases {
		out[i] = f.version
	}
	return out
}

// Latest returns the newest known release.
func (t *Table) Latest() Version { return t.releases[len(t.releases)-1].version }

// AppVersion returns the operator version that release v of the chart installs.
func (t *Table) AppVersion(v Version) string { return t.facts(v).appVersion }

// Key returns the key at the path.
func (t *Table) Key(path Path) (*Key, bool) {
	k, ok := t.keys[path.String()]
	return k, ok
}

// Keys returns the keys of release v, sorted by path. It omits groups that templates read as a whole.
func (t *Table) Keys(v Version) []*Key {
	return slices.DeleteFunc(slices.Clone(t.order), func(k *Key) bool { return !k.In(v) || t.group(v, k.Path) })
}

// AllKeys returns the keys of all releases, sorted by path. It includes groups that templates read as a whole.
func (t *Table) AllKeys() []*Key { return slices.Clone(t.order) }

// Default returns the default, at release v, of the key at path. known is false if values.yaml does not have the key.
func (t *Table) Default(v Version, path string) (value any, known bool) {
	k, ok := t.keys[path]
	if !ok {
		return nil, false
	}
	return k.Default(v)
}

// Next returns the release after v. It returns false if v is the newest release, or unknown.
func (t *Table) Next(v Version) (Version, bool) {
	i := t.index(v)
	if i < 0 || i+1 == len(t.releases) {
		return Version{}, false
	}
	return t.releases[i+1].version, true
}

// VersionKey returns the key of the values that sets the version of an operand, which is named as in Tag.
func VersionKey(operand string) string {
	if operand == "nfd" {
		return "node-feature-discovery.image.tag"
	}
	return operand + ".version"
}

// Tag returns the version of an operand in release v. Operands are named like "toolkit" or "driver.manager"; "nfd" is
// Node Feature Discovery. Tag returns "" if the release does not specify a version.
func (t *Table) Tag(v Version, operand string) string {
	value, _ := t.Default(v, operand+".version")
	switch {
	case Released(operand):
		return t.AppVersion(v)
	case operand == "nfd":
		return t.facts(v).discovery
	}
	return Text(value)
}

// Images returns the sections of release v that specify an image, such as "driver.manager".
func (t *Table) Images(v Version) []string {
	var out []string
	for _, k := range t.order {
		if n := len(k.Path) - 1; n > 0 && k.Path[n] == "image" && k.Use(v) >= Printed {
			out = append(out, k.Path[:n].String())
		}
	}
	return out
}

// Released reports whether a section's image is built from the operator's source. The default version of such an image
// is the operator's version.
func Released(part string) bool {
	return part == "operator" || part == "validator" || part == "nodeStatusExporter"
}

// Operands returns the operands of release v in the order in which the newest operator creates them.
func (t *Table) Operands(v Version) []Operand { return slices.Clone(t.facts(v).operands) }
