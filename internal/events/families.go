package events

import (
	"strconv"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

// isMade reports whether a Log makes the family of that name.
func isMade(name string) bool {
	switch name {
	case catalog.XIDErrorsTotal, catalog.XIDLastSeen, catalog.ClockEventsTotal, catalog.ClockEventSeconds:
		return true
	default:
		return isWindow(name)
	}
}

func isWindow(name string) bool {
	return name == catalog.XIDErrorsCount || name == catalog.ClockEventsCount
}

// families appends the families that the plan requests: the gauge, and the windows before the
// totals.
func (l *Log) families(list []gpu.Family, c *snapshot.Cycle) []gpu.Family {
	for i := range c.Plan.Counters {
		counter := &c.Plan.Counters[i]
		if counter.Field == l.xids.field && counter.Type != gpu.MetricLabel {
			list = append(list, gpu.Family{Name: counter.Name, Type: counter.Type, Help: counter.Help, OfGPUs: true, Series: l.gauge(c)})
		}
	}
	for _, windows := range []bool{true, false} {
		for i := range c.Plan.Derived {
			d := &c.Plan.Derived[i]
			if d.Field < 0 || !isMade(d.Name) || isWindow(d.Name) != windows {
				continue
			}
			f := gpu.Family{Name: d.Name, Type: d.Type, Help: d.Help, OfGPUs: windows}
			levels := gpu.KindsOf(gpu.KindGPU) // totals are of GPUs alone
			if windows {
				levels = c.Plan.Fields[d.Field].Levels
			}
			for row := range l.xids.rows {
				if levels.Has(c.Topology.Devices[row].Entity.Kind) {
					f.Series = l.appendRow(f.Series, d.Name, row)
				}
			}
			list = append(list, f)
		}
	}
	return list
}

// gauge returns the last XID of each GPU for as long as it lives, in the words of the reference, and
// 0 where XIDs are read and there was none.
func (l *Log) gauge(c *snapshot.Cycle) []gpu.Series {
	var series []gpu.Series
	field := l.xids.field
	for row, e := range l.xids.rows {
		if !c.Topology.Serves(&c.Plan.Fields[field], row) || c.Missing(field, row) != "" || c.Down(row) != nil {
			continue
		}
		code := e.last.value
		labels := []gpu.Label{
			{Name: "err_code", Value: strconv.FormatInt(code, 10)}, {Name: "err_msg", Value: catalog.XIDMessage(code)},
		}
		series = append(series, gpu.Series{Row: row, Labels: labels, Value: gpu.Int(code)})
	}
	return series
}

// appendRow appends the series that a row has of a family.
func (l *Log) appendRow(series []gpu.Series, family string, row int) []gpu.Series {
	e := l.xids.rows[row]
	switch family {
	case catalog.XIDErrorsCount:
		return l.appendWindow(series, row, e.window, l.xids.window, func(code int64, yield func(gpu.Label)) {
			yield(gpu.Label{Name: "xid", Value: strconv.FormatInt(code, 10)})
		})
	case catalog.ClockEventsCount:
		return l.appendWindow(series, row, e.reasons.samples, l.reasonsWindow, func(mask int64, yield func(gpu.Label)) {
			for event := range catalog.ClockEvents(mask) {
				yield(gpu.Label{Name: "clock_event", Value: event.Name})
			}
		})
	case catalog.XIDErrorsTotal:
		return e.owners.totals(series, row, !l.xids.unreported[row])
	case catalog.XIDLastSeen:
		return e.owners.lastSeen(series, row)
	case catalog.ClockEventsTotal:
		return e.reasons.totals(series, row)
	default:
		return e.reasons.seconds(series, row)
	}
}

// appendWindow appends how often each label occurred within a window; a 0 without that label where
// none did. Labels calls yield with each label that an event counts for.
func (l *Log) appendWindow(series []gpu.Series, row int, events []event, window time.Duration, labels func(int64, func(gpu.Label))) []gpu.Series {
	size := gpu.Label{Name: "window_size_in_ms", Value: strconv.FormatInt(window.Milliseconds(), 10)}
	start := len(series)
	for _, e := range events {
		if e.at <= l.xids.now-int64(window) {
			continue
		}
		labels(e.value, func(label gpu.Label) {
			for i := start; i < len(series); i++ {
				if series[i].Labels[1] == label {
					n, _ := series[i].Value.Int64()
					series[i].Value = gpu.Int(n + 1)
					return
				}
			}
			series = append(series, gpu.Series{Row: row, Labels: []gpu.Label{size, label}, Value: gpu.Int(1)})
		})
	}
	if len(series) == start {
		series = append(series, gpu.Series{Row: row, Labels: []gpu.Label{size}, Value: gpu.Int(0)})
	}
	return series
}
