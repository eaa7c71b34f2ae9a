package ops

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// An Opener makes the source that a configuration names. It is the one that
// the exporter itself uses.
type Opener func(context.Context, *config.Config, *gpu.Plan) (collector.Source, error)

// lookLimit bounds how long a subcommand waits for a driver, and callLimit one
// call of it: a host engine that is not there takes five seconds to say so.
const (
	lookLimit = 30 * time.Second
	callLimit = 20 * time.Second
)

// Look collects from source as the exporter would, for the given number of
// cycles, and calls see with the snapshot of each. It returns an error if the
// source cannot be opened or the driver does not answer.
func Look(ctx context.Context, source collector.Source, plan *gpu.Plan, cycles int, see func(*gpu.Snapshot)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, lookLimit, fmt.Errorf("%w: no data within %s", gpu.ErrTimeout, lookLimit))
	defer cancel()
	seen, published := 0, 0
	var failed error
	loop := collector.New(collector.Options{
		Source:      source,
		Plan:        plan,
		Registerer:  prometheus.NewRegistry(),
		ReadTimeout: callLimit,
		HangLimit:   lookLimit,
		Publish: func(s *gpu.Snapshot) {
			published++
			switch {
			case seen == cycles || failed != nil:
				return // the loop is about to end
			case s.Topology == nil && published == 1:
				return // what is published before the first attempt to open
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
	if err := loop.Run(ctx); err != nil {
		return err
	}
	if failed == nil && seen < cycles {
		return context.Cause(ctx)
	}
	return failed
}
