package podmapper

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gauge"
)

// Metrics holds the package's metrics. A process registers them once, and all its Mappers share them.
type Metrics struct {
	requests  *prometheus.CounterVec
	unmatched *gauge.State
	labels    *prometheus.GaugeVec
	owners    prometheus.Gauge
	kept      prometheus.Gauge
	answered  atomic.Pointer[time.Time] // when the kubelet last answered; nil before the first answer
}

// Reasons for dropping a label of a pod.
const (
	droppedCollision = "collision" // its name is taken by the exporter or an earlier label
	droppedBudget    = "budget"    // the pod has too many labels
	droppedLength    = "length"    // its value is too long
)

// setDropped sets the number of dropped labels by reason.
func (m *Metrics) setDropped(labels map[string]int) {
	for _, reason := range []string{droppedCollision, droppedBudget, droppedLength} {
		m.labels.WithLabelValues(reason).Set(float64(labels[reason]))
	}
}

// maxUnmatched is the maximum number of pairs of resource and form that are counted.
const maxUnmatched = 64

// setUnmatched counts the unmatched devices.
func (m *Metrics) setUnmatched(devices []Allocation) {
	counts := map[[2]string]int{}
	for i := range devices {
		key := [2]string{devices[i].Resource, string(devices[i].ID.Form)}
		if _, ok := counts[key]; !ok && len(counts) >= maxUnmatched {
			key[0] = "other"
		}
		counts[key]++
	}
	var series []gauge.Series
	for key, n := range counts {
		series = append(series, gauge.Series{Value: float64(n), Labels: key[:]})
	}
	m.unmatched.Set(series...)
}

// NewMetrics registers the metrics at reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	auto := promauto.With(reg)
	m := &Metrics{
		requests: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "dcgm_exporter_kubelet_requests_total",
			Help: "Requests to the kubelet's PodResources service, by the gRPC code of the answer.",
		}, []string{"code"}),
		unmatched: gauge.NewState("dcgm_exporter_unmatched_devices",
			"Devices that containers hold and that match no entity of the source, by resource and form of their ids. "+
				"The subcommand doctor lists them.", "resource", "form"),
		labels: auto.NewGaugeVec(prometheus.GaugeOpts{
			Name: "dcgm_exporter_pod_labels_dropped", Help: "Pod labels currently dropped, by reason.",
		}, []string{"reason"}),
		owners: auto.NewGauge(prometheus.GaugeOpts{
			Name: "dcgm_exporter_owners_dropped", Help: "Owners currently dropped because their entity has too many.",
		}),
		kept: auto.NewGauge(prometheus.GaugeOpts{
			Name: "dcgm_exporter_attribution_holdings_kept",
			Help: "Devices with a remembered owner, because the kubelet has just started and does not list it.",
		}),
	}
	age := prometheus.NewDesc("dcgm_exporter_attribution_map_age_seconds",
		"Seconds since the kubelet last reported which pod has which device.", nil, nil)
	reg.MustRegister(m.unmatched, prometheus.CollectorFunc(func(metrics chan<- prometheus.Metric) {
		if at := m.answered.Load(); at != nil {
			metrics <- prometheus.MustNewConstMetric(age, prometheus.GaugeValue, time.Since(*at).Seconds())
		}
	}))
	m.setDropped(nil)
	return m
}
