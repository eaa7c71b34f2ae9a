// Package jobmapper finds the HPC jobs that use each GPU. Its Mapper is an Attributor that reads a folder of job files,
// written by a scheduler's prolog and epilog.
//
// A file is named after a GPU ("3") or a GPU instance ("3.1", the labels gpu and GPU_I_ID) and has one job per line.
// The Mapper checks every file once per cycle and reads only those that changed. While their content is the same, it
// returns the same owners. If a file cannot be read, only its own GPU loses the labels, and the failure is counted.
//
// It never writes to the folder, and forgets a job once its file no longer names it.
package jobmapper

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/gpu-telemetry/dcgm-exporter/internal/attribution"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Options configure a Mapper.
type Options struct {
	// Dir is the folder of the job files; it need not exist yet. Required.
	Dir string
	// Metrics are shared by all Mappers of the process. Required.
	Metrics *Metrics
	// Log gets a line when a file becomes unreadable or readable again. Nil discards.
	Log *slog.Logger
}

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

// Mapper is an Attributor that reads a folder of job files. Its methods are safe for concurrent use.
type Mapper struct {
	dir     string
	pause   func(time.Duration)
	log     *slog.Logger
	metrics *Metrics

	mu       sync.Mutex      // guards the fields below
	files    map[string]file // files of the folder whose names have rows
	topology *gpu.Topology
	rows     map[string]int
	owners   *gpu.Owners // nil before the first answer
}

// New returns a Mapper without reading the folder.
func New(opt Options) *Mapper {
	log := cmp.Or(opt.Log, slog.New(slog.DiscardHandler))
	return &Mapper{dir: opt.Dir, pause: time.Sleep, log: log, metrics: opt.Metrics}
}

// Name returns "hpc".
func (m *Mapper) Name() string { return "hpc" }

// Attribute returns the jobs on the GPUs and GPU instances of t, with the label hpc_job. An instance without a file
// belongs to the jobs of its GPU. The error wraps gpu.ErrUnavailable if the folder does not exist, or gpu.ErrPermission
// if it is not readable. If only some files cannot be read, it returns no error.
func (m *Mapper) Attribute(ctx context.Context, t *gpu.Topology) (*gpu.Owners, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t != m.topology {
		m.topology, m.rows, m.owners = t, rowsByName(t), &gpu.Owners{}
	}
	before := m.files
	unknown, err := m.scan(ctx, m.rows)
	if err != nil {
		return nil, err
	}
	m.metrics.unknown.Set(float64(len(unknown)))
	m.report(before)
	uses := m.uses()
	labels := attribution.ExclusiveLabels(t, uses, func(o *gpu.Owner) []gpu.Label { return o.Labels })
	m.owners = attribution.ReuseIfEqual(m.owners, &gpu.Owners{Labels: labels, Uses: uses})
	return m.owners, nil
}

// Unmatched returns the names of files that match no entity of t, sorted and without hidden files. It returns the
// errors of Attribute.
func (m *Mapper) Unmatched(ctx context.Context, t *gpu.Topology) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.scan(ctx, rowsByName(t))
}

// rowsByName returns the row of each job file, by its name in lower case: a GPU's index (2) or UUID (GPU-…), optionally
// with a GPU instance id (2.7, GPU-….7), or a MIG device's UUID (MIG-…).
func rowsByName(t *gpu.Topology) map[string]int {
	const ambiguous = -1
	rows := map[string]int{}
	for row := range t.Devices {
		d := &t.Devices[row]
		names := []string{strconv.Itoa(int(d.GPU)), d.UUID}
		switch d.Entity.Kind {
		case gpu.KindGPU:
		case gpu.KindGPUInstance:
			instance := "." + strconv.Itoa(int(d.InstanceID))
			names = []string{names[0] + instance, d.UUID + instance, d.MIGUUID}
		default:
			continue
		}
		for _, name := range names {
			name = strings.ToLower(name)
			if _, taken := rows[name]; taken {
				rows[name] = ambiguous
			} else {
				rows[name] = row
			}
		}
	}
	maps.DeleteFunc(rows, func(_ string, row int) bool { return row == ambiguous })
	return rows
}

// report counts the failures of files. It logs those that began or ended since the previous scan, whose files are in
// before.
func (m *Mapper) report(before map[string]file) {
	dropped := 0
	for name, file := range m.files {
		dropped += file.dropped
		failed := before[name].err != nil
		if file.err != nil {
			m.metrics.failed.WithLabelValues(reasonOf(file.err)).Inc()
		}
		switch {
		case file.err != nil && !failed:
			m.log.Warn("Job file cannot be read; its GPU has no job label", "file", name, "error", file.err)
		case file.err == nil && failed:
			m.log.Info("Job file can be read again", "file", name)
		}
	}
	m.metrics.dropped.Set(float64(dropped))
}

// uses returns the jobs of each row. A row with several files, by several forms of its name, has the jobs of all.
func (m *Mapper) uses() []gpu.Use {
	type rowJob struct {
		row int
		job string
	}
	devices := m.topology.Devices
	uses, named, seen, dropped := make([]gpu.Use, len(devices)), make([]bool, len(devices)), map[rowJob]bool{}, 0
	for _, name := range slices.Sorted(maps.Keys(m.files)) {
		file, row := m.files[name], m.rows[strings.ToLower(name)]
		use := &uses[row]
		named[row] = true
		use.Incomplete = use.Incomplete || file.err != nil
		for _, job := range file.jobs {
			switch {
			case seen[rowJob{row, job}]:
			case len(use.Owners) == attribution.MaxOwners:
				dropped++
			default:
				use.Owners = append(use.Owners, gpu.Owner{Labels: []gpu.Label{{Name: "hpc_job", Value: job}}})
			}
			seen[rowJob{row, job}] = true
		}
	}
	m.metrics.droppedJobs.Set(float64(dropped))
	for row := range devices {
		parent := m.topology.ParentRow(row)
		if !named[row] && parent >= 0 && devices[row].Entity.Kind == gpu.KindGPUInstance {
			uses[row] = uses[parent]
		}
	}
	return uses
}
