package jobmapper

import (
	"errors"
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Metrics holds the package's metrics. A process registers them once, and its Mappers share them. Only one Mapper is
// active at a time.
type Metrics struct {
	failed      *prometheus.CounterVec
	dropped     prometheus.Gauge
	unknown     prometheus.Gauge
	droppedJobs prometheus.Gauge
}

// NewMetrics registers the metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dcgm_exporter_job_file_failures_total",
			Help: "Failed reads of job files, by reason. Their GPUs have no job label meanwhile.",
		}, []string{"reason"}),
		dropped: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "dcgm_exporter_job_lines_dropped",
			Help: "Lines currently dropped from job files because they are too long for a job name.",
		}),
		unknown: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "dcgm_exporter_job_files_unmatched",
			Help: "Job files whose names match no GPU or GPU instance. The subcommand doctor lists them.",
		}),
		droppedJobs: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "dcgm_exporter_jobs_dropped",
			Help: "Jobs currently dropped because their GPU has too many.",
		}),
	}
	reg.MustRegister(m.failed, m.dropped, m.unknown, m.droppedJobs)
	for _, err := range append(slices.Collect(maps.Values(reasons())), gpu.ErrPermission, errors.New("any other")) {
		m.failed.WithLabelValues(reasonOf(err))
	}
	return m
}

// reasons maps the values of the reason label that gpu.Reason does not return to their errors.
func reasons() map[string]error {
	return map[string]error{
		"too_large": errTooLarge, "changing": errChanging, "not_a_file": errNotAFile, "outside": errOutside,
	}
}

func reasonOf(err error) string {
	for reason, is := range reasons() {
		if errors.Is(err, is) {
			return reason
		}
	}
	return gpu.Reason(err)
}
