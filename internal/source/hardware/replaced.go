package hardware

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// ErrReplaced means that the driver or a library that worked before was replaced. A process keeps the library that it
// loaded first, so only a new process can load the new one.
var ErrReplaced = errors.New("the driver or its library was replaced; only a new process can load the new library")

// reportReplaced makes Run return ErrReplaced.
func (s *Source) reportReplaced() {
	select {
	case s.replaced <- struct{}{}:
	default: // reported already
	}
}

// awaitReplacement returns ErrReplaced after reportReplaced, or nil when ctx is done.
func (s *Source) awaitReplacement(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-s.replaced:
		return ErrReplaced
	}
}

// isOutdated reports whether DCGM failed to open because this process has loaded an older library. If the driver is
// newer than the NVML of an embedded engine, the errors vary; if a remote engine was upgraded, it rejects this libdcgm.
// In both cases the upgrade has deleted the file of the loaded library.
func (s *Source) isOutdated(err error) bool {
	if s.opt.Engine.IsEmbedded() {
		return !errors.Is(err, context.Canceled) && isDeleted("/libdcgm.so", "/libnvidia-ml.so")
	}
	return errors.Is(err, gpu.ErrVersion) && isDeleted("/libdcgm.so")
}

// isDeleted reports whether the file of one of the libraries was deleted after this process loaded it.
func isDeleted(libraries ...string) bool {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(maps)) {
		isOf := func(library string) bool { return strings.Contains(line, library) }
		if strings.HasSuffix(line, " (deleted)\n") && slices.ContainsFunc(libraries, isOf) {
			return true
		}
	}
	return false
}
