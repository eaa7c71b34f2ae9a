package dcgm

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Result codes that are handled separately (dcgmReturn_t, dcgm_structs.h).
const (
	codeBadParameter       = -3 // for example for a GPU that is not accessible
	codeNotConfigured      = -5 // the engine does not know the group
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
	codeInUse              = -34 // another profiler uses the profiling counters
	codeProfilingMissing   = -36
	codeProfilingLibrary   = -37
	codeProfilingMultiPass = -38
	codeDriverTooOld       = -44
	codePaused             = -54
	codeNVMLNotLoaded      = -56
	codeDriverTimeout      = -57
	codeGPUsDetached       = -67
)

// A resultError is a result code returned by a function of libdcgm.
type resultError struct {
	function string
	code     int
	words    string // DCGM's text for the code
}

// Error returns the function, DCGM's text and the code.
func (e *resultError) Error() string { return fmt.Sprintf("%s: %s (%d)", e.function, e.words, e.code) }

// Unwrap returns the error of package gpu for the code, or nil.
func (e *resultError) Unwrap() error { return meaning(e.code) }

// meaning returns the error of package gpu for a result code, or nil.
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
	}
	return nil
}

// hasCode reports whether an error has one of the result codes.
func hasCode(err error, codes ...int) bool {
	r, ok := errors.AsType[*resultError](err)
	return ok && slices.Contains(codes, r.code)
}

// A severity selects what is done about a failed call.
type severity int

const (
	none   severity = iota // the call did not fail
	retry                  // a later try may succeed
	skip                   // the engine will return the same error again
	reopen                 // only a new session helps
)

// severityOf returns the severity of an error. A session must be reopened if the engine is gone, or if the engine was
// restarted and does not know the session's groups.
func severityOf(err error) severity {
	switch {
	case err == nil:
		return none
	case hasCode(err, codeConnectionInvalid, codeUninitialized, codeNVMLNotLoaded, codeGPUsDetached, codeNotConfigured):
		return reopen
	case errors.Is(err, gpu.ErrNotSupported), errors.Is(err, gpu.ErrVersion), errors.Is(err, gpu.ErrPermission):
		return skip
	}
	return retry
}

// reopenOnly returns err if the session must be reopened, and nil otherwise.
func reopenOnly(err error) error {
	if severityOf(err) == reopen {
		return err
	}
	return nil
}
