package config

import (
	"errors"
	"fmt"
	"path"
	"time"
)

// A WatchGroup sets the interval of the fields that match its patterns.
type WatchGroup struct {
	Name     string
	Interval time.Duration
	Patterns []string // field names or globs in the syntax of path.Match
	Line     int      // in the YAML file
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
