package jobmapper

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Metrics are the series of the Mappers of a process, one at a time.
type Metrics struct {
	failed  *prometheus.CounterVec
	dropped prometheus.Gauge
	unknown prometheus.Gauge
	spared  prometheus.Gauge
}

// NewMetrics registers the series.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dcgm_exporter_job_file_failures_total",
			Help: "Job files that could not be read, by reason; their GPUs carry no job meanwhile.",
		}, []string{"reason"}),
		dropped: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "dcgm_exporter_job_lines_dropped",
			Help: "Lines of the job files that are too long for the name of a job.",
		}),
		unknown: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "dcgm_exporter_job_files_unmatched",
			Help: "Job files that are named by a GPU or GPU instance which is not there.",
		}),
		spared: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "dcgm_exporter_jobs_dropped",
			Help: "Jobs that are left out now, since their GPU has too many.",
		}),
	}
	reg.MustRegister(m.failed, m.dropped, m.unknown, m.spared)
	for _, reason := range reasons() {
		m.failed.WithLabelValues(reason)
	}
	return m
}

// The words of the reason label beyond those of gpu.Reason.
const (
	reasonTooLarge = "too_large"
	reasonChanging = "changing"
	reasonNotAFile = "not_a_file"
	reasonOutside  = "outside"
)

func reasons() []string {
	return []string{gpu.Reason(gpu.ErrPermission), reasonTooLarge, reasonChanging, reasonNotAFile, reasonOutside, gpu.Reason(errors.New(""))}
}

func reasonOf(err error) string {
	switch {
	case errors.Is(err, errTooLarge):
		return reasonTooLarge
	case errors.Is(err, errChanging):
		return reasonChanging
	case errors.Is(err, errNotAFile):
		return reasonNotAFile
	case errors.Is(err, errOutside):
		return reasonOutside
	default:
		return gpu.Reason(err)
	}
}
