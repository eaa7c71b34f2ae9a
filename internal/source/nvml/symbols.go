//go:build linux && cgo

package nvml

import (
	"fmt"
	"slices"

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

// checkRequired returns an error that names the first required function that lookup does not find in the library at
// path.
func checkRequired(path string, lookup func(string) error) error {
	for _, name := range required {
		if lookup(name) != nil {
			return fmt.Errorf("%w: %s does not have %s: the driver is too old, or the library is not NVML",
				gpu.ErrVersion, path, name)
		}
	}
	return nil
}
