package nvml

import (
	"fmt"

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

// defaultLibrary is found by the dynamic linker.
const defaultLibrary = "libnvidia-ml.so.1"
