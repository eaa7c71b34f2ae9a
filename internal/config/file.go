package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

// A document is what a YAML file says, with the lines where it does.
type document struct {
	scalars map[string]scalar // by option.key
	fields  []Field
	groups  []WatchGroup
	// aggregate has no interval where the file has none.
	aggregate Aggregate
}

type scalar struct {
	text string
	line int
}

// applyDocument sets what no flag and no variable did.
func (p *parser) applyDocument(doc *document) {
	c := p.config
	for i := range p.options {
		o := &p.options[i]
		s, ok := doc.scalars[o.key]
		if _, given := p.origins[o.id()]; !ok || given {
			continue
		}
		v := o.bind(c)
		if d, ok := v.(durationValue); ok {
			d.unit = 0 // a bare number in a file would not say of what
			v = d
		}
		p.setValue(o, v, s.text, origin{layerFile, fmt.Sprintf("%s:%d: %s", c.Path, s.line, o.key)})
	}
	c.Collection.Groups, c.Collection.Aggregate = doc.groups, doc.aggregate
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
//	  aggregate: {interval: 200ms, fields: [GLOB, …]}
//
// Version 2 has collections and aggregate in the place of collection. The
// collection of all fields gives the interval; each other one is a watch group:
//
//	collections:
//	  - {name: NAME, every: 30s, metrics: {include: ["*"]}}
//	  - {name: NAME, every: 5s, metrics: {include: [GLOB, …]}}
//	aggregate: {interval: 200ms, fields: [GLOB, …]}
//
// Both may set metrics.enableExporterMetrics, server and sources.
func parseDocument(name string, data []byte) (*document, error) {
	r := &reader{file: name, doc: &document{scalars: map[string]scalar{}}}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var root, more yaml.Node
	switch err := decoder.Decode(&root); {
	case errors.Is(err, io.EOF):
		return nil, fmt.Errorf("%s: the file is empty: expected version: 1 or 2", name)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", name, err) // the parser's text holds the line
	}
	if err := decoder.Decode(&more); err == nil {
		r.fail(&more, "a second document: expected one")
	} else if !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	r.root(root.Content[0])
	return r.doc, errors.Join(r.errs...)
}

// A reader walks the nodes of a file and notes what is wrong with them.
type reader struct {
	file string
	doc  *document
	errs []error
}

func (r *reader) fail(n *yaml.Node, format string, args ...any) {
	r.failLine(n.Line, format, args...)
}

func (r *reader) failLine(line int, format string, args ...any) {
	r.errs = append(r.errs, fmt.Errorf("%s:%d: "+format, append([]any{r.file, line}, args...)...))
}

func (r *reader) root(n *yaml.Node) {
	known := keys{
		"version": func(*yaml.Node) {},
		"metrics": r.metrics,
		"server":  r.server,
		"sources": r.sources,
	}
	if v := valueOf(n, "version"); v != nil && v.Value == "2" {
		known["collections"], known["aggregate"] = r.collections, r.aggregate
		known["collection"] = r.otherVersion("collection", 1, "collections")
	} else {
		known["collection"] = r.collection
		known["collections"] = r.otherVersion("collections", 2, "collection")
	}
	if !r.mapping(n, "", known) {
		return
	}
	switch v := valueOf(n, "version"); {
	case v == nil:
		r.fail(n, "the version is missing: expected version: 1 or 2")
	case v.Kind != yaml.ScalarNode || v.Tag != "!!int" || v.Value != "1" && v.Value != "2":
		r.fail(v, "version %s: expected 1 or 2", describe(v))
	}
}

// otherVersion refuses a key that belongs to the other version.
func (r *reader) otherVersion(key string, version int, instead string) func(*yaml.Node) {
	return func(n *yaml.Node) {
		r.fail(n, "%s is of version %d: expected %s", key, version, instead)
	}
}

// valueOf returns the value of a key of n, nil where n has none.
func valueOf(n *yaml.Node, key string) *yaml.Node {
	if n = resolve(n); n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if resolve(n.Content[i]).Value == key {
			return resolve(n.Content[i+1])
		}
	}
	return nil
}

func (r *reader) metrics(n *yaml.Node) {
	file, fields := 0, 0
	r.mapping(n, "metrics", keys{
		"file":                  func(n *yaml.Node) { file = n.Line; r.scalar(n, "metrics.file") },
		"enableExporterMetrics": func(n *yaml.Node) { r.scalar(n, "metrics.enableExporterMetrics") },
		"fields": func(n *yaml.Node) {
			fields = n.Line
			r.sequence(n, "metrics.fields", r.field)
		},
	})
	if file > 0 && fields > 0 {
		r.failLine(max(file, fields), "metrics.file and metrics.fields exclude each other: keep one")
	}
}

func (r *reader) server(n *yaml.Node) {
	r.mapping(n, "server", keys{
		"maxConcurrentScrapes": func(n *yaml.Node) { r.scalar(n, "server.maxConcurrentScrapes") },
	})
}

