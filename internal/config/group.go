package config

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

// A WatchGroup gives the fields that its patterns match an interval of their own.
type WatchGroup struct {
	Name     string        `yaml:"name"`
	Interval time.Duration `yaml:"interval"`
	// Patterns are field names, or globs as path.Match reads them.
	Patterns []string `yaml:"fields"`
	Line     text.Line
}

// has reports whether a pattern of the group matches one of a field's names.
func (g *WatchGroup) has(names []string) bool {
	return slices.ContainsFunc(g.Patterns, func(pattern string) bool {
		return slices.ContainsFunc(names, func(name string) bool {
			ok, err := path.Match(pattern, name)
			return ok && err == nil
		})
	})
}

// Intervals returns, for each of the requested fields, the interval of its watch group, or zero
// without one. A field is given by its names, the requested one first; a pattern may match any of
// them, so that a file of groups is good under each vocabulary. A field in two groups and a group
// without any are errors with the line.
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
