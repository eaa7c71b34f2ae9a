package app

import (
	"bytes"
	"cmp"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/etc"
	"github.com/gpu-telemetry/dcgm-exporter/internal/accounting"
	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/compat"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
	"github.com/gpu-telemetry/dcgm-exporter/internal/events"
	"github.com/gpu-telemetry/dcgm-exporter/internal/events/kernellog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
	"github.com/gpu-telemetry/dcgm-exporter/internal/verdict"
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
	p := &pipeline{
		rewriter: compat.New(like),
		self:     &selfMetrics{own: registry, runtime: prometheus.NewRegistry(), log: log},
	}
	if cfg.Web.ExporterMetrics {
		options.Trailer = p.self.append
	}
	options.Registerer = registry
	p.encoder = exposition.NewEncoder(options)
	eventOptions := events.Options{
		Start: start, LastXIDAsStored: like.Strict, OwnersOnInfo: options.OwnersOnInfo,
		// The log takes 0 for its default. A window of a nanosecond is always empty.
		XIDWindow:         max(cfg.Collection.XIDWindow, time.Nanosecond),
		ClockEventsWindow: max(cfg.Collection.ClockEventWindow, time.Nanosecond),
	}
	if kernelLog != nil { // a nil pointer in an interface is not nil
		eventOptions.KernelLog = kernelLog
	}
	p.derived = newDerivers(eventOptions, cfg.Metrics.Accounting, like.VirtualGPUs, registry)
	p.derived.facts.IgnoredHealth, p.derived.facts.AsReported = cfg.Metrics.IgnoredHealth, like.Strict
	return p
}

// derivers compute the families that are not DCGM fields. Their state survives reloads.
type derivers struct {
	facts          snapshot.Facts
	events         *events.Log
	accountant     *accounting.Accountant
	accountsHidden bool // no family shows the accounts
	judge          verdict.Judge
}

// newDerivers returns the derivers of events and, if requested, of accounting and virtual GPUs.
func newDerivers(opt events.Options, accounts, virtual bool, reg prometheus.Registerer) *derivers {
	opt.Registerer = reg
	return &derivers{
		facts:          snapshot.Facts{Booted: time.Now().Add(-kernellog.Uptime())},
		events:         events.New(opt),
		accountant:     accounting.New(reg, virtual),
		accountsHidden: !accounts && !virtual,
	}
}

// settings returns the settings of the collector for a plan and a source, with the derivers in page order.
func (d *derivers) settings(plan *gpu.Plan, from Backend) collector.Settings {
	s := collector.Settings{
		Source: from.Source, Plan: plan, Attributors: from.Attributors,
		Derivers: []snapshot.Deriver{&d.facts, d.events},
	}
	if len(from.Attributors) > 0 && !d.accountsHidden {
		s.Plan = accounting.Extend(plan)
		s.Derivers = append(s.Derivers, d.accountant.Deriver(from.PodOf))
	}
	s.Derivers = append(s.Derivers, &d.judge)
	return s
}

// EncoderOptions returns the options for the pages of a configuration. It logs a warning if the machine has no name.
func EncoderOptions(cfg *config.Config, log *slog.Logger) exposition.Options {
	options := exposition.Options{
		HostLabels: cfg.Labels.Hostname.Names(), OldNamespace: cfg.Labels.OldNamespace,
		ReplaceBlanksInModelName: cfg.Labels.ReplaceBlanks, NoHealth: !cfg.Metrics.Health,
		OwnersOnInfo: cfg.Labels.Owners == config.OwnersOnInfo,
		Limit: exposition.Limit{
			Series: cfg.Metrics.MaxSeries, Rank: rank(),
			Own: func(label string) bool { return !catalog.IsOwnLabel(label) },
		},
	}
	if !cfg.Metrics.Accounting {
		options.Without = isAccounting
	}
	if CompatOptions(cfg).Strict {
		options.AppendFloat, options.EmptyHelp = compat.AppendFloat, true
	}
	if !cfg.Labels.NoHostname {
		name, err := os.Hostname()
		if options.Hostname = cmp.Or(cfg.Labels.NodeName, name); options.Hostname == "" {
			log.Warn("Cannot determine hostname; series may lack the host label; set NODE_NAME", "error", err)
		}
		// Use the host of a remote engine, except under Kubernetes: there it may be the address of a Service, which is
		// the same on every node.
		options.EngineHost = !cfg.Kubernetes.Enabled
	}
	return options
}

func isAccounting(family string) bool { return catalog.IsInGroup(family, catalog.Accounting) }

// rank returns the order in which families are dropped from a page with too many series. Accounting goes first;
// families of the default counters file are never dropped.
func rank() func(family string) int {
	basic := map[string]bool{}
	requests, _, _ := counters.Parse(bytes.NewReader(etc.Default()), etc.DefaultName) // tests parse this file
	for _, r := range requests {
		for _, name := range namesOf(r.Name) {
			basic[name] = true
		}
	}
	return func(family string) int {
		switch {
		case basic[family]:
			return 0
		case isAccounting(family):
			return 2
		}
		return 1
	}
}

// CompatOptions returns what the pages of a configuration have in common with those of NVIDIA's exporter.
func CompatOptions(cfg *config.Config) compat.Options {
	return compat.Options{
		Strict:    cfg.Metrics.Compatibility == config.CompatibilityStrict,
		JobCopies: cfg.Labels.Owners == config.OwnersOnCopies,
		Devices:   cfg.Devices.GPUs, VirtualGPUs: cfg.Kubernetes.VirtualGPUs,
	}
}