func (r *reader) sources(n *yaml.Node) {
	const bind = "sources.dcgm.detectBindUnbind"
	r.mapping(n, "sources", keys{"dcgm": func(n *yaml.Node) {
		r.mapping(n, "sources.dcgm", keys{
			"watch": func(n *yaml.Node) { r.watch(n, "sources.dcgm.watch", r.scalar) },
			"detectBindUnbind": func(n *yaml.Node) {
				r.mapping(n, bind, keys{
					"enabled":      func(n *yaml.Node) { r.scalar(n, bind+".enabled") },
					"pollInterval": func(n *yaml.Node) { r.scalar(n, bind+".pollInterval") },
				})
			},
		})
	}})
}

// watch reads how long an engine keeps samples, and hands each value to set.
func (r *reader) watch(n *yaml.Node, where string, set func(n *yaml.Node, key string)) {
	r.mapping(n, where, keys{
		"maxKeepAge":     func(n *yaml.Node) { set(n, where+".maxKeepAge") },
		"maxKeepSamples": func(n *yaml.Node) { set(n, where+".maxKeepSamples") },
	})
}

// everything is the pattern of the collection that sets the interval of all
// fields which no other one has.
const everything = "*"

// collections reads those of version 2.
func (r *reader) collections(n *yaml.Node) {
	whole := 0
	r.sequence(n, "collections", func(n *yaml.Node) {
		const where = "collections"
		g := WatchGroup{Line: n.Line}
		every := n
		ok := r.mapping(n, where, keys{
			"name":  func(n *yaml.Node) { g.Name = r.text(n, where+".name") },
			"every": func(n *yaml.Node) { every = n; r.interval(n, where+".every", &g.Interval) },
			"metrics": func(n *yaml.Node) {
				r.mapping(n, where+".metrics", keys{"include": func(n *yaml.Node) {
					r.globs(n, where+".metrics.include", func(n *yaml.Node, s string) { r.pattern(n, &g, s) })
				}})
			},
			"sources": func(n *yaml.Node) {
				r.mapping(n, where+".sources", keys{"dcgm": func(n *yaml.Node) {
					r.mapping(n, where+".sources.dcgm", keys{"watch": func(n *yaml.Node) {
						r.watch(n, where+".sources.dcgm.watch", func(n *yaml.Node, key string) { r.text(n, key) })
					}})
				}})
			},
		})
		switch {
		case !ok:
		case !slices.Equal(g.Patterns, []string{everything}):
			r.addGroup(n, &g, where, "metrics.include")
		case whole > 0:
			r.fail(n, "collections: the one of all fields is there already, on line %d", whole)
		case g.Interval == 0:
			r.fail(n, "collections: %q has no every: expected a duration such as 30s", g.Name)
		default:
			whole = n.Line
			r.doc.scalars["collection.interval"] = scalar{every.Value, every.Line}
		}
	})
}

func (r *reader) field(n *yaml.Node) {
	f := Field{Line: n.Line}
	ok := r.mapping(n, "metrics.fields", keys{
		"name":           func(n *yaml.Node) { f.Name = r.text(n, "metrics.fields.name") },
		"prometheusType": func(n *yaml.Node) { f.Type = r.text(n, "metrics.fields.prometheusType") },
		"help":           func(n *yaml.Node) { f.Help = r.text(n, "metrics.fields.help") },
	})
	switch {
	case !ok:
		return
	case f.Name == "":
		r.fail(n, "metrics.fields: the name is missing")
	case f.Type == "":
		r.fail(n, "metrics.fields: %s has no prometheusType: expected counter, gauge, label or untyped", f.Name)
	}
	for _, other := range r.doc.fields {
		if other.Name == f.Name && f.Name != "" {
			r.fail(n, "metrics.fields: %s is there already, on line %d", f.Name, other.Line)
		}
	}
	r.doc.fields = append(r.doc.fields, f)
}

func (r *reader) collection(n *yaml.Node) {
	r.mapping(n, "collection", keys{
		"interval": func(n *yaml.Node) { r.scalar(n, "collection.interval") },
		"watchGroups": func(n *yaml.Node) {
			r.sequence(n, "collection.watchGroups", r.group)
		},
		"aggregate": r.aggregate,
	})
}

func (r *reader) group(n *yaml.Node) {
	g := WatchGroup{Line: n.Line}
	ok := r.mapping(n, "collection.watchGroups", keys{
		"name":     func(n *yaml.Node) { g.Name = r.text(n, "collection.watchGroups.name") },
		"interval": func(n *yaml.Node) { r.interval(n, "collection.watchGroups.interval", &g.Interval) },
		"fields": func(n *yaml.Node) {
			r.globs(n, "collection.watchGroups.fields", func(n *yaml.Node, s string) { r.pattern(n, &g, s) })
		},
	})
	if ok {
		r.addGroup(n, &g, "collection.watchGroups", "fields")
	}
}

