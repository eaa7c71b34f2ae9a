package catalog

import (
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// The units of the catalogue.
const (
	Megahertz           gpu.Unit = "MHz"
	Kilohertz           gpu.Unit = "kHz"
	Hertz               gpu.Unit = "hertz"
	Millijoules         gpu.Unit = "mJ"
	Joules              gpu.Unit = "joules"
	Watts               gpu.Unit = "watts"
	MilliwattsPerSecond gpu.Unit = "mW/s"
	Percent             gpu.Unit = "percent"
	Ratio               gpu.Unit = "ratio"
	Mebibytes           gpu.Unit = "MiB"
	Bytes               gpu.Unit = "bytes"
	BytesPerSecond      gpu.Unit = "bytes/s"
	KilobytesPerSecond  gpu.Unit = "KB/s"
	MegabytesPerSecond  gpu.Unit = "MB/s"
	Celsius             gpu.Unit = "celsius"
	Nanoseconds         gpu.Unit = "ns"
	Milliseconds        gpu.Unit = "ms"
	Seconds             gpu.Unit = "seconds"
	Millivolts          gpu.Unit = "mV"
)

// promises are the suffixes of names that promise a unit, the longest first.
var promises = [...]struct {
	suffix string
	unit   gpu.Unit
}{
	{"_BYTES_PER_SECOND", BytesPerSecond},
	{"_SECONDS", Seconds},
	{"_CELSIUS", Celsius},
	{"_JOULES", Joules},
	{"_BYTES", Bytes},
	{"_HERTZ", Hertz},
	{"_RATIO", Ratio},
	{"_WATTS", Watts},
}

// promised returns the unit in which a value must be exported under name, if
// it is read in unit, and the factor between the two. A name that promises
// nothing keeps the unit; so does one whose promise does not fit what is read:
// DCGM_FI_PROF_PCIE_TX_BYTES is a rate, and always was.
func promised(name string, unit gpu.Unit) (gpu.Unit, float64) {
	name = strings.TrimSuffix(name, "_TOTAL")
	for _, p := range promises {
		if strings.HasSuffix(name, p.suffix) {
			if f := factor(unit, p.unit); f != 0 {
				return p.unit, f
			}
			break
		}
	}
	return unit, 1
}

// factor returns what to multiply a value in one unit with to get it in
// another, 0 where they measure different things.
func factor(from, to gpu.Unit) float64 {
	if from == to {
		return 1
	}
	switch [2]gpu.Unit{from, to} {
	case [2]gpu.Unit{Megahertz, Hertz}:
		return 1e6
	case [2]gpu.Unit{Kilohertz, Hertz}:
		return 1e3
	case [2]gpu.Unit{Millijoules, Joules}, [2]gpu.Unit{Milliseconds, Seconds}:
		return 1e-3
	case [2]gpu.Unit{Nanoseconds, Seconds}:
		return 1e-9
	case [2]gpu.Unit{Percent, Ratio}:
		return 1e-2
	case [2]gpu.Unit{Mebibytes, Bytes}:
		return 1 << 20
	case [2]gpu.Unit{MegabytesPerSecond, BytesPerSecond}:
		// DCGM calls its NVLink rates MB/s, but divides NVML's kibibytes per
		// second by 1,000 (NVIDIA's field reference for DCGM 4.7, ids 440 and
		// 1630).
		return 1024 * 1000
	default:
		return 0
	}
}
