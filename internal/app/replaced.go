package app

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync/atomic"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/nvml"
)

// ErrReplaced is the error of Run when the driver, or a library of it, was replaced beneath one that
// had worked: only a new process loads the new one.
var ErrReplaced = errors.New("the driver or its library was replaced, and a process keeps the library that it loaded first: only a new process loads the new one")

// restartOnReplace is a source that reports when its library no longer fits although it once did. A
// library that never fitted is another matter: a new process would load the same one.
type restartOnReplace struct {
	collector.Source
	worked   *atomic.Bool
	replaced chan<- struct{}
	// outdated reports whether an error of Open means that the library is to blame.
	outdated func(error) bool
}

// Open opens the source.
func (w restartOnReplace) Open(ctx context.Context, plan *gpu.Plan) (collector.Session, error) {
	s, err := w.Source.Open(ctx, plan)
	switch {
	case err == nil:
		w.worked.Store(true)
	case w.worked.Load() && w.outdated(err):
		select {
		case w.replaced <- struct{}{}:
		default: // reported already
		}
	}
	return s, err
}

// outdatedNVML: NVML itself says that the driver is another one.
func outdatedNVML(err error) bool { return errors.Is(err, nvml.ErrReplaced) }

// outdatedEngine: an engine in this process fails in many words when the driver is another one than
// that of the NVML which it has loaded. That the file of a library in use is gone distinguishes an
// upgrade from everything else.
func outdatedEngine(err error) bool {
	return !errors.Is(err, context.Canceled) && isGone("/libdcgm.so", "/libnvidia-ml.so")
}

// outdatedClient: an engine of its own was upgraded, and does not understand the libdcgm of this
// process.
func outdatedClient(err error) bool { return errors.Is(err, gpu.ErrVersion) && isGone("/libdcgm.so") }

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

// awaitReplacement returns ErrReplaced once a source reports it, nil if ctx is done before.
func (s *sources) awaitReplacement(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-s.replaced:
		return ErrReplaced
	}
}
