package sim

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

// parseReasons reads the clock-event reasons of a fault. Those that the model itself leads to are
// not among them: both at once would hold twice as long.
func (f *fault) parseReasons(s *faultSpec) error {
	for _, name := range s.Reasons {
		var names []string
		found := false
		for e := range catalog.ClockEvents(^(reasonIdle | reasonPowerCap)) {
			if names = append(names, e.Name); e.Name == name {
				f.reasons |= e.Mask
				found = true
			}
		}
		if !found {
			return fmt.Errorf("reason %q of a throttle, %s", name, text.Suggest(name, names))
		}
	}
	return nil
}

// A throttle holds the clocks of a GPU down for reasons of the scenario.
type throttle struct {
	from, to int64
	mask     int64
}

// throttles returns those of every GPU of a node, in the order of their time.
func (s *Scenario) throttles(gpus int, start int64) [][]throttle {
	list := make([][]throttle, gpus)
	for i := range s.faults {
		f := &s.faults[i]
		if f.kind != faultThrottle {
			continue
		}
		to := int64(forever)
		if f.until != forever {
			to = start + int64(f.until)
		}
		for _, ref := range f.devices {
			list[ref.id] = append(list[ref.id], throttle{start + int64(f.at), to, f.reasons})
		}
	}
	for i := range list {
		slices.SortStableFunc(list[i], func(a, b throttle) int { return cmp.Compare(a.from, b.from) })
	}
	return list
}

// scripted returns the reasons that the scenario lets hold at a time.
func (g *worldGPU) scripted(t int64) (mask int64) {
	for _, x := range g.throttles {
		if x.from <= t && t < x.to {
			mask |= x.mask
		}
	}
	return mask
}

// throttledFor returns for how many nanoseconds one of the scenario's reasons in mask has held
// until a time.
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

// reasonsAt returns the reasons of the model and of the scenario at a time that is not before the
// oldest change that is remembered.
func (g *worldGPU) reasonsAt(t int64) int64 {
	mask := g.scripted(t)
	for i := len(g.reasons) - 1; i >= 0; i-- {
		if g.reasons[i].at <= t {
			return mask | g.reasons[i].mask
		}
	}
	return mask
}

// reasonEdges returns the times between two at which reasons began or ceased to hold, in order.
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

// slowed is the share of its clocks that a GPU keeps under the scenario's reasons: the hardware
// halves them, the driver goes down in smaller steps.
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
