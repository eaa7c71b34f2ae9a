package counters

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
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

// unitSpellings lists how help texts write units. Units that are not in the catalog belong to no field, but help texts
// name them by mistake.
var unitSpellings = map[gpu.Unit][]string{
	catalog.Nanoseconds:    {"ns", "nsec", "nanosecond", "nanoseconds"},
	"us":                   {"us", "µs", "μs", "usec", "microsecond", "microseconds"},
	catalog.Milliseconds:   {"ms", "msec", "millisecond", "milliseconds"},
	catalog.Seconds:        {"s", "sec", "second", "seconds"},
	catalog.Milliwatts:     {"mW", "milliwatt", "milliwatts"},
	catalog.Watts:          {"W", "watt", "watts"},
	catalog.Millijoules:    {"mJ", "millijoule", "millijoules"},
	catalog.Joules:         {"J", "joule", "joules"},
	catalog.Millivolts:     {"mV", "millivolt", "millivolts"},
	catalog.BytesPerSecond: {"B/s", "byte/s", "bytes/s", "bytes/sec", "bytes/second", "bytes per second"},
	catalog.Celsius:        {"C", "°C", "celsius", "degrees C", "degree celsius", "degrees celsius"},
	"fahrenheit":           {"F", "°F", "fahrenheit", "degrees F", "degrees fahrenheit"},
	catalog.Percent:        {"%", "percent", "percentage", "0 to 100", "0-100"},
	catalog.Ratio:          {"0 to 1", "0-1", "0.0-1.0", "0.0 to 1.0"},

	"volts": {"V", "volt", "volts"}, "kW": {"kW", "kilowatt", "kilowatts"}, "kWh": {"Wh", "kWh"},
	"kJ": {"kJ", "kilojoule", "kilojoules"}, "MJ": {"MJ", "megajoule", "megajoules"},
	catalog.Hertz: {"Hz", "hertz"}, catalog.Kilohertz: {"kHz", "kilohertz"},
	catalog.Megahertz: {"MHz", "megahertz"}, "GHz": {"GHz", "gigahertz"},
	catalog.Bytes: {"B", "byte", "bytes"}, "kB": {"kB", "kilobytes"}, "KiB": {"KiB", "kibibytes"},
	"MB": {"MB", "megabytes"}, catalog.Mebibytes: {"MiB", "mebibytes"},
	"GB": {"GB", "gigabytes"}, "GiB": {"GiB", "gibibytes"},
	catalog.KilobytesPerSecond: {"kB/s", "kB/sec", "kB per second", "kilobytes per second"},
	catalog.MegabytesPerSecond: {"MB/s", "MB/sec", "MB per second", "megabytes per second"},
	"GB/s":                     {"GB/s", "GB/sec", "GB per second", "gigabytes per second"},
	"KiB/s":                    {"KiB/s", "KiB/sec", "KiB per second"},
	"MiB/s":                    {"MiB/s", "MiB/sec", "MiB per second"},
}

// units maps spellings to units: as they are listed, and in lower case if that is unambiguous. unitPattern matches
// units in help texts: "(in W)", "(W)" and "in W". Longer spellings come first, so that "bytes per second" is not
// "bytes". The "(s)" of a plural follows a letter, so it is not taken for seconds.
var units, unitPattern = func() (map[string]gpu.Unit, *regexp.Regexp) {
	all := map[string]gpu.Unit{}
	var words []string
	for unit, spellings := range unitSpellings {
		for _, word := range spellings {
			all[word] = unit
			if lower := strings.ToLower(word); lower != "mj" { // mJ or MJ
				all[lower] = unit
			}
			words = append(words, regexp.QuoteMeta(word))
		}
	}
	slices.SortFunc(words, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	word := "(" + strings.Join(words, "|") + ")"
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
