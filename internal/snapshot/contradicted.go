package snapshot

import (
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A profiler that broke goes on with zeros that are fresh and plausible. Utilization comes another way: where it is at
// busyPercent and a field that proves work is 0, contradictions times in a row, the zeros are not served.
const (
	busyPercent    = 90
	contradictions = 3
	// lookback is the longest period that the driver averages utilization over. Within a shorter window of profiling
	// work may have ended, and utilization not know it yet.
	lookback = time.Second
)

// doubts are about the profiling fields of GPUs that have utilization: under MIG there is none.
type doubts struct {
	utilization int     // index in the plan
	rows        []int   // of the GPUs
	proofs      []proof // the fields that prove work
	others      []int   // further profiling fields
	of          []doubt // per row, then per proof
}

// A proof is a field of a plan that proves work.
type proof struct {
	field  int
	window int64 // that a sample covers, in nanoseconds
}

// A doubt is about one field of one GPU.
type doubt struct {
	times int   // in a row
	at    int64 // of the newest sample that counts
}

func newDoubts(t *gpu.Topology, plan *gpu.Plan) doubts {
	d := doubts{utilization: -1}
	for i := range plan.Fields {
		switch f := &plan.Fields[i]; {
		case f.ID == catalog.GPUUtil:
			d.utilization = i
		case !f.Profiling:
		case catalog.ProvesWork(f.ID) && plan.IntervalOf(i) >= max(plan.Interval, lookback):
			d.proofs = append(d.proofs, proof{i, int64(plan.IntervalOf(i))})
		default:
			d.others = append(d.others, i)
		}
	}
	if plan.AsRead || d.utilization < 0 || len(d.proofs) == 0 {
		return doubts{}
	}
	for row := range t.Devices {
		if t.Serves(&plan.Fields[d.utilization], row) {
			d.rows = append(d.rows, row)
		}
	}
	d.of = make([]doubt, len(d.rows)*len(d.proofs))
	return d
}

// contradict drops the zeros that utilization contradicts. Where no field proves work, those of the GPU's other
// profiling fields go, too: one profiler counts them all.
func (tab *Builder) contradict() {
	d := &tab.doubts
	tab.Contradicted = nil
	for i, row := range d.rows {
		use := tab.cell(d.utilization, row)
		percent, ok := use.value.Number()
		busy, refuted := ok && percent >= busyPercent, 0
		for j, p := range d.proofs {
			x, c := &d.of[i*len(d.proofs)+j], tab.cell(p.field, row)
			switch n, read := c.value.Number(); {
			case !busy || read && n != 0:
				*x = doubt{}
			case read:
				x.note(c.at, use.at, p.window)
			}
			if x.times >= contradictions {
				refuted++
				tab.refute(c)
				c.missing = DroppedContradicted // also while there is no sample, as after a new watch
			}
		}
		if refuted == 0 {
			continue
		}
		tab.Contradicted = append(tab.Contradicted, row)
		if refuted < len(d.proofs) {
			continue
		}
		for _, field := range d.others {
			tab.refute(tab.cell(field, row))
		}
	}
}

// note counts a 0 of the time at beside utilization of the time busyAt. The utilization must not be of before the
// window, and the windows must follow each other: work may have been in one that no Read saw.
func (x *doubt) note(at, busyAt, window int64) {
	if at <= x.at || busyAt <= at-window {
		return
	}
	if x.times < contradictions && at-x.at > window*3/2 {
		x.times = 0
	}
	*x = doubt{times: x.times + 1, at: at}
}

// refute drops the value of a cell if it is 0.
func (tab *Builder) refute(c *cell) {
	if n, ok := c.value.Number(); ok && n == 0 {
		c.value, c.missing = gpu.Value{}, DroppedContradicted
		tab.InDoubt++
	}
}
