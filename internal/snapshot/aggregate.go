package snapshot

import (
	"slices"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A spread is the minimum, maximum and sum of the samples of one cell in one Read.
type spread struct {
	min, max gpu.Value
	sum      float64
	count    int
	last     *gpu.Sample // of those of a trail
}

// add adds a sample. Integers are compared as integers, so that they stay exact.
func (s *spread) add(v gpu.Value) {
	n, ok := v.Number()
	if !ok {
		return
	}
	if s.count == 0 || less(v, s.min) {
		s.min = v
	}
	if s.count == 0 || less(s.max, v) {
		s.max = v
	}
	s.sum += n
	s.count++
}

func less(a, b gpu.Value) bool {
	x, whole := a.Int64()
	y, too := b.Int64()
	if whole && too {
		return x < y
	}
	p, _ := a.Number()
	q, _ := b.Number()
	return p < q
}

// value returns the aggregate, absent where there was no sample.
func (s *spread) value(a gpu.Aggregate) gpu.Value {
	switch {
	case s.count == 0:
		return gpu.Value{}
	case a == gpu.Min:
		return s.min
	case a == gpu.Max:
		return s.max
	default:
		return gpu.Float(s.sum / float64(s.count))
	}
}

// spreadAt returns, per field, the index of its first row among the spreads, -1 for a field of
// which no counter shows more than the newest sample, and the number of spreads.
func spreadAt(plan *gpu.Plan, rows int) (at []int, size int) {
	at = slices.Repeat([]int{-1}, len(plan.Fields))
	for i := range plan.Counters {
		if c := &plan.Counters[i]; c.Aggregate != gpu.Newest && at[c.Field] < 0 {
			at[c.Field] = size
			size += rows
		}
	}
	return at, size
}

// applyTrails makes the spreads: of the trails, or of the newest sample where none came since the
// previous Read. Where the newest was dropped, the one before it is served.
func (tab *Builder) applyTrails(trails []gpu.Sample, now time.Time) {
	for i := range trails {
		s := &trails[i]
		first := tab.spreadAt[s.Field]
		if first < 0 || !tab.serves(s) {
			continue
		}
		if why := tab.whyDropped(s, now); why == "" {
			x := &tab.spreads[first+s.Row]
			x.add(s.Value)
			x.last = s
		} else if s.Time != tab.cell(s.Field, s.Row).time { // the newest is counted already
			tab.drop(why)
		}
	}
	for f, first := range tab.spreadAt {
		if first < 0 {
			continue
		}
		for row := range tab.topology.Devices {
			c, x := tab.cell(f, row), &tab.spreads[first+row]
			if x.count == 0 {
				x.add(c.value)
			} else if c.value.IsAbsent() {
				tab.serve(x.last)
			}
		}
	}
}

// counterValue returns the value of a counter in a row, before its unit is converted.
func (tab *Builder) counterValue(c *gpu.Counter, row int) gpu.Value {
	if first := tab.spreadAt[c.Field]; first >= 0 && c.Aggregate != gpu.Newest {
		return tab.spreads[first+row].value(c.Aggregate)
	}
	return tab.cell(c.Field, row).value
}
