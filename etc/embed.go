// Package etc holds the counters files that the exporter ships: the ones that lie in
// /etc/dcgm-exporter/ of an installation. They are embedded, so that the exporter works where none
// was installed, and so that it can distinguish an unchanged shipped file from a user's own.
package etc

import (
	"bytes"
	_ "embed"
)

// Dir is where an installation has the files.
const Dir = "/etc/dcgm-exporter"

// The names of the shipped files.
const (
	DefaultName = "default-counters.csv"
	DCPName     = "dcp-metrics-included.csv"
	OldName     = "1.x-compatibility-metrics.csv"
	HealthName  = "health-counters.csv" // the default counters, and the lines of the alerts; not in the reference
	FleetName   = "fleet-counters.csv"  // every field that a fleet watches; not in the reference
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

// Default returns the default counters file, default-counters.csv.
func Default() []byte { return bytes.Clone(defaultCounters) }

// File returns the shipped file of a name, and whether there is one.
func File(name string) ([]byte, bool) {
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

// Shipped reports whether data is, byte for byte, one of the shipped files.
func Shipped(data []byte) bool {
	return bytes.Equal(data, defaultCounters) || bytes.Equal(data, dcpMetrics) || bytes.Equal(data, oldMetrics) ||
		bytes.Equal(data, healthCounters) || bytes.Equal(data, fleetCounters)
}
