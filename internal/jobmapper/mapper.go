package jobmapper

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"

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

// Mapper is an Attributor that reads a folder of job files. Its methods are safe for concurrent use.
type Mapper struct {
	folder  folder
	log     *slog.Logger
	metrics *Metrics

	mu       sync.Mutex      // guards the fields below
	failing  map[string]bool // files by name
	topology *gpu.Topology
	names    names
	owners   *gpu.Owners // nil before the first answer
}

// New returns a Mapper without reading the folder.
func New(opt Options) *Mapper {
	return &Mapper{
		folder: folder{dir: opt.Dir, pause: sleep}, log: cmp.Or(opt.Log, slog.New(slog.DiscardHandler)),
		metrics: opt.Metrics, failing: map[string]bool{},
	}
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
		m.topology, m.names, m.owners = t, newNames(t), &gpu.Owners{}
	}
	unknown, err := m.folder.scan(ctx, m.names)
	if err != nil {
		return nil, err
	}
	m.metrics.unknown.Set(float64(len(unknown)))
	m.report()

	said := m.usesOf()
	uses := make([]gpu.Use, len(t.Devices))
	for row := range t.Devices {
		use, own := said[row]
		if parent := t.ParentRow(row); !own && parent >= 0 && t.Devices[row].Entity.Kind == gpu.KindGPUInstance {
			use = said[parent]
		}
		uses[row] = use
	}
	labels := attribution.ExclusiveLabels(t, uses, func(o *gpu.Owner) []gpu.Label { return o.Labels })
	m.owners = attribution.ReuseIfEqual(m.owners, &gpu.Owners{Labels: labels, Uses: uses})
	return m.owners, nil
}

// report counts the failures of files and logs new ones.
func (m *Mapper) report() {
	dropped := 0
	for name, file := range m.folder.files {
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
			m.log.Warn("Job file cannot be read; its GPU has no job label", "file", name, "error", file.err)
			m.failing[name] = true
		}
	}
	m.metrics.dropped.Set(float64(dropped))
	maps.DeleteFunc(m.failing, func(name string, _ bool) bool { _, there := m.folder.files[name]; return !there })
}

// usesOf returns the jobs of each row with a file. A row can have several files, because its name has several forms;
// then it has the jobs of all of them.
func (m *Mapper) usesOf() map[int]gpu.Use {
	jobs, uses := map[int][]string{}, map[int]gpu.Use{}
	for _, name := range slices.Sorted(maps.Keys(m.folder.files)) {
		file := m.folder.files[name]
		row, _ := m.names.row(name)
		use := uses[row]
		use.Incomplete = use.Incomplete || file.err != nil
		uses[row] = use
		for _, job := range file.jobs {
			if !slices.Contains(jobs[row], job) {
				jobs[row] = append(jobs[row], job)
			}
		}
	}
	dropped := 0
	for row, all := range jobs {
		// Keep all jobs, so that it is clear whether one has the device exclusively.
		kept := all[:min(len(all), attribution.MaxOwners)]
		dropped += len(all) - len(kept)
		use := uses[row]
		use.Owners = owners(kept)
		uses[row] = use
	}
	m.metrics.droppedJobs.Set(float64(dropped))
	return uses
}

// Unmatched returns the names of files that match no entity of t, sorted and without hidden files. It returns the
// errors of Attribute.
func (m *Mapper) Unmatched(ctx context.Context, t *gpu.Topology) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.folder.scan(ctx, newNames(t))
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
