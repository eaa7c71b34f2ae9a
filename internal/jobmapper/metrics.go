package jobmapper

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Metrics holds the package's metrics. A process registers them once, and its Mappers share them. Only one Mapper is
// active at a time.
type Metrics struct {
	failed                        *prometheus.CounterVec
	dropped, unknown, droppedJobs prometheus.Gauge
}

// NewMetrics registers the metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	auto := promauto.With(reg)
	m := &Metrics{
		failed: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "dcgm_exporter_job_file_failures_total",
			Help: "Failed reads of job files, by reason. Their GPUs have no job label meanwhile.",
		}, []string{"reason"}),
		dropped: auto.NewGauge(prometheus.GaugeOpts{
			Name: "dcgm_exporter_job_lines_dropped",
			Help: "Lines currently dropped from job files because they are too long for a job name.",
		}),
		unknown: auto.NewGauge(prometheus.GaugeOpts{
			Name: "dcgm_exporter_job_files_unmatched",
			Help: "Job files whose names match no GPU or GPU instance. The subcommand doctor lists them.",
		}),
		droppedJobs: auto.NewGauge(prometheus.GaugeOpts{
			Name: "dcgm_exporter_jobs_dropped", Help: "Jobs currently dropped because their GPU has too many.",
		}),
	}
	other := errors.New("any other")
	for _, err := range []error{errTooLarge, errChanging, errNotAFile, errOutside, gpu.ErrPermission, other} {
		m.failed.WithLabelValues(reasonOf(err))
	}
	return m
}

// fileError is a failure that gpu.Reason does not know.
type fileError struct{ reason, text string }

func (e fileError) Error() string { return e.text }

func reasonOf(err error) string {
	if e, ok := errors.AsType[fileError](err); ok {
		return e.reason
	}
	return gpu.Reason(err)
}
