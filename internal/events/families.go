package events

import (
	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// families appends the families that the plan asks for. In steady state they
// reuse the memory of the cycle before.
func (l *tally) families(list []gpu.Family) []gpu.Family {
	for i := range l.plan.Derived {
		d := &l.plan.Derived[i]
		if !counts(d) {
			continue
		}
		series := l.out[d.Name][:0]
		for row, g := range l.rows {
			if g == nil {
				continue
			}
			switch d.Name {
			case catalog.XIDErrorsTotal:
				series = g.totals(series, row, !l.dark[row])
			case catalog.XIDLastSeen:
				series = g.lastSeen(series, row)
			case catalog.ClockEventsTotal:
				series = g.clock.totals(series, row)
			default:
				series = g.clock.seconds(series, row)
			}
		}
		l.out[d.Name] = series
		list = append(list, gpu.Family{Name: d.Name, Type: d.Type, Help: d.Help, Series: series})
	}
	return list
}

// totals appends the counts of a GPU's XIDs. Those that alerts name are there
// for the present owner before they occur, if anybody would tell.
func (g *gpuEvents) totals(series []gpu.Series, row int, told bool) []gpu.Series {
	present := g.present()
	for i := range g.sets {
		s := &g.sets[i]
		if told && s.key == present {
			for _, code := range catalog.AlertXIDs() {
				s.of(code)
			}
		}
		for j := range s.counts {
			c := &s.counts[j]
			series = append(series, gpu.Series{Row: row, Labels: c.labels, Own: true, Owner: s.owner, Value: gpu.Int(c.count)})
		}
	}
	return series
}

func (g *gpuEvents) lastSeen(series []gpu.Series, row int) []gpu.Series {
	for i := range g.sets {
		s := &g.sets[i]
		for j := range s.counts {
			if c := &s.counts[j]; c.last > 0 {
				series = append(series, gpu.Series{Row: row, Labels: c.labels, Own: true, Owner: s.owner, Value: gpu.Float(float64(c.last) / 1e9)})
			}
		}
	}
	return series
}

// totals and seconds append every reason, once the GPU has told any.
func (c *clockEvents) totals(series []gpu.Series, row int) []gpu.Series {
	for i := range c.events {
		e := &c.events[i]
		series = append(series, gpu.Series{Row: row, Labels: e.labels, Own: true, Value: gpu.Int(e.count)})
	}
	return series
}

func (c *clockEvents) seconds(series []gpu.Series, row int) []gpu.Series {
	for i := range c.events {
		e := &c.events[i]
		series = append(series, gpu.Series{Row: row, Labels: e.labels, Own: true, Value: gpu.Float(float64(e.held) / 1e9)})
	}
	return series
}
