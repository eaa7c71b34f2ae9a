package app

import (
	"context"
	"errors"
	"os"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// ErrReplaced is the error of Run when the driver, or a library of it, was replaced beneath one that
// had worked: only a new process loads the new one. A library that never fitted is another matter: a
// new process would load the same.
var ErrReplaced = errors.New("the driver or its library was replaced, and a process keeps the library that it loaded first: only a new process loads the new one")

// replace ends Run with ErrReplaced.
func (s *sources) replace() {
	select {
	case s.replaced <- struct{}{}:
	default: // reported already
	}
}

// awaitReplacement returns ErrReplaced once a library is found to be replaced, nil if ctx is done
// before.
func (s *sources) awaitReplacement(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-s.replaced:
		return ErrReplaced
	}
}

// isOutdated reports whether an error of DCGM's Open means that the library which this process has
// loaded is to blame. An engine in this process fails in many words when the driver is another one
// than that of the NVML which it has loaded; an engine of its own that was upgraded does not
// understand the libdcgm of this process. That the file of a library in use is gone distinguishes an
// upgrade from everything else.
func isOutdated(h *hardware, err error) bool {
	if h.address.IsEmbedded() {
		return !errors.Is(err, context.Canceled) && isGone("/libdcgm.so", "/libnvidia-ml.so")
	}
	return errors.Is(err, gpu.ErrVersion) && isGone("/libdcgm.so")
}

// isGone reports whether this process has a library loaded of which the file is gone, as it is
// after a package was upgraded.
func isGone(libraries ...string) bool {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(maps)) {
		if !strings.HasSuffix(line, " (deleted)\n") {
			continue
		}
		for _, library := range libraries {
			if strings.Contains(line, library) {
				return true
			}
		}
	}
	return false
}
