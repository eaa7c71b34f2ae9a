package snapshot

import (
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A broken profiler keeps returning zeros that look fresh and plausible. They are dropped if the utilization, which is
// measured separately, shows that the GPU works.
const (
	busyPercent    = 90 // lowest utilization that contradicts a 0
	contradictions = 3  // number of contradictions in a row after which zeros are dropped
	// lookback is the longest period over which the driver averages utilization. If the profiling window is shorter,
	// work may have ended before it while utilization is still high.
	lookback = time.Second
)

// doubts tracks the profiling fields of GPUs that report utilization. Partitioned GPUs do not.
type doubts struct {
	rows   []int // rows of the GPUs
	proofs []int // plan indexes of the profiling fields that are above 0 whenever the GPU works
	others []int // plan indexes of the other profiling fields
	of     map[*cell]doubt
}

// A doubt tracks one field of one GPU.
type doubt struct {
	times int   // number of contradictions in a row
	at    int64 // time of the newest contradicting sample
}

func newDoubts(t *gpu.Topology, plan *gpu.Plan) doubts {
	d := doubts{of: map[*cell]doubt{}}
	var rows []int
	for i := range plan.Fields {
		switch f := &plan.Fields[i]; {
		case f.ID == catalog.GPUUtil:
			for row := range t.Devices {
				if t.Serves(f, row) {
					rows = append(rows, row)
				}
			}
		case !f.Profiling:
		case catalog.ImpliesActivity(f.ID) && plan.IntervalOf(i) >= max(plan.Interval, lookback):
			d.proofs = append(d.proofs, i)
		default:
			d.others = append(d.others, i)
		}
	}
	if !plan.KeepContradicted && len(d.proofs) > 0 {
		d.rows = rows
	}
	return d
}

// contradict drops zeros that utilization contradicts. If every proof is contradicted, the other profiling fields of
// the GPU are dropped too, because the same profiler measures them.
func (b *Builder) contradict() {
	d := &b.doubts
	b.Contradicted = nil
	for _, row := range d.rows {
		use := b.cycle.cell(catalog.GPUUtil, row)
		percent, ok := use.value.Number()
		busy, refuted := ok && percent >= busyPercent, 0
		for _, field := range d.proofs {
			c := b.cell(field, row)
			x := d.of[c]
			if n, read := c.value.Number(); !busy || read && n != 0 {
				x = doubt{}
			} else if read {
				x.note(c.at, use.at, int64(b.cycle.Plan.IntervalOf(field)))
			}
			if d.of[c] = x; x.times < contradictions {
				continue
			}
			refuted++
			b.refute(c)
			c.missing = DroppedContradicted // also while there is no sample, for example after a new watch
		}
		if refuted > 0 {
			b.Contradicted = append(b.Contradicted, row)
		}
		for _, field := range d.others {
			if refuted == len(d.proofs) {
				b.refute(b.cell(field, row))
			}
		}
	}
}

// note records a 0 sampled at time at, with utilization sampled at busyAt. Utilization must not be older than the
// window. Windows must be consecutive, because work may have been in a window that no Read saw.
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
func (b *Builder) refute(c *cell) {
	if n, ok := c.value.Number(); ok && n == 0 {
		c.value = gpu.Value{}
		b.drop(c, DroppedContradicted)
	}
}