// addGroup keeps a group that says all that it must. fields is the key of its
// patterns.
func (r *reader) addGroup(n *yaml.Node, g *WatchGroup, where, fields string) {
	if g.Name == "" {
		r.fail(n, "%s: the name is missing", where)
	}
	if g.Interval == 0 {
		r.fail(n, "%s: %q has no interval: expected a duration such as 5s", where, g.Name)
	}
	if g.Patterns == nil {
		r.fail(n, "%s: %q has no %s", where, g.Name, fields)
	}
	for _, other := range r.doc.groups {
		if other.Name == g.Name && g.Name != "" {
			r.fail(n, "%s: the group %q is there already, on line %d", where, g.Name, other.Line)
		}
	}
	r.doc.groups = append(r.doc.groups, *g)
}

// aggregate reads which fields are told with their extremes.
func (r *reader) aggregate(n *yaml.Node) {
	a := Aggregate{Line: n.Line}
	ok := r.mapping(n, "collection.aggregate", keys{
		"interval": func(n *yaml.Node) {
			r.interval(n, "collection.aggregate.interval", &a.Interval)
			a.Line = n.Line
		},
		"fields": func(n *yaml.Node) {
			r.globs(n, "collection.aggregate.fields", func(n *yaml.Node, s string) {
				for _, other := range a.Globs {
					if other.Text == s {
						r.fail(n, "collection.aggregate.fields: %s is there already, on line %d", s, other.Line)
						return
					}
				}
				a.Globs = append(a.Globs, Glob{Text: s, Line: n.Line})
			})
		},
	})
	if !ok {
		return
	}
	if a.Interval == 0 {
		r.fail(n, "collection.aggregate has no interval: expected a duration such as 200ms")
	}
	if a.Globs == nil {
		r.fail(n, "collection.aggregate has no fields")
	}
	r.doc.aggregate = a
}

// interval reads a duration above zero into d.
func (r *reader) interval(n *yaml.Node, where string, d *time.Duration) {
	s := r.text(n, where)
	v := durationValue{p: d}
	if err := v.Set(s); err != nil && s != "" {
		r.fail(n, "%w", badValue(where, s, err, v.Form()))
		*d = 1 // given, if badly
	}
}

// globs hands each pattern of a list to add.
func (r *reader) globs(n *yaml.Node, where string, add func(*yaml.Node, string)) {
	r.sequence(n, where, func(n *yaml.Node) {
		s := r.text(n, where)
		if _, err := path.Match(s, ""); err != nil {
			r.fail(n, "%q is no pattern: expected a field name, where * stands for any text", s)
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
			r.fail(n, "%s is in the watch group %q already, on line %d", s, other.Name, other.Line)
			return
		}
	}
	g.Patterns = append(g.Patterns, s)
}

// keys says what to do with the value of each key that a mapping may have.
type keys map[string]func(*yaml.Node)

// mapping hands each value of n to its key, and reports whether n is a
// mapping.
func (r *reader) mapping(n *yaml.Node, where string, keys keys) bool {
	n = resolve(n)
	if n.Kind != yaml.MappingNode {
		if where == "" {
			where = "the file"
		}
		r.fail(n, "%s is %s: expected keys and values", where, describe(n))
		return false
	}
	known := make([]string, 0, len(keys))
	for k := range keys {
		known = append(known, k)
	}
	slices.Sort(known)
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := resolve(n.Content[i]), resolve(n.Content[i+1])
		full := strings.TrimPrefix(where+"."+key.Value, ".")
		read, ok := keys[key.Value]
		switch line, dup := seen[key.Value]; {
		case key.Kind != yaml.ScalarNode || !ok:
			hint := "expected " + strings.Join(known, ", ")
			if near := text.Nearest(key.Value, known); near != "" {
				hint = "did you mean " + near + "?"
			}
			r.fail(n.Content[i], "unknown key %s: %s", describe(key), hint)
		case dup:
			r.fail(n.Content[i], "the key %s is there already, on line %d", full, line)
		default:
			seen[key.Value] = n.Content[i].Line
			read(value)
		}
	}
	return true
}

func (r *reader) sequence(n *yaml.Node, where string, each func(*yaml.Node)) {
	if n.Kind != yaml.SequenceNode || len(n.Content) == 0 {
		r.fail(n, "%s is %s: expected a list", where, describe(n))
		return
	}
	for _, element := range n.Content {
		each(resolve(element))
	}
}

// scalar keeps the text of n for the option with this key.
func (r *reader) scalar(n *yaml.Node, key string) {
	if s := r.text(n, key); s != "" {
		r.doc.scalars[key] = scalar{s, n.Line}
	}
}

// text returns the text of n, "" after an error.
func (r *reader) text(n *yaml.Node, where string) string {
	if n.Kind != yaml.ScalarNode || n.Value == "" || !isText(n.ShortTag()) {
		r.fail(n, "%s is %s: expected a text", where, describe(n))
		return ""
	}
	return n.Value
}

func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// describe says what a node is, in the words of a message.
func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode && len(n.Content) == 0:
		return "an empty list"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Tag == "!!null" || n.Value == "":
		return "empty"
	default:
		return strconv.Quote(n.Value)
	}
}

// isText reports whether a scalar of this tag says what is written: a text, or
// a number and the like that was not quoted.
func isText(tag string) bool {
	switch tag {
	case "!!str", "!!int", "!!float", "!!bool", "!!timestamp":
		return true
	default:
		return false
	}
}
