package collector

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gauge"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

// The stages of a cycle: values of the stage label of the failure counter.
const (
	stageOpen      = "open"
	stageRead      = "read"
	stageAttribute = "attribute"
	stagePublish   = "publish"
)

// The causes of opening a session: values of the cause label of dcgm_exporter_sessions_total.
const (
	causeStart    = "start"
	causeReload   = "reload"
	causeTopology = "topology"
	causeLost     = "lost"
)

// metrics holds the Loop's own metrics. The health series of entities are in the snapshot instead, because they carry
// the entities' labels.
type metrics struct {
	outcome
	duration, lastSuccess       prometheus.Gauge
	failures, sessions, dropped *prometheus.CounterVec
	attribution, attributeFor   *prometheus.GaugeVec
	source                      *gauge.State
}

// outcome says whether the latest cycle had data to serve, and why not.
type outcome struct {
	success     prometheus.Gauge
	unavailable *gauge.State
}

func newOutcome(reg prometheus.Registerer) outcome {
	o := outcome{
		success: promauto.With(reg).NewGauge(prometheus.GaugeOpts{
			Name: "dcgm_exporter_collect_success",
			Help: "Whether the latest collection cycle had data to serve.",
		}),
		unavailable: gauge.NewState("dcgm_exporter_collect_unavailable",
			"Reason why the latest collection cycle had no data to serve; absent if it had data.", "reason"),
	}
	reg.MustRegister(o.unavailable)
	return o
}

// fails records that there is no data, and why.
func (o outcome) fails(reason string) {
	o.success.Set(0)
	o.unavailable.Set(gauge.Series{Value: 1, Labels: []string{reason}})
}

// succeeds records that there is data.
func (o outcome) succeeds() {
	o.success.Set(1)
	o.unavailable.Set()
}

// RegisterStalled registers the metrics of a Loop that has stopped publishing. They replace those that the Loop
// registered under the same names.
func RegisterStalled(reg prometheus.Registerer) {
	newOutcome(reg).fails(gpu.Reason(gpu.ErrStalled))
}

func newMetrics(reg prometheus.Registerer) *metrics {
	auto := promauto.With(reg)
	m := &metrics{
		outcome: newOutcome(reg),
		duration: auto.NewGauge(prometheus.GaugeOpts{
			Name: "dcgm_exporter_collect_duration_seconds",
			Help: "Duration of the latest collection cycle.",
		}),
		lastSuccess: auto.NewGauge(prometheus.GaugeOpts{
			Name: "dcgm_exporter_collect_last_success_timestamp_seconds",
			Help: "Unix time of the latest successful collection cycle.",
		}),
		failures: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "dcgm_exporter_collect_failures_total",
			Help: "Failures in collection cycles, by stage and reason.",
		}, []string{"stage", "reason"}),
		sessions: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "dcgm_exporter_sessions_total",
			Help: "Sessions opened, by cause.",
		}, []string{"cause"}),
		dropped: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "dcgm_exporter_samples_dropped_total",
			Help: "Samples not served: older than three intervals, outside the field's plausible range, " +
				"or contradicted by another field.",
		}, []string{"reason"}),
		attribution: auto.NewGaugeVec(prometheus.GaugeOpts{
			Name: "dcgm_exporter_attribution_success",
			Help: "Whether the attributor answered in the latest cycle.",
		}, []string{"attributor"}),
		attributeFor: auto.NewGaugeVec(prometheus.GaugeOpts{
			Name: "dcgm_exporter_attribution_duration_seconds",
			Help: "Duration of the attributor's latest answer.",
		}, []string{"attributor"}),
		source: gauge.NewState("dcgm_exporter_source_info",
			"Where the data comes from: the source, and the versions of the driver and of its library.",
			"source", "driver", "library"),
	}
	reg.MustRegister(m.source)
	for _, cause := range []string{causeStart, causeReload, causeTopology, causeLost} {
		m.sessions.WithLabelValues(cause)
	}
	for _, reason := range []string{snapshot.DroppedStale, snapshot.DroppedRange, snapshot.DroppedContradicted} {
		m.dropped.WithLabelValues(reason)
	}
	return m
}
