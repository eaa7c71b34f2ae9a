package config

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

// A document is the content of a YAML file, with lines.
type document struct {
	scalars map[string]scalar // by option.key
	fields  []Field
	groups  []WatchGroup

	retention text.Line // line of the first retention, which has no effect; 0 for none
}

type scalar struct {
	text string
	line int
}

// applyDocument sets the options without a flag and a variable.
func (p *parser) applyDocument(doc *document) {
	c := p.config
	for i := range p.options {
		o := &p.options[i]
		s, ok := doc.scalars[o.key]
		if _, given := p.origins[o.id()]; !ok || given {
			continue
		}
		v := o.bind(c)
		if o.key == "collection.interval" {
			v = duration(&c.Collection.Interval, 0, "") // a bare number in a file would have no unit
		}
		p.set(o, v, s.text, origin{layerFile, fmt.Sprintf("%s:%d: %s", c.Path, s.line, o.key)})
	}
	c.Collection.Groups = doc.groups
	if doc.retention > 0 {
		p.warn("%s:%d: retention has no effect: the exporter keeps every sample that it needs.", c.Path, doc.retention)
	}
	_, file := p.origins["collectors"]
	_, configMap := p.origins["configmap-data"]
	if !file && !configMap {
		c.Metrics.Fields = doc.fields
	}
}

func (p *parser) readDocument(name string) (*document, error) {
	data, err := p.readFile(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.label("config-file"), err)
	}
	return parseDocument(name, data)
}

// parseDocument reads a YAML file of version 1 or 2. This is version 1:
//
//	version: 1
//	metrics:
//	  file: PATH                 # or, instead of a file:
//	  fields:
//	    - {name: NAME, prometheusType: TYPE, help: TEXT}
//	collection:
//	  interval: 30s
//	  watchGroups:
//	    - {name: NAME, interval: 5s, fields: [GLOB, …]}
//
// Version 2 has collections in the place of collection. The collection of all fields gives the
// interval; each other one is a watch group:
//
//	collections:
//	  - {name: NAME, every: 30s, metrics: {include: ["*"]}}
//	  - {name: NAME, every: 5s, metrics: {include: [GLOB, …]}}
//
// Both may set metrics.enableExporterMetrics, server and sources.
func parseDocument(name string, data []byte) (*document, error) {
	y, root, err := text.ParseYAML(name, data, "version: 1 or 2")
	if err != nil {
		return nil, err
	}
	r := &reader{YAML: y, doc: &document{scalars: map[string]scalar{}}}
	r.root(root)
	return r.doc, r.Err()
}

// A reader reads the nodes of a file into a document.
type reader struct {
	*text.YAML
	doc *document
}

func (r *reader) root(n *yaml.Node) {
	keys := r.keys("")
	keys["version"] = func(*yaml.Node) {}
	if v := text.ValueOf(n, "version"); v != nil && v.Value == "2" {
		keys["collections"], keys["collection"] = r.collections, r.otherVersion("collection", 1, "collections")
	} else {
		keys["collections"] = r.otherVersion("collections", 2, "collection")
	}
	if !r.Mapping(n, "", keys) {
		return
	}
	if file := r.doc.scalars["metrics.file"].line; file > 0 && r.doc.fields != nil {
		r.FailLine(max(file, int(r.doc.fields[0].Line)), "metrics.file and metrics.fields cannot be combined: keep one")
	}
	switch v := text.ValueOf(n, "version"); {
	case v == nil:
		r.Fail(n, "the version is missing: expected version: 1 or 2")
	case v.Kind == yaml.ScalarNode && v.Tag == "!!str" && (v.Value == "1" || v.Value == "2"):
		r.Fail(v, "version %s is a string: expected a number without quotes", text.Describe(v))
	case v.Kind != yaml.ScalarNode || v.Tag != "!!int" || v.Value != "1" && v.Value != "2":
		r.Fail(v, "version %s: expected 1 or 2", text.Describe(v))
	}
}

// keys returns the readers of the mapping at a path: of the table's keys below it, and of the lists.
func (r *reader) keys(where string) text.Keys {
	lists := map[string]func(*yaml.Node){"metrics.fields": r.field, "collection.watchGroups": r.group}
	paths := slices.Collect(maps.Keys(lists))
	for _, o := range table() {
		paths = append(paths, o.key)
	}
	keys := text.Keys{}
	for _, path := range paths {
		rest, below := strings.CutPrefix("."+path, strings.TrimSuffix("."+where, ".")+".")
		name, _, nested := strings.Cut(rest, ".")
		full := strings.TrimPrefix(where+"."+name, ".")
		switch {
		case !below || name == "":
		case nested:
			keys[name] = func(n *yaml.Node) { r.Mapping(n, full, r.keys(full)) }
		case lists[path] != nil:
			keys[name] = func(n *yaml.Node) { r.Sequence(n, full, lists[full]) }
		default:
			keys[name] = func(n *yaml.Node) { r.scalar(n, full) }
		}
	}
	if where == "collection" {
		keys["retention"] = r.retention
	}
	return keys
}

