package app

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/compat"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/events"
	"github.com/gpu-telemetry/dcgm-exporter/internal/events/kernellog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A pipeline holds what turns the readings of a source into pages. The loop's snapshot builder calls the derivers,
// which add families. The rewriter makes a snapshot look like that of NVIDIA's exporter, if configured, and the encoder
// renders it.
type pipeline struct {
	derived  *derivers
	rewriter *compat.Rewriter
	self     *selfMetrics
	encoder  *exposition.Encoder
}

// render returns the page of a snapshot.
func (p *pipeline) render(s *gpu.Snapshot) *exposition.Page {
	return p.encoder.Encode(p.rewriter.Rewrite(s))
}

// newPipeline returns the pipeline of a configuration. Its metrics are registered with registry, which is also the
// source of the exporter's own metrics on the page. XIDs from before start are not counted. KernelLog may be nil.
func newPipeline(
	cfg *config.Config, registry *prometheus.Registry, start time.Time, kernelLog *kernellog.Reader, log *slog.Logger,
) *pipeline {
	options := EncoderOptions(cfg, log)
	like := CompatOptions(cfg)
	p := &pipeline{rewriter: compat.New(like), self: &selfMetrics{own: registry, log: log}}
	if cfg.Web.ExporterMetrics {
		options.Trailer = p.self.append
	}
	p.encoder = exposition.NewEncoder(options)
	registerEncoder(registry, p.encoder)
	eventOptions := events.Options{
		Start:             start,
		XIDWindow:         window(cfg.Collection.XIDWindow),
		ClockEventsWindow: window(cfg.Collection.ClockEventWindow),
		LastXIDAsStored:   like.Strict,
		OwnersOnInfo:      options.OwnersOnInfo,
	}
	if kernelLog != nil { // a nil pointer in an interface is not nil
		eventOptions.KernelLog = kernelLog
	}
	p.derived = newDerivers(eventOptions, cfg.Metrics.Accounting, like.VirtualGPUs, registry)
	p.derived.facts.IgnoredHealth, p.derived.facts.AsReported = cfg.Metrics.IgnoredHealth, like.Strict
	return p
}

// window returns the length of a window for the event log. A configured 0 becomes a nanosecond, because the log takes 0
// for its default. A window of a nanosecond is always empty.
func window(configured time.Duration) time.Duration { return max(configured, time.Nanosecond) }
