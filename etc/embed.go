// Package etc embeds the counters files that the exporter ships, which are installed in /etc/dcgm-exporter. The
// exporter falls back to the embedded files if none is installed. It also compares files with them, to detect shipped
// files that were not changed.
package etc

import (
	"bytes"
	_ "embed"
	"slices"
)

// Dir is the directory of installed counters files.
const Dir = "/etc/dcgm-exporter"

// Names of the shipped files.
const (
	DefaultName = "default-counters.csv"
	DCPName     = "dcp-metrics-included.csv"
	OldName     = "1.x-compatibility-metrics.csv"
	HealthName  = "health-counters.csv" // the default counters and those that alerts need; not in NVIDIA's exporter
	FleetName   = "fleet-counters.csv"  // all fields for monitoring a fleet; not in NVIDIA's exporter
)

//go:embed default-counters.csv
var defaultCounters []byte

//go:embed dcp-metrics-included.csv
var dcpMetrics []byte

//go:embed 1.x-compatibility-metrics.csv
var oldMetrics []byte

//go:embed health-counters.csv
var healthCounters []byte

//go:embed fleet-counters.csv
var fleetCounters []byte

// Default returns the content of default-counters.csv.
func Default() []byte { return bytes.Clone(defaultCounters) }

// File returns the content of the shipped file with this name. ok is false if no shipped file has the name.
func File(name string) (content []byte, ok bool) {
	switch name {
	case DefaultName:
		return bytes.Clone(defaultCounters), true
	case DCPName:
		return bytes.Clone(dcpMetrics), true
	case OldName:
		return bytes.Clone(oldMetrics), true
	case HealthName:
		return bytes.Clone(healthCounters), true
	case FleetName:
		return bytes.Clone(fleetCounters), true
	default:
		return nil, false
	}
}

// Names are the short names of the files that a counters file can include.
var Names = []string{"default", "health", "fleet"}

// Named returns the content of the shipped file with this short name. ok is false if the name is not in Names.
func Named(short string) (content []byte, ok bool) {
	if !slices.Contains(Names, short) {
		return nil, false
	}
	return File(short + "-counters.csv")
}

// Shipped reports whether data is identical to one of the shipped files.
func Shipped(data []byte) bool {
	return bytes.Equal(data, defaultCounters) || bytes.Equal(data, dcpMetrics) || bytes.Equal(data, oldMetrics) ||
		bytes.Equal(data, healthCounters) || bytes.Equal(data, fleetCounters)
}
