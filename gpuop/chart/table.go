// Package chart describes the releases of NVIDIA's gpu-operator Helm chart since v1.7.0: the keys and defaults of the
// values, which of them the templates read, the fields of the custom resources, and the operands.
//
// The facts are embedded text files. Most are generated from the charts and from the operator's source by go generate;
// about.txt and exclusions.txt are written by hand. A Table is immutable.
//
// The package reads no charts, clusters or files.
package chart

import (
	"bytes"
	"embed"
	"encoding/csv"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
)

//go:generate go run ../../tools/operator

//go:embed *.txt
var tables embed.FS

// Table has the facts about the chart. It is immutable. The zero value has no releases.
type Table struct {
	releases   []*Release // oldest first
	keys       map[string]*Key
	groups     map[string][]*Key // the keys below each path, sorted by path
	about      map[string]About
	exclusions []Exclusion
}

// Release holds the facts about one release, as read from its chart.
type Release struct {
	Version    Version
	AppVersion string
	// Discovery is the version of Node Feature Discovery in the chart.
	Discovery string
	// Values maps the dotted paths of the defaults to their values, decoded as JSON. Groups have no entry, except empty
	// ones. Values of a subchart are below its name.
	Values map[string]any
	// Reads maps each dotted path that the templates read to how they use it.
	Reads map[string]Use
	// Fields are the fields of the custom resources. It is empty if the CRDs are not available.
	Fields   map[Parent][]*Field
	operands []Operand
}

