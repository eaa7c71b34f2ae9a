package config

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

// A file is the content of a YAML file. Version 1 has collection. Version 2 has collections: the collection of all
// fields, ["*"], gives the interval, and each other one is a watch group. Strings are settings, with the keys of table.
type file struct {
	Version yaml.Node `yaml:"version"`
	Metrics struct {
		File            string  `yaml:"file"`
		Fields          []Field `yaml:"fields"`
		HealthIgnore    string  `yaml:"healthIgnore"`
		ExporterMetrics string  `yaml:"enableExporterMetrics"`
	} `yaml:"metrics"`
	Collection struct {
		Interval    string `yaml:"interval"`
		WatchGroups []struct {
			Name      string        `yaml:"name"`
			Interval  time.Duration `yaml:"interval"`
			Fields    []string      `yaml:"fields"`
			Retention yaml.Node     `yaml:"retention"` // has no effect
		} `yaml:"watchGroups"`
		Retention yaml.Node `yaml:"retention"` // has no effect
	} `yaml:"collection"`
	Collections []struct {
		Name    string        `yaml:"name"`
		Every   time.Duration `yaml:"every"`
		Metrics struct {
			Include []string `yaml:"include"`
		} `yaml:"metrics"`
		Sources fileSources `yaml:"sources"` // has no effect
	} `yaml:"collections"`
	Server struct {
		MaxScrapes string `yaml:"maxConcurrentScrapes"`
	} `yaml:"server"`
	Sources fileSources `yaml:"sources"`
}

type fileSources struct {
	DCGM struct {
		Watch struct {
			MaxKeepAge     string `yaml:"maxKeepAge"`
			MaxKeepSamples string `yaml:"maxKeepSamples"`
		} `yaml:"watch"`
		DetectBindUnbind struct {
			Enabled      string `yaml:"enabled"`
			PollInterval string `yaml:"pollInterval"`
		} `yaml:"detectBindUnbind"`
	} `yaml:"dcgm"`
}

// readFile sets what the YAML file has and neither a flag nor a variable gave.
func (p *parser) readFile(read func(string) ([]byte, error)) {
	data, err := read(p.Path)
	if err != nil {
		p.errs = append(p.errs, fmt.Errorf("%s: %w", p.label("config-file"), err))
		return
	}
	var f file
	if p.root, err = text.DecodeYAML(p.Path, data, &f); err != nil {
		p.errs = append(p.errs, err)
		return
	}
	if interval := p.setting("collect-interval"); interval.layer == layerDefault {
		interval.value = duration(&p.Collection.Interval, 0, "") // a bare number in a file would have no unit
	}
	for i := range p.settings {
		if n := text.NodeAt(p.root, strings.Split(p.settings[i].Key, ".")...); n != nil {
			p.give(&p.settings[i], n.Value, n.Line)
		}
	}
	p.fields(f.Metrics.Fields)
	if f.Version.Value == "2" {
		p.rejectKey("collection", 1, "collections")
		p.collections(&f)
	} else {
		p.rejectKey("collections", 2, "collection")
		p.watchGroups(&f)
	}
	switch v := &f.Version; {
	case v.IsZero():
		p.fail(p.root.Line, "the version is missing: expected version: 1 or 2")
	case v.Tag != "!!int" || v.Value != "1" && v.Value != "2":
		p.fail(v.Line, "version %s: expected the number 1 or 2", text.Describe(v))
	}
}

func (p *parser) fail(line int, format string, args ...any) {
	p.errs = append(p.errs, &text.SyntaxError{File: p.Path, Line: line, Msg: fmt.Sprintf(format, args...)})
}

func (p *parser) give(s *Setting, value string, line int) {
	if s.layer == layerDefault {
		s.give(value, layerFile, fmt.Sprintf("%s:%d: %s", p.Path, line, s.Key))
	}
}

// rejectKey rejects a key that belongs to the other version.
func (p *parser) rejectKey(key string, version int, instead string) {
	if n := text.NodeAt(p.root, key); n != nil {
		p.fail(n.Line, "%s belongs to version %d: expected %s", key, version, instead)
	}
}

// lines returns the lines of the elements of the list at a path. It rejects an empty list.
func (p *parser) lines(path ...string) []int {
	if n := text.NodeAt(p.root, path...); n != nil && len(n.Content) == 0 {
		p.fail(n.Line, "%s is an empty list: expected at least one element", strings.Join(path, "."))
	}
	return text.Lines(p.root, path...)
}

