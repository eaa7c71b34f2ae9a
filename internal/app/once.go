package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/events"
	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// collectLimit bounds how long a subcommand waits for a driver, and callLimit one call of it: a
// host engine that is not there takes five seconds to say so.
const (
	collectLimit = 30 * time.Second
	callLimit    = 20 * time.Second
)

// Collect collects from source as the exporter would, for the given number of cycles, and calls see
// with the snapshot of each. It returns an error if the source cannot be opened or the driver does
// not answer.
func Collect(ctx context.Context, source Backend, plan *gpu.Plan, cycles int, see func(*gpu.Snapshot)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, collectLimit, fmt.Errorf("%w: no data within %s", gpu.ErrTimeout, collectLimit))
	defer cancel()
	seen := 0
	var failed error
	registry := prometheus.NewRegistry()
	change := newDerivers(events.Options{}, true, false, registry).change(plan, source)
	loop := collector.New(collector.Options{
		Source:      change.Source,
		Attributors: change.Attributors,
		Derivers:    change.Derivers,
		Plan:        change.Plan,
		Registerer:  registry,
		ReadTimeout: callLimit,
		HangLimit:   collectLimit,
		Publish: func(s *gpu.Snapshot) {
			switch {
			case seen == cycles || failed != nil:
				return // the loop is about to end
			case errors.Is(s.Health.Err, gpu.ErrOpening):
				return
			case s.Topology == nil:
				failed = s.Health.Err
				cancel()
				return
			}
			see(s)
			if seen++; seen == cycles {
				cancel()
			}
		},
	})
	err := loop.Run(ctx)
	if timeout := context.Cause(ctx); failed == nil && seen < cycles && errors.Is(timeout, gpu.ErrTimeout) {
		return timeout
	}
	if err != nil {
		return err
	}
	if failed == nil && seen < cycles {
		return context.Cause(ctx)
	}
	return failed
}

// NewBackend makes the source that the configuration names, as Run does.
func NewBackend(ctx context.Context, cfg *config.Config, plan *gpu.Plan) (Backend, error) {
	return newSources(time.Now(), prometheus.NewRegistry(), slog.New(slog.DiscardHandler)).backend(ctx, cfg, plan)
}

// Page runs one real cycle with the configuration and returns its page, without the exporter's own
// series. The error says why a page has no data; the page is there all the same.
func Page(ctx context.Context, cfg *config.Config) ([]byte, error) {
	log := slog.New(slog.DiscardHandler)
	plan, _, err := loadPlan(ctx, cfg, log)
	if err != nil {
		return nil, err
	}
	source, err := NewBackend(ctx, cfg, plan)
	if err != nil {
		return nil, err
	}
	encoder := exposition.NewEncoder(encoderOptions(cfg, log))
	encode := func(s *gpu.Snapshot) []byte {
		page := encoder.Encode(s)
		return bytes.Clone(page.Bytes())
	}
	var body []byte
	err = Collect(ctx, source, plan, 1, func(s *gpu.Snapshot) { body = encode(s) })
	if body == nil {
		body = encode(&gpu.Snapshot{Time: time.Now(), Health: gpu.Health{Err: err}})
	}
	return body, err
}
