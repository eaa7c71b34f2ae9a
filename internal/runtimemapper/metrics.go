package runtimemapper

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/deviceid"
)

// Metrics are the series of the Mappers of a process, one at a time.
type Metrics struct {
	failed    *prometheus.CounterVec
	unmatched *prometheus.GaugeVec
	dropped   prometheus.Gauge
	spared    prometheus.Gauge
}

// NewMetrics registers the series.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dcgm_exporter_container_inspect_failures_total",
			Help: "Containers that the runtime listed and could not inspect, by reason; they own no GPU meanwhile.",
		}, []string{"reason"}),
		unmatched: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "dcgm_exporter_container_devices_unmatched",
			Help: "Devices of running containers that match no GPU or GPU instance of this node, by the form of the name.",
		}, []string{"form"}),
		dropped: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "dcgm_exporter_container_labels_dropped",
			Help: "Labels of running containers that are allowed and left out: too long, or too many.",
		}),
		spared: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "dcgm_exporter_containers_dropped",
			Help: "Containers that are left out now, since their GPU has too many.",
		}),
	}
	reg.MustRegister(m.failed, m.unmatched, m.dropped, m.spared)
	for _, form := range forms() {
		m.unmatched.WithLabelValues(form)
	}
	return m
}

// The words of the form label.
const (
	formUUID    = "uuid"
	formIndex   = "index"
	formMIGUUID = "mig_uuid"
)

func forms() []string {
	return []string{string(deviceid.FormAll), formIndex, formUUID, string(deviceid.FormBusID), formMIGUUID,
		string(deviceid.FormMIGIndex), string(deviceid.FormNode), string(deviceid.FormUnknown)}
}

// formOf returns the word for the form of an id.
func formOf(id deviceid.ID) string {
	switch id.Form {
	case deviceid.FormGPU:
		return formUUID
	case deviceid.FormNVMLIndex:
		return formIndex
	case deviceid.FormMIG, deviceid.FormMIGPath:
		return formMIGUUID
	default:
		return string(id.Form)
	}
}
