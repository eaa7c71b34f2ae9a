package app

import (
	"bytes"
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/etc"
	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/compat"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
)

// EncoderOptions returns the options for the pages of a configuration. It logs a warning if the machine has no name.
func EncoderOptions(cfg *config.Config, log *slog.Logger) exposition.Options {
	options := exposition.Options{
		HostLabels:               cfg.Labels.Hostname.Names(),
		OldNamespace:             cfg.Labels.OldNamespace,
		ReplaceBlanksInModelName: cfg.Labels.ReplaceBlanks,
		OwnersOnInfo:             cfg.Labels.Owners == config.OwnersOnInfo,
		NoHealth:                 !cfg.Metrics.Health,
		Limit: exposition.Limit{
			Series: cfg.Metrics.MaxSeries,
			Own:    func(label string) bool { return !catalog.IsOwnLabel(label) },
			Rank:   rank(),
		},
	}
	if !cfg.Metrics.Accounting {
		options.Without = isAccounting
	}
	if CompatOptions(cfg).Strict {
		options.AppendFloat, options.EmptyHelp = compat.AppendFloat, true
	}
	if !cfg.Labels.NoHostname {
		options.Hostname = hostname(cfg, log)
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
		default:
			return 1
		}
	}
}

// CompatOptions returns what the pages of a configuration have in common with those of NVIDIA's exporter.
func CompatOptions(cfg *config.Config) compat.Options {
	return compat.Options{
		Strict:      cfg.Metrics.Compatibility == config.CompatibilityStrict,
		Devices:     cfg.Devices.GPUs,
		JobCopies:   cfg.Labels.Owners == config.OwnersOnCopies,
		VirtualGPUs: cfg.Kubernetes.VirtualGPUs,
	}
}

// hostname returns NODE_NAME under Kubernetes, and the machine's name otherwise.
func hostname(cfg *config.Config, log *slog.Logger) string {
	if cfg.Labels.NodeName != "" {
		return cfg.Labels.NodeName
	}
	name, err := os.Hostname()
	if err != nil {
		log.Warn("Cannot determine hostname; series may lack the host label; set NODE_NAME", "error", err)
	}
	return name
}

// registerEncoder registers counters of the samples and labels that the encoder drops.
func registerEncoder(reg prometheus.Registerer, e *exposition.Encoder) {
	reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "dcgm_exporter_duplicate_samples_dropped_total",
		Help: "Samples dropped because their family already had one with the same labels.",
	}, func() float64 { return float64(e.DuplicatesDropped()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "dcgm_exporter_labels_dropped_total",
			Help: "Labels dropped because their series already had a label of that name.",
		}, func() float64 { return float64(e.LabelsDropped()) }))
	for _, step := range []string{exposition.LimitedPodLabels, exposition.LimitedCopies, exposition.LimitedFamilies} {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "dcgm_exporter_max_series_dropped",
			Help:        "Pod labels and series that the latest page omits because of --max-series, by kind.",
			ConstLabels: prometheus.Labels{"reason": step},
		}, func() float64 { return float64(e.LimitedBy(step)) }))
	}
}
