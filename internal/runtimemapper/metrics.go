package runtimemapper

import "github.com/prometheus/client_golang/prometheus"

// Metrics are the series of the Mappers of a process, one at a time.
type Metrics struct {
	failed    *prometheus.CounterVec
	unmatched *prometheus.GaugeVec
	dropped   prometheus.Gauge
}

// NewMetrics registers the series.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dcgm_exporter_container_inspect_failures_total",
			Help: "Containers that the runtime listed and could not tell about, by reason; they own no GPU meanwhile.",
		}, []string{"reason"}),
		unmatched: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "dcgm_exporter_container_devices_unmatched",
			Help: "Devices of running containers that no GPU or GPU instance here goes by, by the form of the name.",
		}, []string{"form"}),
		dropped: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "dcgm_exporter_container_labels_dropped",
			Help: "Labels of running containers that are allowed and left out: too long, or too many.",
		}),
	}
	reg.MustRegister(m.failed, m.unmatched, m.dropped)
	for _, f := range forms() {
		m.unmatched.WithLabelValues(string(f))
	}
	return m
}
