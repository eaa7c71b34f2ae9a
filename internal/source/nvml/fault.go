//go:build linux && cgo

package nvml

import (
	"errors"
	"fmt"
	"slices"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// symbols looks up functions of the loaded library. go-nvml binds functions lazily, and calling a missing one aborts
// the process. So every function that is not in required is looked up before its first call.
type symbols struct {
	lookup func(string) error
	known  map[string]bool
}

func (s *symbols) has(name string) bool {
	there, known := s.known[name]
	if !known {
		there = s.lookup(name) == nil
		s.known[name] = there
	}
	return there
}

// any reports whether the library has one of the names. go-nvml calls the newest version of a function that exists.
func (s *symbols) any(names []string) bool { return slices.ContainsFunc(names, s.has) }

// missing returns the first name that the library does not have, or "".
func (s *symbols) missing(names ...string) string {
	for _, name := range names {
		if !s.has(name) {
			return name
		}
	}
	return ""
}

// required lists the functions that every session calls. Driver 384 (2017) is the oldest that has all of them.
var required = []string{
	"nvmlInit_v2", "nvmlShutdown", "nvmlErrorString",
	"nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2",
	"nvmlDeviceGetUUID", "nvmlDeviceGetName", "nvmlDeviceGetTemperature",
}

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

// gone reports whether ret means that nothing more can be read from the GPU: it is unreachable, or the driver is gone.
func gone(ret gonvml.Return) bool {
	kind := kindOf(ret)
	return kind == gpu.ErrLost || kind == gpu.ErrVersion
}

// driverGone reports whether ret means that every call will fail, because the driver was unloaded or replaced by
// another version.
func driverGone(ret gonvml.Return) bool {
	return gone(ret) && ret != gonvml.ERROR_GPU_IS_LOST && ret != gonvml.ERROR_RESET_REQUIRED
}

// codeOf returns the return code in an error, or SUCCESS if there is none.
func codeOf(err error) gonvml.Return {
	if e, ok := errors.AsType[*driverError](err); ok {
		return e.ret
	}
	return gonvml.SUCCESS
}
