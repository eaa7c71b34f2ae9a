package app

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/nvml"
)

// ErrReplaced is what Run returns when the driver was replaced beneath a
// library that had worked: only a new process loads the new one.
var ErrReplaced = errors.New("the driver was replaced: this process begins anew with the new driver's library")

// watchful is a source that tells when its library no longer fits the driver
// although it once did. A library that never fitted is another matter: a new
// process would load the same one.
type watchful struct {
	collector.Source
	worked   *atomic.Bool
	replaced chan<- struct{}
}

// Open opens the source.
func (w watchful) Open(ctx context.Context, plan *gpu.Plan) (collector.Session, error) {
	s, err := w.Source.Open(ctx, plan)
	switch {
	case err == nil:
		w.worked.Store(true)
	case errors.Is(err, nvml.ErrReplaced) && w.worked.Load():
		select {
		case w.replaced <- struct{}{}:
		default: // told already
		}
	}
	return s, err
}

// awaitReplacement returns ErrReplaced once a source tells of it, nil if ctx
// is done before.
func (s *sources) awaitReplacement(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-s.replaced:
		s.log.Warn("The driver was replaced, and a process keeps the NVML that it loaded first: beginning anew")
		return ErrReplaced
	}
}
