package counters

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// unitSpellings lists how help texts write units. Units that are not in the catalog belong to no field, but help texts
// name them by mistake.
var unitSpellings = map[gpu.Unit][]string{
	catalog.Nanoseconds:        {"ns", "nsec", "nanosecond", "nanoseconds"},
	"us":                       {"us", "µs", "μs", "usec", "microsecond", "microseconds"},
	catalog.Milliseconds:       {"ms", "msec", "millisecond", "milliseconds"},
	catalog.Seconds:            {"s", "sec", "second", "seconds"},
	catalog.Milliwatts:         {"mW", "milliwatt", "milliwatts"},
	catalog.Watts:              {"W", "watt", "watts"},
	"kW":                       {"kW", "kilowatt", "kilowatts"},
	catalog.Millijoules:        {"mJ", "millijoule", "millijoules"},
	catalog.Joules:             {"J", "joule", "joules"},
	"kJ":                       {"kJ", "kilojoule", "kilojoules"},
	"MJ":                       {"MJ", "megajoule", "megajoules"},
	"kWh":                      {"Wh", "kWh"},
	catalog.Hertz:              {"Hz", "hertz"},
	catalog.Kilohertz:          {"kHz", "kilohertz"},
	catalog.Megahertz:          {"MHz", "megahertz"},
	"GHz":                      {"GHz", "gigahertz"},
	catalog.Bytes:              {"B", "byte", "bytes"},
	"kB":                       {"kB", "kilobytes"},
	"KiB":                      {"KiB", "kibibytes"},
	"MB":                       {"MB", "megabytes"},
	catalog.Mebibytes:          {"MiB", "mebibytes"},
	"GB":                       {"GB", "gigabytes"},
	"GiB":                      {"GiB", "gibibytes"},
	catalog.BytesPerSecond:     {"B/s", "byte/s", "bytes/s", "bytes/sec", "bytes/second", "bytes per second"},
	catalog.KilobytesPerSecond: {"kB/s", "kB/sec", "kB per second", "kilobytes per second"},
	"KiB/s":                    {"KiB/s", "KiB/sec", "KiB per second"},
	catalog.MegabytesPerSecond: {"MB/s", "MB/sec", "MB per second", "megabytes per second"},
	"MiB/s":                    {"MiB/s", "MiB/sec", "MiB per second"},
	"GB/s":                     {"GB/s", "GB/sec", "GB per second", "gigabytes per second"},
	catalog.Celsius:            {"C", "°C", "celsius", "degrees C", "degree celsius", "degrees celsius"},
	"fahrenheit":               {"F", "°F", "fahrenheit", "degrees F", "degrees fahrenheit"},
	catalog.Millivolts:         {"mV", "millivolt", "millivolts"},
	"volts":                    {"V", "volt", "volts"},
	catalog.Percent:            {"%", "percent", "percentage", "0 to 100", "0-100"},
	catalog.Ratio:              {"0 to 1", "0-1", "0.0-1.0", "0.0 to 1.0"},
}

// units maps spellings to units: as they are listed, and in lower case if that is unambiguous. "MJ" is not "mJ".
var units = func() map[string]gpu.Unit {
	all := map[string]gpu.Unit{}
	for unit, spellings := range unitSpellings {
		for _, word := range spellings {
			all[word] = unit
		}
	}
	for unit, spellings := range unitSpellings {
		for _, word := range spellings {
			if lower := strings.ToLower(word); lower != "mj" {
				all[lower] = unit
			}
		}
	}
	return all
}()

// unitPattern matches units in help texts: "(in W)", "(W)" and "in W". Longer spellings come first, so that "bytes per
// second" is not "bytes". The "(s)" of a plural follows a letter, so it is not taken for seconds.
var unitPattern = func() *regexp.Regexp {
	var words []string
	for _, spellings := range unitSpellings {
		for _, word := range spellings {
			words = append(words, regexp.QuoteMeta(word))
		}
	}
	slices.SortFunc(words, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	word := "(" + strings.Join(words, "|") + ")"
	return regexp.MustCompile(`(?i)(?:(?:^|\s)\(` + word + `\)|\bin ` + word + `(?:[\s.,;:)]|$))`)
}()

// unitIn returns the unit that a help text names, as it writes it, and whether it names one.
func unitIn(help string) (word string, unit gpu.Unit, ok bool) {
	m := unitPattern.FindStringSubmatch(help)
	if m == nil {
		return "", "", false
	}
	word = cmp.Or(m[1], m[2])
	if unit, ok = units[word]; !ok {
		unit = units[strings.ToLower(word)]
	}
	return word, unit, unit != ""
}

// wrongUnit returns the unit in a request's help text if the value has a different one, otherwise "".
func wrongUnit(r *Request) string {
	if r.Family != nil || r.Named.Unit == "" {
		return ""
	}
	word, unit, ok := unitIn(r.Help)
	if !ok || unit == r.Named.Unit {
		return ""
	}
	return word
}
