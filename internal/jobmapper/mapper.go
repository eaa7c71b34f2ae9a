package jobmapper

import (
	"context"
	"log/slog"
	"strconv"

	"golang.org/x/sync/semaphore"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Options configure a Mapper.
type Options struct {
	// Dir is the folder of the job files; it need not exist yet. Required.
	Dir string
	// Metrics are the Mapper's own series, which one that takes its place goes on with. Required.
	Metrics *Metrics
	// Log gets a line when a file begins or ceases to be unreadable. Nil discards.
	Log *slog.Logger
}

// A Mapper is an Attributor over a folder of job files. Its methods may be called from any
// goroutine; they look at the folder one at a time.
type Mapper struct {
	folder  folder
	log     *slog.Logger
	metrics *Metrics

	turn *semaphore.Weighted // of one: it guards what follows

	failing  map[string]bool // files, by name
	topology *gpu.Topology
	rows     map[string][]int // by the name of the file that speaks of them
	owners   *gpu.Owners      // nil before the first
}

// New returns a Mapper. It reads nothing yet.
func New(opt Options) *Mapper {
	m := &Mapper{
		folder: folder{dir: opt.Dir, pause: sleep}, log: opt.Log, metrics: opt.Metrics,
		turn: semaphore.NewWeighted(1), failing: map[string]bool{},
	}
	if m.log == nil {
		m.log = slog.New(slog.DiscardHandler)
	}
	return m
}

// Name returns "hpc".
func (m *Mapper) Name() string { return "hpc" }

// Attribute returns the jobs on the GPUs and GPU instances of t, by the label hpc_job. An instance
// without a file of its own belongs to the jobs of its GPU. The error wraps gpu.ErrUnavailable where
// the folder is missing, and gpu.ErrPermission where it may not be read; a single file's failure is
// no error.
func (m *Mapper) Attribute(ctx context.Context, t *gpu.Topology) (*gpu.Owners, error) {
	if err := m.turn.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer m.turn.Release(1)
	if t != m.topology {
		m.topology, m.rows, m.owners = t, rowsByName(t), m.owners.Renewed(&gpu.Owners{})
	}
	found, err := m.folder.scan(ctx, func(name string) bool { return m.rows[name] != nil })
	if err != nil {
		return nil, err
	}
	m.report(found)

	uses := make([]gpu.Use, len(t.Devices))
	spared := 0
	for name, rows := range m.rows {
		file, ok := found.files[name]
		if !ok {
			continue
		}
		// More than one are left of more than one, so that who is alone is clear.
		jobs := file.jobs[:min(len(file.jobs), gpu.MaxOwners)]
		spared += len(file.jobs) - len(jobs)
		list := owners(jobs)
		for _, row := range rows {
			uses[row] = gpu.Use{Owners: list, Incomplete: file.err != nil}
		}
	}
	m.inherit(t, found, uses)
	m.metrics.spared.Set(float64(spared))
	labels := gpu.ExclusiveLabels(t, uses, func(o *gpu.Owner) []gpu.Label { return o.Labels })
	m.owners = m.owners.Renewed(&gpu.Owners{Labels: labels, Uses: uses})
	return m.owners, nil
}

// inherit gives the instances without a file the jobs of their GPU.
func (m *Mapper) inherit(t *gpu.Topology, found found, uses []gpu.Use) {
	for row := range t.Devices {
		d := &t.Devices[row]
		if d.Entity.Kind != gpu.KindGPUInstance {
			continue
		}
		if _, own := found.files[fileName(d)]; own {
			continue
		}
		if parent := t.ParentRow(row); parent >= 0 {
			uses[row] = uses[parent]
		}
	}
}

// report counts what went wrong with the files, and logs what is new.
func (m *Mapper) report(found found) {
	dropped := 0
	for name, file := range found.files {
		dropped += file.dropped
		if file.err == nil {
			if m.failing[name] {
				m.log.Info("Job file can be read again", "file", name)
				delete(m.failing, name)
			}
			continue
		}
		m.metrics.failed.WithLabelValues(reasonOf(file.err)).Inc()
		if !m.failing[name] {
			m.log.Warn("Job file cannot be read; its GPU carries no job", "file", name, "error", file.err)
			m.failing[name] = true
		}
	}
	m.metrics.dropped.Set(float64(dropped))
	m.metrics.unknown.Set(float64(found.unknown))
	for name := range m.failing {
		if _, there := found.files[name]; !there {
			delete(m.failing, name)
		}
	}
}

// rowsByName returns the rows that each possible file speaks of.
func rowsByName(t *gpu.Topology) map[string][]int {
	rows := map[string][]int{}
	for row := range t.Devices {
		if name := fileName(&t.Devices[row]); name != "" {
			rows[name] = append(rows[name], row)
		}
	}
	return rows
}

// fileName returns the name of the file that speaks of d, "" where none does.
func fileName(d *gpu.Device) string {
	name := strconv.FormatUint(uint64(d.GPU), 10)
	switch d.Entity.Kind {
	case gpu.KindGPU:
		return name
	case gpu.KindGPUInstance:
		return name + "." + strconv.FormatUint(uint64(d.InstanceID), 10)
	default:
		return ""
	}
}

func owners(jobs []string) []gpu.Owner {
	if len(jobs) == 0 {
		return nil
	}
	list := make([]gpu.Owner, len(jobs))
	for i, job := range jobs {
		list[i].Labels = []gpu.Label{{Name: "hpc_job", Value: job}}
	}
	return list
}
