package app

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// loadPlan reads what metrics are asked for, makes the plan that serves them,
// and returns it with the hash of the configuration that it came of. A line
// that cannot be used is told and left out; only a file without a usable line
// is an error.
func loadPlan(ctx context.Context, cfg *config.Config, files *Files, log *slog.Logger) (*gpu.Plan, uint64, error) {
	asked, err := Ask(ctx, cfg, files.Read)
	if err != nil {
		return nil, 0, fmt.Errorf("counters file: %w", err)
	}
	if asked.BuiltIn {
		log.Info("No counters file was named and none lies at the default path: using the built-in one", "path", cfg.Metrics.File)
	}
	log.Debug("Counters read", "file", asked.Name, "counters", len(asked.Requests))
	for _, p := range asked.Problems {
		log.Warn("Counters: " + p.String())
	}
	if len(asked.Requests) == 0 {
		return nil, 0, fmt.Errorf("counters file: %s: %w", asked.Name, counters.ErrNoCounters)
	}
	plan, err := asked.Plan(cfg, cfg.Collection.Interval)
	if err != nil {
		return nil, 0, err
	}
	return plan, cfg.Hash(asked.content), nil
}
