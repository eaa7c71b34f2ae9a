//go:build linux && cgo

package nvml

import (
	"fmt"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A driverError is a failed library function with its return code.
type driverError struct {
	function string
	ret      gonvml.Return
}

func (e *driverError) Error() string {
	if kind := kindOf(e.ret); kind != nil {
		return fmt.Sprintf("%s: %v (NVML %d)", e.function, kind, e.ret)
	}
	return fmt.Sprintf("%s: %s", e.function, e.ret)
}

func (e *driverError) Unwrap() error { return kindOf(e.ret) }

// kindOf returns the error of package gpu for a return code (nvmlReturn_t, nvml.h), or nil if there is none.
func kindOf(ret gonvml.Return) error {
	switch ret {
	case gonvml.ERROR_NOT_SUPPORTED, gonvml.ERROR_FUNCTION_NOT_FOUND, gonvml.ERROR_ARGUMENT_VERSION_MISMATCH,
		gonvml.ERROR_DEPRECATED, gonvml.ERROR_VGPU_ECC_NOT_SUPPORTED:
		return gpu.ErrNotSupported
	case gonvml.ERROR_NO_PERMISSION:
		return gpu.ErrPermission
	case gonvml.ERROR_TIMEOUT:
		return gpu.ErrTimeout
	case gonvml.ERROR_GPU_IS_LOST, gonvml.ERROR_RESET_REQUIRED,
		gonvml.ERROR_UNINITIALIZED, gonvml.ERROR_DRIVER_NOT_LOADED:
		return gpu.ErrLost
	case gonvml.ERROR_LIB_RM_VERSION_MISMATCH:
		return gpu.ErrVersion
	case gonvml.ERROR_NO_DATA, gonvml.ERROR_NOT_FOUND, gonvml.ERROR_LIBRARY_NOT_FOUND:
		return gpu.ErrUnavailable
	default:
		return nil
	}
}

// lasting reports whether the same query will keep failing for long.
func lasting(ret gonvml.Return) bool {
	kind := kindOf(ret)
	return kind == gpu.ErrNotSupported || kind == gpu.ErrPermission
}

// gpuGone reports whether ret means that this GPU is unreachable.
func gpuGone(ret gonvml.Return) bool {
	return ret == gonvml.ERROR_GPU_IS_LOST || ret == gonvml.ERROR_RESET_REQUIRED
}

// driverGone reports whether ret means that every call will fail, because the driver was unloaded or replaced by
// another version.
func driverGone(ret gonvml.Return) bool {
	return ret == gonvml.ERROR_UNINITIALIZED || ret == gonvml.ERROR_DRIVER_NOT_LOADED ||
		ret == gonvml.ERROR_LIB_RM_VERSION_MISMATCH
}
