package hardware

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
)

const (
	// restoreInterval is how often a connection to the host engine is tried while NVML is read.
	restoreInterval = 10 * time.Second
	// maxRestorePause bounds the growing pauses between attempts to open an engine that listens or is embedded.
	maxRestorePause = 5 * time.Minute
	// dialInterval is how often a connection to an unreachable host engine is tried while there is no data.
	dialInterval = time.Second
)

// Run keeps loop on the best driver until ctx is done. It returns ErrReplaced if the driver or its library was
// replaced.
func (s *Source) Run(ctx context.Context, loop *collector.Loop) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.awaitReplacement(ctx) })
	group.Go(func() error {
		s.restoreDCGM(ctx, loop)
		return nil
	})
	group.Go(func() error {
		s.awaitEngine(ctx, loop)
		return nil
	})
	return group.Wait()
}

// setFallback records whether NVML is read because DCGM is unavailable, and logs changes.
func (s *Source) setFallback(active bool, cause error) {
	before := s.onFallback.Swap(active)
	switch {
	case before && !active:
		s.opt.Metrics.fallback.Set(0)
		s.opt.Log.Info("DCGM is available again")
	case !before && active:
		s.opt.Metrics.fallback.Set(1)
		s.opt.Log.Warn("DCGM unavailable; using NVML until it returns", "error", cause)
	}
}

// restoreDCGM replaces NVML's session as soon as DCGM can be opened. NVML is read until DCGM has been read once.
func (s *Source) restoreDCGM(ctx context.Context, loop *collector.Loop) {
	ticker := time.NewTicker(restoreInterval)
	defer ticker.Stop()
	var tried time.Time
	var pause time.Duration // minimum time from tried to the next attempt
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		switch {
		case !s.onFallback.Load() || !s.isListening(ctx):
			pause = 0
			continue
		case time.Since(tried) < pause:
			continue
		}
		err := loop.Reopen(ctx, collector.SourceOf(s.openDCGM))
		pause, tried = min(max(2*pause, restoreInterval), maxRestorePause), time.Now()
		if err != nil {
			s.opt.Log.Debug("DCGM is still unavailable", "error", err)
		}
	}
}

// awaitEngine makes the loop open a session as soon as an unreachable host engine listens. The loop's own attempts may
// be far apart by then.
func (s *Source) awaitEngine(ctx context.Context, loop *collector.Loop) {
	ticker := time.NewTicker(dialInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if s.unreachable.Load() && s.isListening(ctx) && s.unreachable.CompareAndSwap(true, false) {
			loop.Retry()
		}
	}
}
