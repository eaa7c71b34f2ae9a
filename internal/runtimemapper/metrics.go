package runtimemapper

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gauge"
)

// Metrics holds the package's metrics. A process registers them once, and its Mappers share them. Only one Mapper is
// active at a time.
type Metrics struct {
	failed           *prometheus.CounterVec
	unmatched        *gauge.State
	dropped, omitted prometheus.Gauge
}

// NewMetrics registers the metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	auto := promauto.With(reg)
	m := &Metrics{
		failed: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "dcgm_exporter_container_inspect_failures_total",
			Help: "Failed inspections of containers, by reason. Meanwhile, no GPU is attributed to the container.",
		}, []string{"reason"}),
		unmatched: gauge.NewState("dcgm_exporter_container_devices_unmatched",
			"Devices of running containers that match no GPU or GPU instance of this node, by form of the name.",
			"form"),
		dropped: auto.NewGauge(prometheus.GaugeOpts{
			Name: "dcgm_exporter_container_labels_dropped",
			Help: "Allowed container labels currently dropped because they are too long or too many.",
		}),
		omitted: auto.NewGauge(prometheus.GaugeOpts{
			Name: "dcgm_exporter_containers_dropped",
			Help: "Containers currently dropped because their GPU has too many.",
		}),
	}
	reg.MustRegister(m.unmatched)
	return m
}