func (p *parser) fields(fields []Field) {
	lines := p.lines("metrics", "fields")
	if file := text.NodeAt(p.root, "metrics", "file"); file != nil && len(lines) > 0 {
		p.fail(max(file.Line, lines[0]), "metrics.file and metrics.fields cannot be combined: keep one")
	}
	for i := range fields {
		f := &fields[i]
		f.Line = lines[i]
		if f.Name == "" || f.Type == "" {
			p.fail(f.Line, "metrics.fields: %q needs a name and a prometheusType", f.Name)
		}
		for _, other := range fields[:i] {
			if other.Name == f.Name {
				p.fail(f.Line, "metrics.fields: duplicate field %s, first on line %d", f.Name, other.Line)
			}
		}
	}
	if !p.isGiven("collectors") && !p.isGiven("configmap-data") {
		p.Metrics.Fields = fields
	}
}

// collections reads the collections of version 2.
func (p *parser) collections(f *file) {
	general, lines := 0, p.lines("collections")
	for i, c := range f.Collections {
		switch {
		case !slices.Equal(c.Metrics.Include, []string{"*"}):
			g := WatchGroup{Line: lines[i], Name: c.Name, Interval: c.Every, Patterns: c.Metrics.Include}
			p.addGroup(g, "collections", "every", "metrics.include")
		case general > 0:
			p.fail(lines[i], "collections: a second collection of all fields, first on line %d", general)
		case c.Every <= 0:
			p.fail(lines[i], "collections: %q needs every, a duration above zero", c.Name)
		default:
			general = lines[i]
			p.give(p.setting("collect-interval"), c.Every.String(), general)
		}
	}
}

// watchGroups reads the watch groups of version 1. It warns of the first retention.
func (p *parser) watchGroups(f *file) {
	retention, lines := f.Collection.Retention.Line, p.lines("collection", "watchGroups")
	for i, g := range f.Collection.WatchGroups {
		retention = cmp.Or(retention, g.Retention.Line)
		group := WatchGroup{Line: lines[i], Name: g.Name, Interval: g.Interval, Patterns: g.Fields}
		p.addGroup(group, "collection.watchGroups", "interval", "fields")
	}
	if retention > 0 {
		p.warn("%s:%d: retention has no effect: the exporter keeps every sample that it needs.", p.Path, retention)
	}
}

// addGroup adds a watch group and reports its errors. The argument where is the path of the group; interval and
// fields are the keys that it uses in messages.
func (p *parser) addGroup(g WatchGroup, where, interval, fields string) {
	fail := func(format string, args ...any) {
		p.fail(g.Line, "%s: "+format, append([]any{where}, args...)...)
	}
	if g.Name == "" || g.Interval <= 0 || g.Patterns == nil {
		fail("%q needs a name, %s (a duration above zero) and %s", g.Name, interval, fields)
	}
	for _, other := range p.Collection.Groups {
		if other.Name == g.Name {
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
	p.Collection.Groups = append(p.Collection.Groups, g)
}

// A WatchGroup sets the interval of the fields that match its patterns.
type WatchGroup struct {
	Name     string
	Interval time.Duration
	Patterns []string // field names or globs in the syntax of path.Match
	Line     int      // line in the YAML file
}

func (g *WatchGroup) has(names []string) bool {
	for _, pattern := range g.Patterns {
		for _, name := range names {
			if ok, _ := path.Match(pattern, name); ok {
				return true
			}
		}
	}
	return false
}

// Intervals returns the interval of each requested field's watch group, or zero for fields without one.
//
// Each field is given by all of its names, the requested one first. A pattern may match any of them, so that the same
// file works under every vocabulary. A field in two groups is an error, and so is a group that matches no field.
func (c *Config) Intervals(fields [][]string) ([]time.Duration, error) {
	var errs []error
	intervals := make([]time.Duration, len(fields))
	owners := make([]*WatchGroup, len(fields))
	for i := range c.Collection.Groups {
		g := &c.Collection.Groups[i]
		empty := true
		for j, names := range fields {
			if !g.has(names) {
				continue
			}
			empty = false
			if other := owners[j]; other != nil {
				const clash = "%s:%d: %s is in watch group %q and also in %q (line %d): expected one group"
				errs = append(errs, fmt.Errorf(clash, c.Path, g.Line, names[0], g.Name, other.Name, other.Line))
				continue
			}
			owners[j], intervals[j] = g, g.Interval
		}
		if empty {
			errs = append(errs, fmt.Errorf("%s:%d: watch group %q matches none of the %d requested fields",
				c.Path, g.Line, g.Name, len(fields)))
		}
	}
	return intervals, errors.Join(errs...)
}
