package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/events"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

// collectLimit bounds how long a subcommand waits for data, and callLimit bounds a single driver call. Connecting to a
// missing host engine alone takes five seconds.
const (
	collectLimit = 30 * time.Second
	callLimit    = 20 * time.Second
)

// Collect collects from source as the exporter would, and calls see with the snapshot of each cycle. It returns an
// error if the source cannot be opened or the driver does not answer.
func Collect(ctx context.Context, source Backend, plan *gpu.Plan, cycles int, see func(*gpu.Snapshot)) error {
	registry := prometheus.NewRegistry()
	settings := newDerivers(events.Options{}, true, false, registry).settings(plan, source)
	return collectUntil(ctx, registry, settings, func(s *gpu.Snapshot) bool {
		see(s)
		cycles--
		return cycles == 0
	})
}

// collectUntil is like Collect, but ends when see returns true. The metrics of the collection are registered with
// registry.
func collectUntil(
	ctx context.Context, registry *prometheus.Registry, settings collector.Settings, see func(*gpu.Snapshot) bool,
) error {
	timeout := fmt.Errorf("%w: no data within %s", gpu.ErrTimeout, collectLimit)
	ctx, cancel := context.WithTimeoutCause(ctx, collectLimit, timeout)
	defer cancel()
	ended := false
	var failed error
	loop := collector.New(collector.Options{
		Settings: settings, Registerer: registry, ReadTimeout: callLimit, HangLimit: collectLimit,
		Publish: func(s *gpu.Snapshot) {
			switch {
			case ended || errors.Is(s.Health.Err, gpu.ErrOpening):
				return
			case s.Topology == nil:
				ended, failed = true, s.Health.Err
			default:
				ended = see(s)
			}
			if ended {
				cancel()
			}
		},
	})
	err := loop.Run(ctx)
	if cause := context.Cause(ctx); !ended && (err == nil || errors.Is(cause, gpu.ErrTimeout)) {
		err = cause
	}
	return cmp.Or(err, failed)
}

// NewBackend returns the source of the configuration, as Run does.
func NewBackend(ctx context.Context, cfg *config.Config, plan *gpu.Plan) (Backend, error) {
	return newSources(time.Now(), prometheus.NewRegistry(), slog.New(slog.DiscardHandler)).backend(ctx, cfg, plan)
}

// Page reads every profilingInterval until profiling fields have values, but at most profilingCycles times. The engine
// needs two samples for one value.
const (
	profilingInterval = time.Second
	profilingCycles   = 5
)

// Page collects until a page is complete and returns it, without the metrics of the Go runtime. The error says why a
// page has no data. There is no page only if the configuration is invalid.
func Page(ctx context.Context, cfg *config.Config) ([]byte, error) {
	log, registry := slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	plan, _, err := loadPlan(ctx, cfg, new(Reader).ReadFile, log)
	if err != nil {
		return nil, err
	}
	source, err := newSources(time.Now(), registry, log).backend(ctx, cfg, plan)
	if err != nil {
		return nil, err
	}
	return collectPage(ctx, cfg, registry, source, plan)
}

func collectPage(
	ctx context.Context, cfg *config.Config, registry *prometheus.Registry, source Backend, plan *gpu.Plan,
) (body []byte, err error) {
	pipeline, cycles := newPipeline(cfg, registry, time.Now(), nil, slog.New(slog.DiscardHandler)), 0
	settings := pipeline.derived.settings(forPage(plan), source)
	err = collectUntil(ctx, registry, settings, func(s *gpu.Snapshot) bool {
		body = pipeline.render(s).Bytes()
		cycles++
		return cycles == profilingCycles || !lacksProfiling(plan, s)
	})
	switch {
	case body == nil:
		body = pipeline.render(&gpu.Snapshot{Time: time.Now(), Health: gpu.Health{Err: err}}).Bytes()
	case !errors.Is(err, gpu.ErrWedged):
		err = nil
	}
	return body, err
}

// forPage returns the plan with the interval at which Page reads.
func forPage(plan *gpu.Plan) *gpu.Plan {
	if !slices.ContainsFunc(plan.Fields, func(f gpu.Field) bool { return f.Profiling }) {
		return plan
	}
	p := *plan
	p.Interval, p.Fields = min(p.Interval, profilingInterval), slices.Clone(p.Fields)
	for i := range p.Fields {
		if f := &p.Fields[i]; f.Profiling {
			f.Interval = min(f.Interval, profilingInterval)
		}
	}
	return &p
}

// lacksProfiling reports whether a profiling counter still lacks values: it has none although the field is supported,
// or some entities of a kind have one and others do not.
func lacksProfiling(plan *gpu.Plan, s *gpu.Snapshot) bool {
	return slices.ContainsFunc(s.Columns, func(c gpu.Column) bool {
		field := &plan.Fields[c.Counter.Field]
		if !field.Profiling {
			return false
		}
		var with, without gpu.Kinds
		for row, v := range c.Values {
			switch kind := gpu.KindsOf(s.Topology.Devices[row].Entity.Kind); {
			case s.Health.Entities[row].Err != nil || !s.Topology.Serves(field, row):
			case v.IsAbsent():
				without |= kind
			default:
				with |= kind
			}
		}
		return with&without != 0 || slices.ContainsFunc(s.Health.Unavailable, func(u gpu.FieldHealth) bool {
			return u.Field == c.Counter.Name && u.Reason == snapshot.ReasonNoData
		})
	})
}
