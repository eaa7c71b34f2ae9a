package app

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
)

// acquireLimit is how long a signal that takes the driver back waits to tell in
// the log how that went; the attempts go on either way.
const acquireLimit = 10 * time.Second

// A holder lets go of the driver and takes it back, whoever asks: the POST
// routes, the signals and the operator's label all come through here.
type holder struct {
	loop    *collector.Loop
	log     *slog.Logger
	timeout time.Duration // of a release that names none
	asked   atomic.Bool   // somebody asked for a release, once
}

// release lets go of the driver for timeout, or for as long as configured
// if that is 0.
func (h *holder) release(ctx context.Context, timeout time.Duration) error {
	h.asked.Store(true)
	if timeout == 0 {
		timeout = h.timeout
	}
	return h.loop.Release(ctx, timeout)
}

// obey serves the signals until ctx is done.
func (h *holder) obey(ctx context.Context, release, acquire <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-release:
			if err := h.release(ctx, 0); err != nil {
				h.log.Error("The driver is not released as it should be", "why", "SIGUSR1", "error", err)
			}
		case <-acquire:
			h.acquire(ctx, "SIGUSR2")
		}
	}
}

func (h *holder) acquire(ctx context.Context, why string) {
	ctx, cancel := context.WithTimeout(ctx, acquireLimit)
	defer cancel()
	if err := h.loop.Acquire(ctx); err != nil {
		h.log.Warn("The driver is not back yet; it is tried again and again", "why", why, "error", err)
	}
}
