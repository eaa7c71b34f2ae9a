package app

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/events"
	"github.com/gpu-telemetry/dcgm-exporter/internal/events/kernellog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
)

// A pipeline turns the readings of a source into pages: derivers add families to a snapshot, and the encoder renders it.
type pipeline struct {
	derived *derivers
	self    *selfMetrics
	encoder *exposition.Encoder
}

// newPipeline returns the pipeline of a configuration. Its metrics are registered with registry, which is also the source
// of the exporter's own metrics on the page. XIDs from before start are not counted. KernelLog may be nil.
func newPipeline(
	cfg *config.Config, registry *prometheus.Registry, start time.Time, kernelLog *kernellog.Reader, log *slog.Logger,
) *pipeline {
	options := EncoderOptions(cfg, log)
	p := &pipeline{self: &selfMetrics{own: registry, log: log}}
	if cfg.Web.ExporterMetrics {
		options.Trailer = p.self.append
	}
	p.encoder = exposition.NewEncoder(options)
	registerEncoder(registry, p.encoder)
	eventOptions := events.Options{
		Start:             start,
		XIDWindow:         window(cfg.Collection.XIDWindow),
		ClockEventsWindow: window(cfg.Collection.ClockEventWindow),
		Strict:            options.Strict.On,
		OwnersOnInfo:      options.OwnersOnInfo,
	}
	if kernelLog != nil { // a nil pointer in an interface is not nil
		eventOptions.KernelLog = kernelLog
	}
	p.derived = newDerivers(eventOptions, cfg.Metrics.Accounting, cfg.Kubernetes.VirtualGPUs, registry)
	p.derived.facts.IgnoredHealth = cfg.Metrics.IgnoredHealth
	return p
}

// window returns the length of a window for the event log. Zero would select the default there; a nanosecond holds no
// event.
func window(configured time.Duration) time.Duration { return max(configured, time.Nanosecond) }
