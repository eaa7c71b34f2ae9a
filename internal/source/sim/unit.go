package sim

import "github.com/gpu-telemetry/dcgm-exporter/internal/gpu"

// units maps the units of gpu.Field to a quantity and the factor to its base
// unit. The model computes in one unit a field; the plan asks for another
// where it wants the base-unit twin of a field.
var units = map[gpu.Unit]struct {
	quantity byte
	factor   float64
}{
	"MHz": {'f', 1e6}, "kHz": {'f', 1e3}, "hertz": {'f', 1},
	"mJ": {'e', 1e-3}, "joules": {'e', 1},
	"percent": {'r', 1e-2}, "ratio": {'r', 1},
	"MiB": {'b', 1 << 20}, "bytes": {'b', 1},
	// DCGM's "MB/s" of NVLink is a thousand kibibytes (NVIDIA's field reference, id 440).
	"MB/s": {'s', 1024e3}, "KB/s": {'s', 1e3}, "bytes/s": {'s', 1},
	"ns": {'t', 1e-9}, "ms": {'t', 1e-3}, "seconds": {'t', 1},
	"mW": {'p', 1e-3}, "watts": {'p', 1},
}

// conversion returns the factor from one unit to another; 1 where they do not
// measure the same quantity.
func conversion(from, to gpu.Unit) float64 {
	a, b := units[from], units[to]
	if from == to || a.quantity == 0 || a.quantity != b.quantity {
		return 1
	}
	if f := b.factor / a.factor; f > 1 && f == float64(int64(f)) {
		return 1 / f
	}
	return a.factor / b.factor
}
