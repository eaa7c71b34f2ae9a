package podmapper

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gauge"
)

// Metrics are the package's own series. A process registers them once; every Mapper that it makes
// writes to the same.
type Metrics struct {
	requests  *prometheus.CounterVec
	unmatched *gauge.State
	labels    *prometheus.GaugeVec
	owners    prometheus.Gauge
	kept      prometheus.Gauge
	age       *ageCollector
}

// Why a pod's label is left out.
const (
	droppedCollision = "collision" // a label of ours, or an earlier one, has its name
	droppedBudget    = "budget"    // the pod has too many
	droppedLength    = "length"    // its value is too long
)

// NewMetrics registers the series at reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dcgm_exporter_kubelet_requests_total",
			Help: "Requests to the kubelet's PodResources service, by the gRPC code of the answer.",
		}, []string{"code"}),
		unmatched: gauge.NewState("dcgm_exporter_unmatched_devices",
			"Devices that containers hold and that match no entity of the source, by resource and form of their ids. The subcommand doctor lists them.",
			"resource", "form"),
		labels: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "dcgm_exporter_pod_labels_dropped",
			Help: "Labels of pods that are left out now: another has their name, the pod has too many, the value is too long.",
		}, []string{"reason"}),
		owners: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "dcgm_exporter_owners_dropped",
			Help: "Owners that are left out now, since their entity has too many.",
		}),
		kept: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "dcgm_exporter_attribution_holdings_kept",
			Help: "Devices that the kubelet's latest list gives to no container and that are reported as before, since it has just started.",
		}),
		age: &ageCollector{desc: prometheus.NewDesc("dcgm_exporter_attribution_map_age_seconds",
			"Seconds since the kubelet last reported which pod has which device.", nil, nil)},
	}
	reg.MustRegister(m.requests, m.unmatched, m.labels, m.owners, m.kept, m.age)
	for _, reason := range []string{droppedCollision, droppedBudget, droppedLength} {
		m.labels.WithLabelValues(reason)
	}
	return m
}

// ageCollector collects an age, and nothing before there is one.
type ageCollector struct {
	desc *prometheus.Desc
	mu   sync.Mutex
	at   time.Time
}

func (c *ageCollector) now() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = time.Now()
}

// Describe implements prometheus.Collector.
func (c *ageCollector) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

// Collect implements prometheus.Collector.
func (c *ageCollector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.at.IsZero() {
		ch <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, time.Since(c.at).Seconds())
	}
}
