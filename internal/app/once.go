package app

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Once runs one real cycle with the configuration of p and writes its page to
// p.Out, without the exporter's own series. It returns an error if the cycle
// had no data; the page, which says why, is written all the same.
func Once(ctx context.Context, p Process) error {
	cfg, err := config.Parse(p.Args, p.Env, os.ReadFile)
	if err != nil {
		return err
	}
	log := newLogger(cfg.Log, p.Err)
	plan, _, err := loadPlan(cfg, log)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	source, err := newSources(p.Start, log).choose(ctx, cfg, plan)
	if err != nil {
		return err
	}
	cfg.Web.ExporterMetrics = false
	encoder := exposition.NewEncoder(encoderOptions(cfg, nil, log))
	var result error
	publish := func(s *gpu.Snapshot) {
		if errors.Is(s.Health.Err, collector.ErrStarting) || ctx.Err() != nil {
			return
		}
		page := encoder.Encode(s)
		defer page.Release()
		_, writeErr := p.Out.Write(page.Bytes())
		result = errors.Join(s.Health.Err, writeErr)
		cancel()
	}
	err = collector.New(collector.Options{
		Source: source.source, Plan: plan, Attributors: source.attributors, Publish: publish,
		Registerer: prometheus.NewRegistry(), Log: log, HangLimit: cfg.Collection.HangLimit,
	}).Run(ctx)
	if err = errors.Join(result, err); err != nil {
		return fmt.Errorf("one cycle: %w", err)
	}
	return nil
}
