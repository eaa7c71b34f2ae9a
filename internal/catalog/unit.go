package catalog

import (
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// The units of the catalog.
const (
	Megahertz           gpu.Unit = "MHz"
	Kilohertz           gpu.Unit = "kHz"
	Hertz               gpu.Unit = "hertz"
	Millijoules         gpu.Unit = "mJ"
	Joules              gpu.Unit = "joules"
	Milliwatts          gpu.Unit = "mW"
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

// promises lists name suffixes that imply a unit, longest first.
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

// promised returns the unit that name implies for values read in unit, and the factor between them. If the name
// implies no unit, or one of another quantity, the unit is unchanged. For example, DCGM_FI_PROF_PCIE_TX_BYTES
// is a rate.
func promised(name string, unit gpu.Unit) (gpu.Unit, float64) {
	name = strings.TrimSuffix(name, "_TOTAL")
	for _, p := range promises {
		if strings.HasSuffix(name, p.suffix) {
			if f, ok := Conversion(unit, p.unit); ok {
				return p.unit, f
			}
			break
		}
	}
	return unit, 1
}

// quantities maps a unit to its quantity and its factor to the base unit.
var quantities = map[gpu.Unit]struct {
	quantity byte
	factor   float64
}{
	Megahertz: {'f', 1e6}, Kilohertz: {'f', 1e3}, Hertz: {'f', 1},
	Millijoules: {'e', 1e-3}, Joules: {'e', 1},
	Percent: {'r', 1e-2}, Ratio: {'r', 1},
	Mebibytes: {'b', 1 << 20}, Bytes: {'b', 1},
	// DCGM divides NVML's kibibytes per second by 1,000 (NVIDIA's field reference for DCGM 4.7, ids 440 and 1630).
	MegabytesPerSecond: {'s', 1024 * 1000}, KilobytesPerSecond: {'s', 1e3}, BytesPerSecond: {'s', 1},
	Nanoseconds: {'t', 1e-9}, Milliseconds: {'t', 1e-3}, Seconds: {'t', 1},
	Milliwatts: {'p', 1e-3}, Watts: {'p', 1},
}

// Conversion returns the factor between two units, or false if they measure different quantities.
func Conversion(from, to gpu.Unit) (float64, bool) {
	if from == to {
		return 1, true
	}
	a, b := quantities[from], quantities[to]
	if a.quantity == 0 || a.quantity != b.quantity {
		return 0, false
	}
	return a.factor / b.factor, true
}
