package config

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"time"
)

// A WatchGroup gives the fields that its patterns match an interval of their own.
type WatchGroup struct {
	Name     string
	Interval time.Duration
	// Patterns are field names, or globs as path.Match reads them.
	Patterns []string
	Line     int // in the YAML file
}

func (g *WatchGroup) has(names []string) bool {
	return slices.ContainsFunc(g.Patterns, func(pattern string) bool { return matchesAny(pattern, names) })
}

// matchesAny reports whether a pattern matches one of a field's names.
func matchesAny(pattern string, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		ok, err := path.Match(pattern, name)
		return ok && err == nil
	})
}

// Intervals returns, for each of the requested fields, the interval of the watch group that has it,
// or zero where none does. A field is given by its names, the requested one first; a pattern that
// matches any of them has it, so that a file of groups is good under each vocabulary. A field in
// two groups and a group without any are errors that say the line.
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
				errs = append(errs, fmt.Errorf("%s:%d: %s is in the watch group %q and, from line %d, in %q: expected one",
					c.Path, g.Line, names[0], g.Name, other.Line, other.Name))
				continue
			}
			owners[j], intervals[j] = g, g.Interval
		}
		if empty {
			errs = append(errs, fmt.Errorf("%s:%d: the watch group %q matches none of the %d requested fields",
				c.Path, g.Line, g.Name, len(fields)))
		}
	}
	return intervals, errors.Join(errs...)
}

// An Aggregate says which fields are sampled between two readings, so that their minimum, maximum
// and mean are reported. Its zero value has none.
type Aggregate struct {
	// Interval is how often they are sampled: minAggregate at least and the collection interval at
	// most.
	Interval time.Duration
	Globs    []Glob
	Line     int // of the interval in the YAML file
}

// A Glob is a field name, or a pattern as path.Match reads them.
type Glob struct {
	Text string
	Line int // in the YAML file
}

// minAggregate is the shortest interval at which fields are sampled: DCGM's profiling module takes
// no shorter one.
const minAggregate = 100 * time.Millisecond

func (a *Aggregate) texts() []string {
	list := make([]string, len(a.Globs))
	for i, g := range a.Globs {
		list[i] = g.Text
	}
	return list
}

// Aggregates returns, for each of the requested fields, by their names as Intervals takes them, the
// line of the pattern that requests its extremes, or zero where none does. A pattern that matches
// none is an error that says the line.
func (c *Config) Aggregates(fields [][]string) ([]int, error) {
	var errs []error
	lines := make([]int, len(fields))
	for _, g := range c.Collection.Aggregate.Globs {
		empty := true
		for i, names := range fields {
			if !matchesAny(g.Text, names) {
				continue
			}
			empty = false
			if lines[i] == 0 {
				lines[i] = g.Line
			}
		}
		if empty {
			errs = append(errs, fmt.Errorf("%s:%d: collection.aggregate: %s matches none of the %d requested fields",
				c.Path, g.Line, g.Text, len(fields)))
		}
	}
	return lines, errors.Join(errs...)
}
