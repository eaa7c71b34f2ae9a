package counters

import (
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// The units of the catalogue.
const (
	Megahertz            gpu.Unit = "MHz"
	Kilohertz            gpu.Unit = "kHz"
	Hertz                gpu.Unit = "hertz"
	Millijoules          gpu.Unit = "mJ"
	Joules               gpu.Unit = "joules"
	Watts                gpu.Unit = "watts"
	MilliwattsPerSecond  gpu.Unit = "mW/s"
	Percent              gpu.Unit = "percent"
	Ratio                gpu.Unit = "ratio"
	Mebibytes            gpu.Unit = "MiB"
	Bytes                gpu.Unit = "bytes"
	BytesPerSecond       gpu.Unit = "bytes/s"
	KilobytesPerSecond   gpu.Unit = "KB/s"
	ThousandKiBPerSecond gpu.Unit = "MB/s" // see promises
	Celsius              gpu.Unit = "celsius"
	Nanoseconds          gpu.Unit = "ns"
	Milliseconds         gpu.Unit = "ms"
	Seconds              gpu.Unit = "seconds"
	Millivolts           gpu.Unit = "mV"
)

// A promise is what the end of a name says of its unit.
type promise struct {
	suffix string
	unit   gpu.Unit
	factor map[gpu.Unit]float64 // from the unit as read
}

// promises returns what names can promise, longest suffix first, with the
// factors from the units in which such fields are read.
//
// DCGM calls its NVLink rates MB/s, but divides NVML's kibibytes per second by
// 1,000: one of them is 1,024,000 bytes per second (NVIDIA's field reference
// for DCGM 4.7, ids 440 and 1630).
func promises() []promise {
	return []promise{
		{"_BYTES_PER_SECOND", BytesPerSecond, map[gpu.Unit]float64{ThousandKiBPerSecond: 1024 * 1000}},
		{"_SECONDS", Seconds, map[gpu.Unit]float64{Nanoseconds: 1e-9, Milliseconds: 1e-3}},
		{"_CELSIUS", Celsius, nil},
		{"_JOULES", Joules, map[gpu.Unit]float64{Millijoules: 1e-3}},
		{"_BYTES", Bytes, map[gpu.Unit]float64{Mebibytes: 1 << 20}},
		{"_HERTZ", Hertz, map[gpu.Unit]float64{Megahertz: 1e6, Kilohertz: 1e3}},
		{"_RATIO", Ratio, map[gpu.Unit]float64{Percent: 1e-2}},
		{"_WATTS", Watts, nil},
	}
}

// promised returns the unit in which a value must be exported under name, if
// it is read in unit, and the factor between the two. A name that promises
// nothing keeps the unit; so does one whose promise does not fit what is read:
// DCGM_FI_PROF_PCIE_TX_BYTES is a rate, and always was.
func promised(name string, unit gpu.Unit) (gpu.Unit, float64) {
	name = strings.TrimSuffix(name, "_TOTAL")
	for _, p := range promises() {
		if !strings.HasSuffix(name, p.suffix) {
			continue
		}
		if factor, ok := p.factor[unit]; ok {
			return p.unit, factor
		}
		break
	}
	return unit, 1
}
