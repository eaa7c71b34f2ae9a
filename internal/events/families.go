package events

import (
	"strconv"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

// made returns the names of the families that a Log makes.
func made() []string {
	return []string{
		catalog.XIDErrorsCount, catalog.XIDErrorsTotal, catalog.XIDLastSeen,
		catalog.ClockEventsCount, catalog.ClockEventsTotal, catalog.ClockEventSeconds,
	}
}

// families appends the families that the plan requests: the windows first. In steady state they
// reuse the memory of the cycle before.
func (l *Log) families(list []gpu.Family, c *snapshot.Cycle) []gpu.Family {
	for _, windows := range []bool{true, false} {
		for i := range c.Plan.Derived {
			d := &c.Plan.Derived[i]
			if d.Field < 0 {
				continue
			}
			appendRow := l.totalsOf(d.Name, c)
			if windows {
				appendRow = l.windowOf(d, c)
			}
			if appendRow == nil {
				continue
			}
			series := l.out[d.Name][:0]
			for row := range l.ledger.rows {
				series = appendRow(series, row)
			}
			l.out[d.Name] = series
			list = append(list, gpu.Family{Name: d.Name, Type: d.Type, Help: d.Help, Series: series})
		}
	}
	return list
}

// totalsOf returns what appends a row's series of a family of totals, which GPUs alone have; nil
// for another family.
func (l *Log) totalsOf(name string, c *snapshot.Cycle) func([]gpu.Series, int) []gpu.Series {
	var of func([]gpu.Series, int, *account) []gpu.Series
	switch name {
	case catalog.XIDErrorsTotal:
		of = func(s []gpu.Series, row int, a *account) []gpu.Series {
			return a.owners.totals(s, row, !l.ledger.unreported[row])
		}
	case catalog.XIDLastSeen:
		of = func(s []gpu.Series, row int, a *account) []gpu.Series { return a.owners.lastSeen(s, row) }
	case catalog.ClockEventsTotal:
		of = func(s []gpu.Series, row int, a *account) []gpu.Series { return a.reasons.totals(s, row) }
	case catalog.ClockEventSeconds:
		of = func(s []gpu.Series, row int, a *account) []gpu.Series { return a.reasons.seconds(s, row) }
	default:
		return nil
	}
	return func(s []gpu.Series, row int) []gpu.Series {
		if c.Topology.Devices[row].Entity.Kind != gpu.KindGPU {
			return s
		}
		return of(s, row, l.ledger.rows[row])
	}
}

// windowOf returns what appends a row's series of a window; nil for another family.
func (l *Log) windowOf(d *gpu.Derived, c *snapshot.Cycle) func([]gpu.Series, int) []gpu.Series {
	var window time.Duration
	var events func(*account) []event
	var labels func(int64, func(name, value string))
	switch d.Name {
	case catalog.XIDErrorsCount:
		window, labels = l.ledger.window, xidLabel
		events = func(a *account) []event { return a.xids }
	case catalog.ClockEventsCount:
		window, labels = l.reasonsWindow, clockLabels
		events = func(a *account) []event { return a.reasons.samples }
	default:
		return nil
	}
	levels := c.Plan.Fields[d.Field].Levels
	size := gpu.Label{Name: "window_size_in_ms", Value: strconv.FormatInt(window.Milliseconds(), 10)}
	return func(s []gpu.Series, row int) []gpu.Series {
		if !levels.Has(c.Topology.Devices[row].Entity.Kind) {
			return s
		}
		return countWindow(s, row, events(l.ledger.rows[row]), l.clock.now-int64(window), size, labels)
	}
}

// xidLabel and clockLabels call yield with the label value of each thing that an event counts for.
func xidLabel(value int64, yield func(name, value string)) {
	yield("xid", strconv.FormatInt(value, 10))
}

func clockLabels(value int64, yield func(name, value string)) {
	for event := range catalog.ClockEvents(value) {
		yield("clock_event", event.Name)
	}
}

// countWindow appends how often each label value occurred after a time; a 0 without that label
// where nothing did.
func countWindow(series []gpu.Series, row int, events []event, after int64, size gpu.Label, labels func(int64, func(string, string))) []gpu.Series {
	start := len(series)
	for _, e := range events {
		if e.at <= after {
			continue
		}
		labels(e.value, func(name, value string) {
			for i := start; i < len(series); i++ {
				if series[i].Labels[1].Value == value {
					n, _ := series[i].Value.Int64()
					series[i].Value = gpu.Int(n + 1)
					return
				}
			}
			series = append(series, gpu.Series{
				Row: row, Labels: []gpu.Label{size, {Name: name, Value: value}}, Value: gpu.Int(1),
			})
		})
	}
	if len(series) == start {
		series = append(series, gpu.Series{Row: row, Labels: []gpu.Label{size}, Value: gpu.Int(0)})
	}
	return series
}
