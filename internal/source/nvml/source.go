package nvml

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// ErrNoLibrary and ErrNoDriver are errors of Open: the library cannot be loaded, or the kernel has no NVIDIA driver.
var (
	ErrNoLibrary = fmt.Errorf("%w: NVML cannot be loaded", gpu.ErrUnavailable)
	ErrNoDriver  = fmt.Errorf("%w: the NVIDIA driver is not loaded", gpu.ErrUnavailable)
)

// ErrReplaced means that the driver's version differs from that of the NVML which this process has loaded and cannot
// unload.
var ErrReplaced = fmt.Errorf("%w: the driver was replaced, but this process cannot unload its old NVML library",
	gpu.ErrVersion)

// Options configure a Source. The zero value is useful.
type Options struct {
	// Library is the name or path of the NVML library. If empty, the dynamic linker finds libnvidia-ml.so.1.
	Library string
	// Reprobe is how long queries that the driver does not support or permit are not repeated. Zero means ten minutes.
	Reprobe time.Duration
	// Log receives a line for each requested field that NVML does not report. Nil discards it.
	Log *slog.Logger
}

const (
	defaultLibrary = "libnvidia-ml.so.1"
	defaultReprobe = 10 * time.Minute
)

func (o Options) withDefaults() Options {
	if o.Library == "" {
		o.Library = defaultLibrary
	}
	if o.Reprobe <= 0 {
		o.Reprobe = defaultReprobe
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}
