// Package nvml reads GPUs and MIG instances through libnvidia-ml with go-nvml, for hosts without DCGM.
//
// It serves DCGM's fields with DCGM's values: the same units, rounding and meaning. It declines fields that it cannot
// read with the same meaning: the utilization of GPUs that MIG partitions, profiling without GPM, and fields of DCGM's
// own modules.
//
// The collector owns a Session and calls it from one goroutine at a time. XIDs wait in the driver's event sets until
// Read takes them. A GPU instance has the entity ID 100 × GPU index + NVML's instance ID, which the "i:" device
// selector accepts.
//
// A process keeps the NVML that it loaded first, because the linker binds go-nvml's calls only once. Open returns
// ErrReplaced if the driver has another version by then.
//
// The package reads neither /proc nor the kernel log, and never calls a function that the loaded library does not have.
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

// ErrReplaced means that the driver's version differs from that of the NVML library, which this process has loaded and
// cannot unload.
var ErrReplaced = fmt.Errorf("%w: the driver was replaced, but this process cannot unload its old NVML library",
	gpu.ErrVersion)

// defaultLibrary is the name of NVML for the dynamic linker.
const defaultLibrary = "libnvidia-ml.so.1"
