package sim

import "slices"

// A throttle is a period in which clock event reasons of the scenario are active on a GPU.
type throttle struct {
	from, to int64
	mask     int64
}

// scripted returns the scenario's reasons at a time.
func (g *worldGPU) scripted(t int64) (mask int64) {
	for _, x := range g.throttles {
		if x.from <= t && t < x.to {
			mask |= x.mask
		}
	}
	return mask
}

// throttledFor returns for how many nanoseconds, until a time, at least one of the scenario's reasons in mask was
// active.
func (g *worldGPU) throttledFor(mask, t int64) (sum int64) {
	end := int64(0)
	for _, x := range g.throttles {
		if x.mask&mask == 0 || x.from >= t {
			continue
		}
		from, to := max(x.from, end), min(x.to, t)
		if to > from {
			sum += to - from
			end = to
		}
	}
	return sum
}

// reasonsAt returns the reasons of the model and the scenario at a time. The time must not be before the oldest
// recorded change.
func (g *worldGPU) reasonsAt(t int64) int64 {
	mask := g.scripted(t)
	for _, r := range slices.Backward(g.reasons) {
		if r.at <= t {
			return mask | r.mask
		}
	}
	return mask
}

// reasonEdges returns the times of changes between two times, in order.
func (g *worldGPU) reasonEdges(from, to int64) []int64 {
	var edges []int64
	note := func(t int64) {
		if t > from && t < to {
			edges = append(edges, t)
		}
	}
	for _, r := range g.reasons {
		note(r.at)
	}
	for _, x := range g.throttles {
		note(x.from)
		note(x.to)
	}
	slices.Sort(edges)
	return slices.Compact(edges)
}

// slowed returns the fraction of its clocks that a GPU keeps while the scenario's reasons are active. Hardware reasons
// halve the clocks; driver reasons reduce them less.
func (g *worldGPU) slowed(t int64) float64 {
	const hardware = 0x08 | 0x40 | 0x80
	switch mask := g.scripted(t); {
	case mask&hardware != 0:
		return 0.5
	case mask != 0:
		return 0.8
	default:
		return 1
	}
}
