package counters

import (
	"cmp"
	_ "embed" // the table of units
	"regexp"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Lint returns a warning for every request whose type does not suit the field: a counter that can go down, a gauge that
// only grows, or a label that is a measurement. It also warns of help texts that name a unit that the value does not
// have. Such requests are used as they are.
func Lint(requests []Request, file string) []Problem {
	var problems []Problem
	for i := range requests {
		r := &requests[i]
		warn := Problem{File: file, Line: r.Line, Text: r.Name, Warning: true}
		if warn.What, warn.Expected = r.wrongType(); warn.What != "" {
			problems = append(problems, warn)
		}
		if word := r.wrongUnit(); word != "" {
			warn.What, warn.Expected = "help text names the unit "+word+" for", string(r.Named.Unit)
			problems = append(problems, warn)
		}
	}
	return problems
}

// IsMonotonic reports whether the value only grows.
func (r *Request) IsMonotonic() bool {
	if r.Family != nil {
		return r.Family.Type == gpu.MetricCounter
	}
	return r.Named.Entry.Monotonic
}

// wrongType says what is wrong with the type of a request, and which type is expected. Both are empty if the type fits.
func (r *Request) wrongType() (what, expected string) {
	monotonic := r.IsMonotonic()
	switch {
	case r.Type == gpu.MetricCounter && !monotonic:
		return "type counter, although the value can go down, for", "type gauge"
	case r.Type == gpu.MetricGauge && monotonic:
		return "type gauge, although the value only grows, for", "type counter"
	case r.Type == gpu.MetricLabel && monotonic:
		return "type label, although each new value creates new series, for", "type counter"
	case r.Type == gpu.MetricLabel && r.Named.Unit != "":
		return "type label, although each new value creates new series, for", "type gauge"
	default:
		return "", ""
	}
}

// unitTable lists units and how help texts write them. Units that are not in the catalog belong to no field, but help
// texts name them by mistake.
//
//go:embed units.csv
var unitTable string

// units maps spellings to units: as they are listed, and in lower case if that is unambiguous. unitPattern matches
// units in help texts: "(in W)", "(W)" and "in W". Longer spellings come first, so that "bytes per second" is not
// "bytes". The "(s)" of a plural follows a letter, so it is not taken for seconds.
var units, unitPattern = func() (map[string]gpu.Unit, *regexp.Regexp) {
	all := map[string]gpu.Unit{}
	var patterns []string
	for row := range strings.Lines(unitTable) {
		words := strings.Split(strings.TrimSpace(row), ",")
		for _, word := range words[1:] {
			all[word] = gpu.Unit(words[0])
			if lower := strings.ToLower(word); lower != "mj" { // mJ or MJ
				all[lower] = gpu.Unit(words[0])
			}
			patterns = append(patterns, regexp.QuoteMeta(word))
		}
	}
	slices.SortFunc(patterns, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	word := "(" + strings.Join(patterns, "|") + ")"
	return all, regexp.MustCompile(`(?i)(?:(?:^|\s)\(` + word + `\)|\bin ` + word + `(?:[\s.,;:)]|$))`)
}()

// wrongUnit returns the unit in a request's help text, as it is written, if the value has a different one.
func (r *Request) wrongUnit() string {
	m := unitPattern.FindStringSubmatch(r.Help)
	if m == nil || r.Named.Unit == "" {
		return ""
	}
	word := cmp.Or(m[1], m[2])
	unit := cmp.Or(units[word], units[strings.ToLower(word)], r.Named.Unit)
	if unit == r.Named.Unit {
		return ""
	}
	return word
}
