package hardware

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/dcgm"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/nvml"
)

// A requirement is something that an attempt to open may find missing. It can be checked without opening.
type requirement struct {
	err   error // the error of Open if it is missing; nil for the host engine
	isMet func(context.Context, *Source) bool
}

var (
	requirements = []requirement{
		{nvml.ErrNoLibrary, func(context.Context, *Source) bool { return nvml.Loadable() }},
		{nvml.ErrNoDriver, func(context.Context, *Source) bool { return isDriverLoaded() }},
		{dcgm.ErrLibrary, func(context.Context, *Source) bool { return dcgm.Loadable() }},
	}
	hostEngine = requirement{nil, func(ctx context.Context, s *Source) bool { return s.isListening(ctx) }}
)

// isDriverLoaded reports whether the kernel has the NVIDIA driver.
func isDriverLoaded() bool {
	_, err := os.Stat("/proc/driver/nvidia/version")
	return err == nil
}

// noteMissing records what an attempt to open did not find. It changes nothing if everything is there by now, or if the
// error is of another kind: then the loop's pauses apply.
func (s *Source) noteMissing(ctx context.Context, err error, unreachable bool) {
	switch {
	case err == nil:
		s.missing.Store(nil)
	case unreachable:
		s.missing.Store(&hostEngine)
	default:
		for i := range s.requirements {
			if r := &s.requirements[i]; errors.Is(err, r.err) && !r.isMet(ctx, s) {
				s.missing.Store(r)
				return
			}
		}
	}
}

// awaitMissing makes the loop open a session as soon as the missing requirement is met. The loop's own attempts may be
// far apart by then.
func (s *Source) awaitMissing(ctx context.Context, loop *collector.Loop) {
	ticker := time.NewTicker(lookInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if r := s.missing.Load(); r != nil && r.isMet(ctx, s) && s.missing.CompareAndSwap(r, nil) {
			loop.Retry()
		}
	}
}
