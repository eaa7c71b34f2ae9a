package config

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"reflect"
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

	retention int // line of the first retention, which has no effect; 0 for none
}

// A scalar is the text of a setting and its line.
type scalar struct {
	text string
	line int
}

// UnmarshalYAML accepts strings, and unquoted numbers and the like as they are written.
func (s *scalar) UnmarshalYAML(n *yaml.Node) error {
	*s = scalar{n.Value, n.Line}
	return text.NotText(n)
}

// applyDocument sets the options for which neither a flag nor a variable was given.
func (p *parser) applyDocument(doc *document) {
	c := p.config
	for i := range p.options {
		o := &p.options[i]
		s, ok := doc.scalars[o.key]
		if _, given := p.origins[o.id()]; !ok || given {
			continue
		}
		v := o.value
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

// A file is the content of a YAML file. Version 1 has collection. Version 2 has collections: the collection of all
// fields, ["*"], gives the interval, and each other one is a watch group. The keys of single settings are those of
// table.
type file struct {
	Version yaml.Node `yaml:"version"`
	Metrics struct {
		File            scalar  `yaml:"file"`
		Fields          []Field `yaml:"fields"`
		HealthIgnore    scalar  `yaml:"healthIgnore"`
		ExporterMetrics scalar  `yaml:"enableExporterMetrics"`
	} `yaml:"metrics"`
	Collection *struct {
		Interval    scalar       `yaml:"interval"`
		WatchGroups []watchGroup `yaml:"watchGroups"`
		Retention   yaml.Node    `yaml:"retention"`
	} `yaml:"collection"`
	Collections []collection `yaml:"collections"`
	Server      struct {
		MaxScrapes scalar `yaml:"maxConcurrentScrapes"`
	} `yaml:"server"`
	Sources fileSources `yaml:"sources"`
}

type fileSources struct {
	DCGM struct {
		Watch struct {
			MaxKeepAge     scalar `yaml:"maxKeepAge"`
			MaxKeepSamples scalar `yaml:"maxKeepSamples"`
		} `yaml:"watch"`
		DetectBindUnbind struct {
			Enabled      scalar `yaml:"enabled"`
			PollInterval scalar `yaml:"pollInterval"`
		} `yaml:"detectBindUnbind"`
	} `yaml:"dcgm"`
}

// A watchGroup is an entry of collection.watchGroups in version 1.
type watchGroup struct {
	Name      string        `yaml:"name"`
	Interval  time.Duration `yaml:"interval"`
	Fields    []string      `yaml:"fields"`
	Retention yaml.Node     `yaml:"retention"` // has no effect
}

// A collection is an entry of collections in version 2.
type collection struct {
	Name    string        `yaml:"name"`
	Every   time.Duration `yaml:"every"`
	Metrics struct {
		Include []string `yaml:"include"`
	} `yaml:"metrics"`
	Sources fileSources `yaml:"sources"` // has no effect
}

// parseDocument reads a YAML file of version 1 or 2.
func parseDocument(name string, data []byte) (*document, error) {
	var f file
	root, err := text.DecodeYAML(name, data, &f)
	if err != nil {
		return nil, err
	}
	r := &reader{name: name, root: root, doc: &document{scalars: map[string]scalar{}}}
	r.scalars(reflect.ValueOf(f), "")
	r.fields(f.Metrics.Fields)
	if f.Version.Value == "2" {
		r.rejectKey("collection", 1, "collections")
		r.collections(f.Collections)
	} else {
		r.rejectKey("collections", 2, "collection")
		r.watchGroups(&f)
	}
	r.version(&f.Version)
	return r.doc, errors.Join(r.errs...)
}

// A reader turns a file into a document.
type reader struct {
	name string
	root *yaml.Node
	doc  *document
	errs []error
}

func (r *reader) fail(line int, format string, args ...any) {
	r.errs = append(r.errs, &text.SyntaxError{File: r.name, Line: line, Msg: fmt.Sprintf(format, args...)})
}

// scalars keeps the settings of a struct and of those below it, by their path.
func (r *reader) scalars(v reflect.Value, path string) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			r.scalars(v.Elem(), path)
		}
	case reflect.Struct:
		if s, ok := reflect.TypeAssert[scalar](v); ok {
			if s.line > 0 {
				r.doc.scalars[path] = s
			}
			return
		}
		if v.Type() == reflect.TypeFor[yaml.Node]() {
			return
		}
		for i := range v.NumField() {
			below := v.Type().Field(i).Tag.Get("yaml")
			if path != "" {
				below = path + "." + below
			}
			r.scalars(v.Field(i), below)
		}
	}
}

