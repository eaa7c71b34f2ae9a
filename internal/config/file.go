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
		r.FailLine(max(file, r.doc.fields[0].Line), "metrics.file and metrics.fields exclude each other: keep one")
	}
	switch v := text.ValueOf(n, "version"); {
	case v == nil:
		r.Fail(n, "the version is missing: expected version: 1 or 2")
	case v.Kind == yaml.ScalarNode && v.Tag == "!!str" && (v.Value == "1" || v.Value == "2"):
		r.Fail(v, "version %s is a text: expected the number, without quotes", text.Describe(v))
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
	return keys
}

// otherVersion refuses a key that belongs to the other version.
func (r *reader) otherVersion(key string, version int, instead string) func(*yaml.Node) {
	return func(n *yaml.Node) {
		r.Fail(n, "%s is of version %d: expected %s", key, version, instead)
	}
}

// everything is the pattern of the collection whose interval is that of all other fields.
const everything = "*"

// collections reads those of version 2.
func (r *reader) collections(n *yaml.Node) {
	whole := 0
	r.Sequence(n, "collections", func(n *yaml.Node) {
		const where = "collections"
		g := WatchGroup{Line: n.Line}
		every := n
		ok := r.Mapping(n, where, text.Keys{
			"name":  func(n *yaml.Node) { g.Name = r.Text(n, where+".name") },
			"every": func(n *yaml.Node) { every = n; r.interval(n, where+".every", &g.Interval) },
			"metrics": func(n *yaml.Node) {
				r.Mapping(n, where+".metrics", text.Keys{"include": func(n *yaml.Node) {
					r.globs(n, where+".metrics.include", func(n *yaml.Node, s string) { r.pattern(n, &g, s) })
				}})
			},
			"sources": func(n *yaml.Node) { // accepted
				other := &reader{r.YAML, &document{scalars: map[string]scalar{}}}
				other.Mapping(n, where+".sources", other.keys("sources"))
			},
		})
		switch {
		case !ok:
		case !slices.Equal(g.Patterns, []string{everything}):
			r.addGroup(n, &g, where, "metrics.include")
		case whole > 0:
			r.Fail(n, "collections: the one of all fields is there already, on line %d", whole)
		case g.Interval == 0:
			r.Fail(n, "collections: %q has no every: expected a duration such as 30s", g.Name)
		default:
			whole = n.Line
			r.doc.scalars["collection.interval"] = scalar{every.Value, every.Line}
		}
	})
}

func (r *reader) field(n *yaml.Node) {
	f := Field{Line: n.Line}
	ok := r.Mapping(n, "metrics.fields", text.Keys{
		"name":           func(n *yaml.Node) { f.Name = r.Text(n, "metrics.fields.name") },
		"prometheusType": func(n *yaml.Node) { f.Type = r.Text(n, "metrics.fields.prometheusType") },
		"help":           func(n *yaml.Node) { f.Help = r.Text(n, "metrics.fields.help") },
	})
	switch {
	case !ok:
		return
	case f.Name == "":
		r.Fail(n, "metrics.fields: the name is missing")
	case f.Type == "":
		r.Fail(n, "metrics.fields: %s has no prometheusType: expected counter, gauge, label or untyped", f.Name)
	}
	for _, other := range r.doc.fields {
		if other.Name == f.Name && f.Name != "" {
			r.Fail(n, "metrics.fields: %s is there already, on line %d", f.Name, other.Line)
		}
	}
	r.doc.fields = append(r.doc.fields, f)
}

func (r *reader) group(n *yaml.Node) {
	g := WatchGroup{Line: n.Line}
	ok := r.Mapping(n, "collection.watchGroups", text.Keys{
		"name":     func(n *yaml.Node) { g.Name = r.Text(n, "collection.watchGroups.name") },
		"interval": func(n *yaml.Node) { r.interval(n, "collection.watchGroups.interval", &g.Interval) },
		"fields": func(n *yaml.Node) {
			r.globs(n, "collection.watchGroups.fields", func(n *yaml.Node, s string) { r.pattern(n, &g, s) })
		},
	})
	if ok {
		r.addGroup(n, &g, "collection.watchGroups", "fields")
	}
}

// addGroup keeps a group that says all that it must. fields is the key of its patterns.
func (r *reader) addGroup(n *yaml.Node, g *WatchGroup, where, fields string) {
	if g.Name == "" {
		r.Fail(n, "%s: the name is missing", where)
	}
	if g.Interval == 0 {
		r.Fail(n, "%s: %q has no interval: expected a duration such as 5s", where, g.Name)
	}
	if g.Patterns == nil {
		r.Fail(n, "%s: %q has no %s", where, g.Name, fields)
	}
	for _, other := range r.doc.groups {
		if other.Name == g.Name && g.Name != "" {
			r.Fail(n, "%s: the group %q is there already, on line %d", where, g.Name, other.Line)
		}
	}
	r.doc.groups = append(r.doc.groups, *g)
}

// interval reads a duration above zero into d.
func (r *reader) interval(n *yaml.Node, where string, d *time.Duration) {
	s := r.Text(n, where)
	v := duration(d, 0, "")
	if err := v.set(s); err != nil && s != "" {
		r.Fail(n, "%v", badValue(where, s, err, v.form))
		*d = 1 // given, if badly
	}
}

// globs hands each pattern of a list to add.
func (r *reader) globs(n *yaml.Node, where string, add func(*yaml.Node, string)) {
	r.Sequence(n, where, func(n *yaml.Node) {
		s := r.Text(n, where)
		if _, err := path.Match(s, ""); err != nil {
			r.Fail(n, "%q is no pattern: expected a field name, where * stands for any text", s)
		}
		if s != "" {
			add(n, s)
		}
	})
}

// pattern adds a pattern to a group, unless some group has it already.
func (r *reader) pattern(n *yaml.Node, g *WatchGroup, s string) {
	for _, other := range append(r.doc.groups, *g) {
		if slices.Contains(other.Patterns, s) {
			r.Fail(n, "%s is in the watch group %q already, on line %d", s, other.Name, other.Line)
			return
		}
	}
	g.Patterns = append(g.Patterns, s)
}

// scalar keeps the text of n for the option with this key.
func (r *reader) scalar(n *yaml.Node, key string) {
	if s := r.Text(n, key); s != "" {
		r.doc.scalars[key] = scalar{s, n.Line}
	}
}
