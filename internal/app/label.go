package app

import (
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
)

// encoderOptions says how pages are labelled.
func encoderOptions(cfg *config.Config, log *slog.Logger) exposition.Options {
	options := exposition.Options{
		HostnameLabel:            exposition.HostnameLower,
		OldNamespace:             cfg.Labels.OldNamespace,
		ReplaceBlanksInModelName: cfg.Labels.ReplaceBlanks,
	}
	switch cfg.Labels.Hostname {
	case config.HostnameUpper:
		options.HostnameLabel = exposition.HostnameUpper
	case config.HostnameBoth:
		options.HostnameLabel = exposition.HostnameBoth
	}
	if !cfg.Labels.NoHostname {
		options.Hostname = hostname(cfg, log)
		// The session knows the host of a remote engine, whose GPUs these are.
		options.EngineHost = true
	}
	return options
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

// registerEncoder exports what the encoder had to leave out.
func registerEncoder(reg prometheus.Registerer, e *exposition.Encoder) {
	reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "dcgm_exporter_duplicate_samples_dropped_total",
		Help: "Samples left out because their family already had one with the same labels.",
	}, func() float64 { return float64(e.DuplicatesDropped()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "dcgm_exporter_labels_dropped_total",
			Help: "Labels left out because the series already had one of that name.",
		}, func() float64 { return float64(e.LabelsDropped()) }))
}
