package nvml

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// ErrReplaced says that the driver is of another version than the NVML that this process has
// loaded, and keeps until it ends.
var ErrReplaced = fmt.Errorf("%w: the driver was replaced, and a process keeps the NVML that it loaded first", gpu.ErrVersion)

// Options says which library to use and how. The zero value is useful.
type Options struct {
	// Library is the name or path of the NVML library. Empty means libnvidia-ml.so.1, wherever the
	// dynamic linker finds it.
	Library string
	// Reprobe is how long something that the driver does not support, or does not permit, is not
	// queried again. Zero means ten minutes.
	Reprobe time.Duration
	// Log gets a line for what was requested and NVML does not report. Nil discards.
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