// About explains a key.
type About struct {
	// Reader names what reads the key: a DaemonSet of the operator, the chart's templates or Helm.
	Reader string
	// Text explains in one or two sentences what the key does.
	Text string
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

// Load returns the built-in table, which is parsed once. Errors are ignored, because tests write the tables again from
// what is parsed.
var Load = sync.OnceValue(func() *Table {
	t := &Table{about: map[string]About{}}
	for _, c := range columns("releases.txt") {
		v, _ := ParseVersion(c[0])
		r := &Release{v, c[1], c[2], map[string]any{}, map[string]Use{}, map[Parent][]*Field{}, nil}
		t.releases = append(t.releases, r)
	}
	for _, c := range columns("values.txt") {
		for _, change := range c[2:] {
			since, text, _ := strings.Cut(change, "=")
			from, _ := ParseVersion(since)
			var value any
			_ = json.Unmarshal([]byte(text), &value)
			for _, r := range t.span(c[1]) {
				if !r.Version.Before(from) {
					r.Values[c[0]] = value
				}
			}
		}
	}
	for _, c := range columns("reads.txt") {
		for _, r := range t.span(c[1]) {
			r.Reads[c[0]] = Use(slices.Index(useNames[:], c[2]))
		}
	}
	for _, c := range columns("fields.txt") {
		f := &Field{Path: c[1]}
		_ = json.Unmarshal([]byte(c[3]), f)
		path, _ := cutField(f.Path)
		for _, r := range t.span(c[2]) {
			r.Fields[Parent{c[0], path}] = append(r.Fields[Parent{c[0], path}], f)
		}
	}
	for _, c := range columns("operands.txt") {
		o := Operand{DaemonSet: c[0]}
		_ = json.Unmarshal([]byte(c[2]), &o)
		for _, r := range t.span(c[1]) {
			r.operands = append(r.operands, o)
		}
	}
	for _, c := range columns("about.txt") {
		t.about[c[0]] = About{Reader: c[1], Text: c[2]}
	}
	for _, c := range columns("exclusions.txt") {
		e := Exclusion{State: check.Warning, At: strings.Fields(c[2]), Reason: c[3], Fix: c[4]}
		if c[0] == "error" {
			e.State = check.Error
		}
		for condition := range strings.FieldsSeq(c[1]) {
			e.When = append(e.When, Condition(condition))
		}
		t.exclusions = append(t.exclusions, e)
	}
	return t.index()
})

// columns returns the columns of each line of an embedded file, except comments.
func columns(name string) [][]string {
	text, _ := tables.ReadFile(name)
	r := csv.NewReader(bytes.NewReader(text))
	r.Comma, r.Comment, r.LazyQuotes, r.FieldsPerRecord = '\t', '#', true, -1
	lines, _ := r.ReadAll()
	return lines
}

// span returns the releases in ranges such as "v1.7.0-v1.8.2 v23.3.0-".
func (t *Table) span(ranges string) (out []*Release) {
	for word := range strings.FieldsSeq(ranges) {
		first, last, isRange := strings.Cut(word, "-")
		if !isRange {
			last = first
		}
		from, _ := ParseVersion(first)
		to, err := ParseVersion(last)
		for _, r := range t.releases {
			if !r.Version.Before(from) && (err != nil || !to.Before(r.Version)) {
				out = append(out, r)
			}
		}
	}
	return out
}

// index fills in the keys and groups from the releases.
func (t *Table) index() *Table {
	t.keys, t.groups = map[string]*Key{}, map[string][]*Key{}
	names := map[string]bool{}
	for _, r := range t.releases {
		for name := range r.Values {
			names[name] = true
		}
		for name := range r.Reads {
			names[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		k := &Key{ParsePath(name), name, t}
		t.keys[name] = k
		for n := range k.Path {
			group := k.Path[:n].String()
			t.groups[group] = append(t.groups[group], k)
		}
	}
	return t
}

// With returns a table that includes the release and replaces previous facts about it. A chart does not list operands,
// so a known release keeps its operands, and a new one gets those of the preceding release. If the CRDs are not
// available, a known release also keeps its fields.
func (t *Table) With(r *Release) *Table {
	out, next := *t, *r
	at, known := t.find(r.Version)
	end := at
	switch {
	case known:
		next.operands, end = t.releases[at].operands, at+1
		if len(r.Fields) == 0 {
			next.Fields = t.releases[at].Fields
		}
	case at > 0:
		next.operands = t.releases[at-1].operands
	}
	out.releases = slices.Concat(t.releases[:at], []*Release{&next}, t.releases[end:])
	return out.index()
}

// find returns the index of a release. If it is unknown, find returns the index at which to insert it, and false.
func (t *Table) find(v Version) (int, bool) {
	return slices.BinarySearchFunc(t.releases, v, func(r *Release, v Version) int { return r.Version.Compare(v) })
}

// release returns the facts of a release. They are empty for unknown releases.
func (t *Table) release(v Version) *Release {
	if i, known := t.find(v); known {
		return t.releases[i]
	}
	return &Release{}
}

// Versions returns the known releases, oldest first.
func (t *Table) Versions() (out []Version) {
	for _, r := range t.releases {
		out = append(out, r.Version)
	}
	return out
}

// Latest returns the newest known release.
func (t *Table) Latest() Version { return t.releases[len(t.releases)-1].Version }

// AppVersion returns the operator version that release v of the chart installs.
func (t *Table) AppVersion(v Version) string { return t.release(v).AppVersion }

// Exclusions returns the invalid combinations of all releases.
func (t *Table) Exclusions() []Exclusion { return slices.Clone(t.exclusions) }

// About returns the explanation of the key at path, or of the nearest group around it.
func (t *Table) About(path Path) (about About) {
	for n := range path {
		if a, ok := t.about[path[:n+1].String()]; ok {
			about = a
		}
	}
	return about
}

// Images returns the sections of release v that specify an image, such as "driver.manager".
func (t *Table) Images(v Version) (out []string) {
	for _, k := range t.AllKeys() {
		if section, found := strings.CutSuffix(k.name, ".image"); found && k.Use(v) >= Printed {
			out = append(out, section)
		}
	}
	return out
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
	switch {
	case Released(operand):
		return t.AppVersion(v)
	case operand == "nfd":
		return t.release(v).Discovery
	}
	value, _ := t.Default(v, operand+".version")
	return Text(value)
}

// Released reports whether a section's image is built from the operator's source, and has the operator's version.
func Released(section string) bool {
	return section == "operator" || section == "validator" || section == "nodeStatusExporter"
}
