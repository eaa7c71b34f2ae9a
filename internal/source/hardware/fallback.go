package hardware

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
)

const (
	// restoreInterval is the first pause between attempts to open an embedded engine while NVML is read.
	restoreInterval = 10 * time.Second
	// maxRestorePause bounds the growing pauses between attempts to open an engine that listens or is embedded.
	maxRestorePause = 5 * time.Minute
	// lookInterval is how often the Source checks whether the host engine listens, or whether a missing driver or
	// library exists now.
	lookInterval = time.Second
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
		s.awaitMissing(ctx, loop)
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
	ticker := time.NewTicker(lookInterval)
	defer ticker.Stop()
	first := lookInterval // the first pause; an engine that does not open now may take long to start
	if s.opt.Engine.IsEmbedded() {
		first = restoreInterval
	}
	tried, pause := time.Now(), first // pause is the minimum time from tried to the next attempt
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		switch {
		case !s.onFallback.Load() || !s.isListening(ctx):
			tried, pause = time.Now(), first
			continue
		case time.Since(tried) < pause:
			continue
		}
		err := loop.Reopen(ctx, collector.SourceOf(s.openDCGM))
		pause, tried = min(2*pause, maxRestorePause), time.Now()
		if err != nil {
			s.opt.Log.Debug("DCGM is still unavailable", "error", err)
		}
	}
}
