package app

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

const (
	// restoreEvery is how often a plain connection to the host engine is tried while NVML serves instead.
	restoreEvery = 10 * time.Second
	// maxRestorePause bounds the growing pauses between attempts to open an engine that listens, or is embedded.
	maxRestorePause = 5 * time.Minute
)

// A fallback knows whether NVML serves in place of DCGM. Any goroutine may call its methods.
type fallback struct {
	log    *slog.Logger
	gauge  prometheus.Gauge
	active atomic.Pointer[hardware] // nil where DCGM serves, or none of the two
}

func newFallback(reg prometheus.Registerer, log *slog.Logger) *fallback {
	f := &fallback{log: log, gauge: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "dcgm_exporter_source_fallback",
		Help: "Whether NVML stands in for DCGM, which is not available.",
	})}
	reg.MustRegister(f.gauge)
	return f
}

// set notes that NVML serves in place of the DCGM of h, and why; or with nil that it does not.
func (f *fallback) set(h *hardware, why error) {
	before := f.active.Swap(h)
	switch {
	case h == nil && before != nil:
		f.gauge.Set(0)
		f.log.Info("DCGM serves again")
	case h != nil && before == nil:
		f.gauge.Set(1)
		f.log.Warn("NVML stands in for DCGM, which is not available; DCGM serves again as soon as it is", "error", why)
	}
}

// restoreDCGM replaces NVML's session as soon as DCGM opens, until ctx is done. NVML serves until
// DCGM has been read.
func (s *sources) restoreDCGM(ctx context.Context, loop *collector.Loop) {
	ticker := time.NewTicker(restoreEvery)
	defer ticker.Stop()
	var pause time.Duration // since tried, before the next attempt to open
	var tried time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		h := s.fallback.active.Load()
		switch {
		case h == nil || !h.reaches(ctx):
			pause = 0
			continue
		case time.Since(tried) < pause:
			continue
		}
		open := func(ctx context.Context, plan *gpu.Plan) (collector.Session, error) { return s.openDCGM(ctx, h, plan) }
		err := loop.Reopen(ctx, collector.SourceOf(open))
		pause, tried = min(max(2*pause, restoreEvery), maxRestorePause), time.Now()
		if err != nil {
			s.log.Debug("DCGM is not back", "error", err)
		}
	}
}

// dialEvery is how often a plain connection is tried to a host engine that does not listen, while nothing serves.
const dialEvery = time.Second

// awaitEngine has the loop open DCGM as soon as a host engine that did not listen does, until ctx is done: the pauses
// between attempts have grown meanwhile.
func (s *sources) awaitEngine(ctx context.Context, loop *collector.Loop) {
	ticker := time.NewTicker(dialEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if h := s.away.Load(); h != nil && h.reaches(ctx) && s.away.CompareAndSwap(h, nil) {
			loop.Retry()
		}
	}
}
