package runtimemapper

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gauge"
)

// Metrics holds the package's metrics. A process registers them once, and its Mappers share them. Only one Mapper is
// active at a time.
type Metrics struct {
	failed    *prometheus.CounterVec
	unmatched *gauge.State
	dropped   prometheus.Gauge
	omitted   prometheus.Gauge
}

// NewMetrics registers the metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dcgm_exporter_container_inspect_failures_total",
			Help: "Failed inspections of containers, by reason. Meanwhile, no GPU is attributed to the container.",
		}, []string{"reason"}),
		unmatched: gauge.NewState("dcgm_exporter_container_devices_unmatched",
			"Devices of running containers that match no GPU or GPU instance of this node, by form of the name.",
			"form"),
		dropped: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "dcgm_exporter_container_labels_dropped",
			Help: "Allowed container labels currently dropped because they are too long or too many.",
		}),
		omitted: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "dcgm_exporter_containers_dropped",
			Help: "Containers currently dropped because their GPU has too many.",
		}),
	}
	reg.MustRegister(m.failed, m.unmatched, m.dropped, m.omitted)
	return m
}