// retention accepts how long DCGM is to keep samples, in whatever form.
func (r *reader) retention(n *yaml.Node) {
	if r.doc.retention == 0 {
		r.doc.retention = text.Line(n.Line)
	}
}

// otherVersion refuses a key that belongs to the other version.
func (r *reader) otherVersion(key string, version int, instead string) func(*yaml.Node) {
	return func(n *yaml.Node) {
		r.Fail(n, "%s belongs to version %d: expected %s", key, version, instead)
	}
}

// everything is the pattern of the default collection. Its interval applies to the fields that match no other pattern.
const everything = "*"

// A collection is an entry of collections in version 2.
type collection struct {
	Line    text.Line
	Name    string        `yaml:"name"`
	Every   time.Duration `yaml:"every"`
	Metrics struct {
		Include []string `yaml:"include"`
	} `yaml:"metrics"`
	Sources *yaml.Node `yaml:"sources"` // accepted
}

// collections reads the collections of version 2.
func (r *reader) collections(n *yaml.Node) {
	const where = "collections"
	general := text.Line(0)
	r.Sequence(n, where, func(n *yaml.Node) {
		var c collection
		if !r.Decode(n, &c, where) {
			return
		}
		if c.Sources != nil {
			other := &reader{r.YAML, &document{scalars: map[string]scalar{}}}
			other.Mapping(c.Sources, where+".sources", other.keys("sources"))
		}
		switch {
		case !slices.Equal(c.Metrics.Include, []string{everything}):
			r.addGroup(WatchGroup{Line: c.Line, Name: c.Name, Interval: c.Every, Patterns: c.Metrics.Include}, where, "every", "metrics.include")
		case general > 0:
			r.Fail(n, "collections: a second collection of all fields, first on line %d", general)
		case c.Every <= 0:
			r.Fail(n, "collections: %q: every is missing or not above zero: expected a duration such as 30s", c.Name)
		default:
			general = c.Line
			r.doc.scalars["collection.interval"] = scalar{c.Every.String(), n.Line}
		}
	})
}

func (r *reader) field(n *yaml.Node) {
	var f Field
	if !r.Decode(n, &f, "metrics.fields") {
		return
	}
	switch {
	case f.Name == "":
		r.Fail(n, "metrics.fields: the name is missing")
	case f.Type == "":
		r.Fail(n, "metrics.fields: %s has no prometheusType: expected counter, gauge, label or untyped", f.Name)
	}
	for _, other := range r.doc.fields {
		if other.Name == f.Name && f.Name != "" {
			r.Fail(n, "metrics.fields: %s is a duplicate, first on line %d", f.Name, other.Line)
		}
	}
	r.doc.fields = append(r.doc.fields, f)
}

func (r *reader) group(n *yaml.Node) {
	const where = "collection.watchGroups"
	var g struct {
		Line      text.Line
		Name      string        `yaml:"name"`
		Interval  time.Duration `yaml:"interval"`
		Patterns  []string      `yaml:"fields"`
		Retention *yaml.Node    `yaml:"retention"` // accepted
	}
	if !r.Decode(n, &g, where) {
		return
	}
	if g.Retention != nil {
		r.retention(g.Retention)
	}
	r.addGroup(WatchGroup{Line: g.Line, Name: g.Name, Interval: g.Interval, Patterns: g.Patterns}, where, "interval", "fields")
}

// addGroup adds a watch group and reports its errors. The argument where is the path of the group; interval and
// fields are the keys that it uses in messages.
func (r *reader) addGroup(g WatchGroup, where, interval, fields string) {
	fail := func(format string, args ...any) {
		r.FailLine(int(g.Line), "%s: "+format, append([]any{where}, args...)...)
	}
	if g.Name == "" {
		fail("the name is missing")
	}
	if g.Interval <= 0 {
		fail("%q: %s is missing or not above zero: expected a duration such as 5s", g.Name, interval)
	}
	if g.Patterns == nil {
		fail("%q has no %s", g.Name, fields)
	}
	for _, other := range r.doc.groups {
		if other.Name == g.Name && g.Name != "" {
			fail("the group %q is a duplicate, first on line %d", g.Name, other.Line)
		}
		for _, pattern := range other.Patterns {
			if slices.Contains(g.Patterns, pattern) {
				fail("%s is also in the group %q on line %d", pattern, other.Name, other.Line)
			}
		}
	}
	for _, pattern := range g.Patterns {
		if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
			fail("%q is not a pattern: expected a field name, where * matches any text", pattern)
		}
	}
	r.doc.groups = append(r.doc.groups, g)
}

// scalar keeps the text of n for the option with this key.
func (r *reader) scalar(n *yaml.Node, key string) {
	if s := r.Text(n, key); s != "" {
		r.doc.scalars[key] = scalar{s, n.Line}
	}
}
