package app

import (
	"context"
	"errors"
	"os"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// ErrReplaced is the error of Run when a driver or library was replaced that had worked: only a new process loads the new
// one. A library that never fitted is no reason: a new process would load the same.
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

// isOutdated reports whether DCGM's Open fails since this process has loaded an older library. An embedded engine fails in
// many words when the driver is newer than its NVML; an upgraded engine of its own does not understand this libdcgm. After
// an upgrade the file of the loaded library is gone.
func isOutdated(h *hardware, err error) bool {
	if h.address.IsEmbedded() {
		return !errors.Is(err, context.Canceled) && isGone("/libdcgm.so", "/libnvidia-ml.so")
	}
	return errors.Is(err, gpu.ErrVersion) && isGone("/libdcgm.so")
}

// isGone reports whether the file of a loaded library is gone.
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
