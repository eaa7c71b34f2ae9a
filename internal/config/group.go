package config

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"time"
)

// A WatchGroup sets the interval of the fields that match its patterns.
type WatchGroup struct {
	Name     string
	Interval time.Duration
	// Patterns are field names or globs in the syntax of path.Match.
	Patterns []string
	Line     int // in the YAML file
}

// has reports whether a pattern of the group matches one of the names of a field.
func (g *WatchGroup) has(names []string) bool {
	return slices.ContainsFunc(g.Patterns, func(pattern string) bool {
		return slices.ContainsFunc(names, func(name string) bool {
			ok, err := path.Match(pattern, name)
			return ok && err == nil
		})
	})
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
