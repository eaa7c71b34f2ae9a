package config

import (
	"errors"
	"fmt"
	"path"
	"time"
)

// A WatchGroup gives the fields that its patterns match an interval of their
// own.
type WatchGroup struct {
	Name     string
	Interval time.Duration
	// Patterns are field names, or globs as path.Match reads them.
	Patterns []string
	Line     int // in the YAML file
}

func (g *WatchGroup) has(name string) bool {
	for _, pattern := range g.Patterns {
		if ok, err := path.Match(pattern, name); ok && err == nil {
			return true
		}
	}
	return false
}

// Intervals returns, for each of the requested field names, the interval of
// the watch group that has it, or zero where none does. A name in two groups
// and a group without any name are errors that say the line.
func (c *Config) Intervals(names []string) ([]time.Duration, error) {
	var errs []error
	intervals := make([]time.Duration, len(names))
	owners := make([]*WatchGroup, len(names))
	for i := range c.Collection.Groups {
		g := &c.Collection.Groups[i]
		empty := true
		for j, name := range names {
			if !g.has(name) {
				continue
			}
			empty = false
			if other := owners[j]; other != nil {
				errs = append(errs, fmt.Errorf("%s:%d: %s is in the watch group %q and, from line %d, in %q: expected one",
					c.Path, g.Line, name, g.Name, other.Line, other.Name))
				continue
			}
			owners[j], intervals[j] = g, g.Interval
		}
		if empty {
			errs = append(errs, fmt.Errorf("%s:%d: the watch group %q matches none of the %d requested fields",
				c.Path, g.Line, g.Name, len(names)))
		}
	}
	return intervals, errors.Join(errs...)
}

// An Aggregate says which fields are sampled between two readings, so that
// their minimum, maximum and mean are told. Its zero value asks for none.
type Aggregate struct {
	// Interval is how often they are sampled: minAggregate at least and the
	// collection interval at most.
	Interval time.Duration
	Globs    []Glob
	Line     int // of the interval in the YAML file
}

// A Glob is a field name, or a pattern as path.Match reads them.
type Glob struct {
	Text string
	Line int // in the YAML file
}

// minAggregate is the shortest interval at which fields are sampled: DCGM's
// profiling module takes no shorter one.
const minAggregate = 100 * time.Millisecond

func (a *Aggregate) texts() []string {
	list := make([]string, len(a.Globs))
	for i, g := range a.Globs {
		list[i] = g.Text
	}
	return list
}

// Aggregates returns, for each of the requested field names, the line of the
// pattern that asks for its extremes, or zero where none does. A pattern that
// matches no name is an error that says the line.
func (c *Config) Aggregates(names []string) ([]int, error) {
	var errs []error
	lines := make([]int, len(names))
	for _, g := range c.Collection.Aggregate.Globs {
		empty := true
		for i, name := range names {
			if ok, err := path.Match(g.Text, name); !ok || err != nil {
				continue
			}
			empty = false
			if lines[i] == 0 {
				lines[i] = g.Line
			}
		}
		if empty {
			errs = append(errs, fmt.Errorf("%s:%d: collection.aggregate: %s matches none of the %d requested fields",
				c.Path, g.Line, g.Text, len(names)))
		}
	}
	return lines, errors.Join(errs...)
}
