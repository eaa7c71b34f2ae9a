package counters

import (
	"regexp"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// microseconds is a unit that help texts name and no field has.
const microseconds gpu.Unit = "us"

// unitWords maps units as help texts write them, in lower case, to units.
var unitWords = map[string]gpu.Unit{
	"ns": catalog.Nanoseconds, "nanoseconds": catalog.Nanoseconds, "nsec": catalog.Nanoseconds,
	"us": microseconds, "µs": microseconds, "μs": microseconds, "usec": microseconds, "microseconds": microseconds,
	"ms": catalog.Milliseconds, "milliseconds": catalog.Milliseconds,
	"s": catalog.Seconds, "sec": catalog.Seconds, "seconds": catalog.Seconds,
	"w": catalog.Watts, "watts": catalog.Watts, "watt": catalog.Watts,
	"mw": catalog.Milliwatts, "milliwatts": catalog.Milliwatts,
	"j": catalog.Joules, "joules": catalog.Joules, "mj": catalog.Millijoules, "millijoules": catalog.Millijoules,
	"hz": catalog.Hertz, "hertz": catalog.Hertz, "khz": catalog.Kilohertz, "mhz": catalog.Megahertz,
	"mib": catalog.Mebibytes, "b": catalog.Bytes, "bytes": catalog.Bytes, "byte": catalog.Bytes,
	"bytes/s": catalog.BytesPerSecond, "b/s": catalog.BytesPerSecond, "bytes per second": catalog.BytesPerSecond,
	"kb/s": catalog.KilobytesPerSecond, "mb/s": catalog.MegabytesPerSecond,
	"c": catalog.Celsius, "degrees c": catalog.Celsius, "celsius": catalog.Celsius, "°c": catalog.Celsius,
	"degrees celsius": catalog.Celsius, "mv": catalog.Millivolts, "millivolts": catalog.Millivolts,
}

// unitPatterns match units in help texts: "(in W)", "(W)" and a final "in W".
var unitPatterns = []*regexp.Regexp{
	regexp.MustCompile(`\((?:in )?([^()]+)\)`),
	regexp.MustCompile(`\bin ([^ .,()]+(?: [Cc](?:elsius)?)?)\.?$`),
}

// unitIn returns the unit that a help text names, as it writes it, and whether it names one.
func unitIn(help string) (word string, unit gpu.Unit, ok bool) {
	for _, pattern := range unitPatterns {
		for _, m := range pattern.FindAllStringSubmatch(help, -1) {
			word := strings.TrimSpace(m[1])
			if unit, ok := unitWords[strings.ToLower(word)]; ok {
				return word, unit, true
			}
		}
	}
	return "", "", false
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
