package app

import (
	"bytes"
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/etc"
	"github.com/gpu-telemetry/dcgm-exporter/internal/accounting"
	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// EncoderOptions returns how pages are made under a configuration, without the series of the exporter itself. The log has a
// line where the machine has no name.
func EncoderOptions(cfg *config.Config, log *slog.Logger) exposition.Options {
	options := exposition.Options{
		HostnameLabel:            cfg.Labels.Hostname,
		OldNamespace:             cfg.Labels.OldNamespace,
		ReplaceBlanksInModelName: cfg.Labels.ReplaceBlanks,
	}
	options.JobCopies = cfg.Labels.Owners == config.OwnersOnCopies
	options.OwnersApart = cfg.Labels.Owners == config.OwnersOnInfo
	options.VirtualGPUs = cfg.Kubernetes.VirtualGPUs
	options.Limit = exposition.Limit{
		Series: cfg.Metrics.MaxSeries,
		Own:    func(label string) bool { return !catalog.IsOwnLabel(label) },
		Rank:   rank(),
	}
	options.NoHealth = !cfg.Metrics.Health
	if !cfg.Metrics.Accounting {
		options.Without = accounting.IsFamily
	}
	if cfg.Metrics.Compatibility == config.CompatibilityStrict {
		gpus := cfg.Devices.GPUs
		options.Strict = exposition.Strict{On: true, HidePartitioned: gpus.Flex, HideGPUs: !gpus.Flex && !gpus.Major}
	}
	if !cfg.Labels.NoHostname {
		options.Hostname = hostname(cfg, log)
		// The session knows the host of a remote engine, whose GPUs these are. Under Kubernetes its
		// address is a Service's, which is the same on every node.
		options.EngineHost = !cfg.Kubernetes.Enabled
	}
	return options
}

// rank returns the order in which families leave a page with too many series: accounting first, the default counters file
// never.
func rank() func(family string) int {
	basic := map[string]bool{}
	requests, _, _ := counters.Parse(bytes.NewReader(etc.Default()), etc.DefaultName) // it is embedded, and tests parse it
	for _, r := range requests {
		for _, name := range namesOf(r.Name) {
			basic[name] = true
		}
	}
	return func(family string) int {
		switch {
		case basic[family]:
			return 0
		case accounting.IsFamily(family):
			return 2
		default:
			return 1
		}
	}
}

// devices returns the GPUs and instances to read. Strict shows values of GPUs for their instances,
// so that it reads the GPUs too where only instances are requested.
func devices(cfg *config.Config) gpu.Selector {
	sel := cfg.Devices.GPUs
	if cfg.Metrics.Compatibility == config.CompatibilityStrict && sel.Minor && !sel.Major {
		sel.Major, sel.MajorIDs = true, nil
	}
	return sel
}

// hostname returns NODE_NAME under Kubernetes, else the machine's name.
func hostname(cfg *config.Config, log *slog.Logger) string {
	if cfg.Labels.NodeName != "" {
		return cfg.Labels.NodeName
	}
	name, err := os.Hostname()
	if err != nil {
		log.Warn("The machine has no name; series go without the host label", "error", err)
	}
	return name
}

// registerEncoder counts the samples and labels that the encoder leaves out.
func registerEncoder(reg prometheus.Registerer, e *exposition.Encoder) {
	reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "dcgm_exporter_duplicate_samples_dropped_total",
		Help: "Samples left out because their family already had one with the same labels.",
	}, func() float64 { return float64(e.DuplicatesDropped()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "dcgm_exporter_labels_dropped_total",
			Help: "Labels left out because the series already had one of that name.",
		}, func() float64 { return float64(e.LabelsDropped()) }))
	for _, step := range []string{exposition.LimitedPodLabels, exposition.LimitedCopies, exposition.LimitedFamilies} {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "dcgm_exporter_max_series_dropped",
			Help:        "What the latest page leaves out over --max-series: labels of pods, series that are copies for the owners of shared devices, series of whole families.",
			ConstLabels: prometheus.Labels{"reason": step},
		}, func() float64 { return float64(e.LimitedBy(step)) }))
	}
}
