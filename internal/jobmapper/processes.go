package jobmapper

import (
	"slices"
	"sync"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

// JobOf returns the id of the batch job that a process of the host belongs to; "" for one that is
// in none. The error wraps one of gpu's if the jobs of processes cannot be found here.
type JobOf func(pid uint32) (job string, err error)

// Processes are the jobs of the processes that the latest collection found on each GPU and GPU
// instance, for a Mapper. It is a snapshot.Deriver that derives no family: as such its methods are
// called on the Loop's goroutine.
type Processes struct {
	jobOf JobOf

	requested []bool // per row: of the next Read; the Loop's

	mu       sync.Mutex
	topology *gpu.Topology // that the latest collection was of; nil before the first
	latest   []work        // per row; never written to once it is here
}

// A work is what the processes of one row say.
type work struct {
	jobs []string // sorted, each once
	err  error    // why not all of them are known
}

// NewProcesses returns Processes that have seen none.
func NewProcesses(jobOf JobOf) *Processes { return &Processes{jobOf: jobOf} }

// Bind implements snapshot.Deriver.
func (p *Processes) Bind(t *gpu.Topology, _ *gpu.Plan) {
	p.requested = make([]bool, len(t.Devices))
	for row := range t.Devices {
		kind := t.Devices[row].Entity.Kind
		p.requested[row] = kind == gpu.KindGPU || kind == gpu.KindGPUInstance
	}
	for row := range t.Devices {
		if t.Devices[row].Entity.Kind == gpu.KindGPUInstance {
			if parent := t.ParentRow(row); parent >= 0 {
				p.requested[parent] = false // its processes are its instances'
			}
		}
	}
}

// Prepare implements snapshot.Deriver: it requests the processes of every row that can have a job,
// and of those that another Deriver requested. That one's slice stays as it is.
func (p *Processes) Prepare(b *gpu.Batch) {
	requested := p.requested
	for row, isRequested := range b.RequestProcesses {
		if isRequested && row < len(requested) && !requested[row] {
			requested = slices.Clone(requested)
			requested[row] = true
		}
	}
	b.RequestProcesses = requested
}

// Derive implements snapshot.Deriver: it notes the jobs of a served cycle's processes.
func (p *Processes) Derive(list []gpu.Family, c *snapshot.Cycle) []gpu.Family {
	if c.Kind != snapshot.Served {
		return list
	}
	rows := make([]work, len(p.requested))
	for i := range c.Batch.Faults {
		f := &c.Batch.Faults[i]
		for row := range rows {
			if f.Field == gpu.FieldProcesses && p.requested[row] && (f.Row == row || f.Row == gpu.AllRows) {
				rows[row].err = f.Err
			}
		}
	}
	for i := range c.Batch.Processes {
		x := &c.Batch.Processes[i]
		if x.Row >= 0 && x.Row < len(rows) && p.requested[x.Row] && c.Down(x.Row) == nil {
			p.add(&rows[x.Row], x.PID)
		}
	}
	for row := range rows {
		slices.Sort(rows[row].jobs)
		rows[row].jobs = slices.Compact(rows[row].jobs)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.topology, p.latest = c.Topology, rows
	return list
}

func (p *Processes) add(w *work, pid uint32) {
	if w.err != nil {
		return
	}
	job, err := p.jobOf(pid)
	switch {
	case err != nil:
		w.err = err
	case job != "":
		w.jobs = append(w.jobs, job)
	}
}

// Unavailable implements snapshot.Deriver: the Mapper's own series say what is not known.
func (p *Processes) Unavailable(list []gpu.FieldHealth, _ *snapshot.Cycle) []gpu.FieldHealth {
	return list
}

// of returns what the latest collection of t said, per row; nil before the first.
func (p *Processes) of(t *gpu.Topology) []work {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t != p.topology {
		return nil
	}
	return p.latest
}

// fill gives the rows that no file speaks of the jobs of their processes. It returns how many jobs
// were too many.
func (m *Mapper) fill(t *gpu.Topology, files map[string]file, uses []gpu.Use) (spared int) {
	unknown := map[string]int{}
	for row, w := range m.processes.of(t) {
		if covered(t, files, row) {
			continue
		}
		if w.err != nil {
			m.doubt(unknown, w.err)
			continue
		}
		jobs := w.jobs[:min(len(w.jobs), gpu.MaxOwners)]
		spared += len(w.jobs) - len(jobs)
		uses[row].Owners = owners(jobs)
	}
	for reason := range m.unknown {
		if unknown[reason] == 0 {
			m.log.Info("Jobs of processes are known again", "reason", reason)
			m.metrics.unknownJobs.WithLabelValues(reason).Set(0)
		}
	}
	for reason, n := range unknown {
		m.metrics.unknownJobs.WithLabelValues(reason).Set(float64(n))
	}
	m.unknown = unknown
	return spared
}

// doubt counts a row whose jobs are not known, and logs a reason that is new.
func (m *Mapper) doubt(unknown map[string]int, err error) {
	reason := gpu.Reason(err)
	if m.unknown[reason] == 0 && unknown[reason] == 0 {
		m.log.Warn("Jobs of processes are not known; their GPUs carry none", "reason", reason, "error", err)
	}
	unknown[reason]++
}

// covered reports whether a file speaks of a row: its own, or that of what it is part of.
func covered(t *gpu.Topology, files map[string]file, row int) bool {
	for ; row >= 0; row = t.ParentRow(row) {
		if _, ok := files[fileName(&t.Devices[row])]; ok {
			return true
		}
	}
	return false
}
