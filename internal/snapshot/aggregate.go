package snapshot

import "github.com/gpu-telemetry/dcgm-exporter/internal/gpu"

// A spread is what the samples of one field of one entity were in one Read.
type spread struct {
	min, max gpu.Value
	sum      float64
	count    int
}

// add lets a sample count. Integers are compared as integers, so that they
// stay exact.
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

// spreadAt returns the place of the first row of a field among the spreads; -1
// for fields of which the newest sample is enough.
func spreadAt(plan *gpu.Plan, rows int) (at []int, size int) {
	at = make([]int, len(plan.Fields))
	for f := range plan.Fields {
		if at[f] = -1; plan.Fields[f].Burst {
			at[f] = size
			size += rows
		}
	}
	return at, size
}

// applyTrails lets the newest samples of burst fields count for the health of their
// entities: the others are older by design.
func (tab *Builder) applyTrails() {
	for f, first := range tab.spreadAt {
		if first < 0 {
			continue
		}
		for row := range tab.topology.Devices {
			if c := tab.cell(f, row); !c.value.IsAbsent() {
				tab.set(f, row, c.value, c.time)
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