// rejectKey rejects a key that belongs to the other version.
func (r *reader) rejectKey(key string, version int, instead string) {
	if n := text.NodeAt(r.root, key); n != nil {
		r.fail(n.Line, "%s belongs to version %d: expected %s", key, version, instead)
	}
}

func (r *reader) version(v *yaml.Node) {
	isNumber := v.Value == "1" || v.Value == "2"
	switch {
	case v.IsZero():
		r.fail(r.root.Line, "the version is missing: expected version: 1 or 2")
	case v.Tag == "!!str" && isNumber:
		r.fail(v.Line, "version %s is a string: expected a number without quotes", text.Describe(v))
	case v.Tag != "!!int" || !isNumber:
		r.fail(v.Line, "version %s: expected 1 or 2", text.Describe(v))
	}
}

// rejectEmpty rejects an empty list at a path.
func (r *reader) rejectEmpty(path ...string) {
	if n := text.NodeAt(r.root, path...); n != nil && len(n.Content) == 0 {
		r.fail(n.Line, "%s is an empty list: expected at least one element", strings.Join(path, "."))
	}
}

func (r *reader) fields(fields []Field) {
	r.rejectEmpty("metrics", "fields")
	lines := text.Lines(r.root, "metrics", "fields")
	if file := r.doc.scalars["metrics.file"].line; file > 0 && len(lines) > 0 {
		r.fail(max(file, lines[0]), "metrics.file and metrics.fields cannot be combined: keep one")
	}
	for i, f := range fields {
		f.Line = lines[i]
		switch {
		case f.Name == "":
			r.fail(f.Line, "metrics.fields: the name is missing")
		case f.Type == "":
			r.fail(f.Line, "metrics.fields: %s has no prometheusType: expected counter, gauge, label or untyped",
				f.Name)
		}
		for _, other := range r.doc.fields {
			if other.Name == f.Name && f.Name != "" {
				r.fail(f.Line, "metrics.fields: duplicate field %s, first on line %d", f.Name, other.Line)
			}
		}
		r.doc.fields = append(r.doc.fields, f)
	}
}

// everything is the pattern of the default collection. Its interval applies to the fields that match no other pattern.
const everything = "*"

// collections reads the collections of version 2.
func (r *reader) collections(list []collection) {
	r.rejectEmpty("collections")
	general, lines := 0, text.Lines(r.root, "collections")
	for i, c := range list {
		switch {
		case !slices.Equal(c.Metrics.Include, []string{everything}):
			g := WatchGroup{Line: lines[i], Name: c.Name, Interval: c.Every, Patterns: c.Metrics.Include}
			r.addGroup(g, "collections", "every", "metrics.include")
		case general > 0:
			r.fail(lines[i], "collections: a second collection of all fields, first on line %d", general)
		case c.Every <= 0:
			r.fail(lines[i], "collections: %q: every is missing or not above zero: expected a duration such as 30s",
				c.Name)
		default:
			general = lines[i]
			r.doc.scalars["collection.interval"] = scalar{c.Every.String(), lines[i]}
		}
	}
}

// watchGroups reads the watch groups of version 1, and the line of the first retention.
func (r *reader) watchGroups(f *file) {
	if f.Collection == nil {
		return
	}
	r.rejectEmpty("collection", "watchGroups")
	r.doc.retention = f.Collection.Retention.Line
	lines := text.Lines(r.root, "collection", "watchGroups")
	for i, g := range f.Collection.WatchGroups {
		r.doc.retention = cmp.Or(r.doc.retention, g.Retention.Line)
		group := WatchGroup{Line: lines[i], Name: g.Name, Interval: g.Interval, Patterns: g.Fields}
		r.addGroup(group, "collection.watchGroups", "interval", "fields")
	}
}

// addGroup adds a watch group and reports its errors. The argument where is the path of the group; interval and
// fields are the keys that it uses in messages.
func (r *reader) addGroup(g WatchGroup, where, interval, fields string) {
	fail := func(format string, args ...any) {
		r.fail(g.Line, "%s: "+format, append([]any{where}, args...)...)
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
