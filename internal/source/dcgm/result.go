package dcgm

import (
	"fmt"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// The result codes that are kept apart (dcgmReturn_t, dcgm_structs.h).
const (
	codeNotConfigured      = -5 // of a group: the engine does not know it
	codeNotSupported       = -6
	codeInitError          = -7
	codeUninitialized      = -10
	codeTimeout            = -11
	codeVersionMismatch    = -12
	codeUnknownField       = -13
	codeNotWatched         = -16
	codeNoPermission       = -17
	codeGPULost            = -18
	codeFunctionNotFound   = -20
	codeConnectionInvalid  = -21
	codeGPUNotSupported    = -22
	codeGroupIncompatible  = -23
	codeMaxLimit           = -24
	codeLibraryNotFound    = -25
	codeRequiresRoot       = -29
	codeFieldUnsupported   = -32
	codeModuleNotLoaded    = -33
	codeInUse              = -34 // of profiling: another profiler has the counters
	codeProfilingMissing   = -36
	codeProfilingLibrary   = -37
	codeProfilingMultiPass = -38
	codeDriverTooOld       = -44
	codePaused             = -54
	codeNVMLNotLoaded      = -56
	codeDriverTimeout      = -57
	codeGPUsDetached       = -67
)

// A resultError is a result code that a function of libdcgm returned.
type resultError struct {
	function string
	code     int
	words    string // DCGM's own words for the code
}

// Error returns the function, DCGM's words and the code.
func (e *resultError) Error() string {
	return fmt.Sprintf("%s: %s (%d)", e.function, e.words, e.code)
}

// Unwrap returns the error of package gpu that the code stands for, nil if none does.
func (e *resultError) Unwrap() error { return meaning(e.code) }

// meaning returns the error of package gpu that a result code stands for.
func meaning(code int) error {
	switch code {
	case codeConnectionInvalid, codeUninitialized, codeNVMLNotLoaded, codeGPUsDetached, codeGPULost:
		return gpu.ErrLost
	case codeTimeout, codeDriverTimeout:
		return gpu.ErrTimeout
	case codeVersionMismatch, codeFunctionNotFound, codeDriverTooOld:
		return gpu.ErrVersion
	case codeNoPermission, codeRequiresRoot:
		return gpu.ErrPermission
	case codeInitError, codeLibraryNotFound, codePaused, codeMaxLimit, codeInUse, codeProfilingLibrary:
		return gpu.ErrUnavailable
	case codeNotSupported, codeUnknownField, codeGPUNotSupported, codeGroupIncompatible, codeFieldUnsupported,
		codeModuleNotLoaded, codeProfilingMissing, codeProfilingMultiPass:
		return gpu.ErrNotSupported
	default:
		return nil
	}
}

// endsSession reports whether a code means that no further call can succeed.
func endsSession(code int) bool {
	switch code {
	case codeConnectionInvalid, codeUninitialized, codeNVMLNotLoaded, codeGPUsDetached:
		return true
	default:
		return false
	}
}
