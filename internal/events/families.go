package events

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

// windows and totals name the families of a Log, except for the gauge of the last XID.
var (
	windows = []string{catalog.XIDErrorsCount, catalog.ClockEventsCount}
	totals  = []string{
		catalog.XIDErrorsTotal, catalog.XIDLastSeen, catalog.XIDDetailsTotal, catalog.SXIDErrorsTotal,
		catalog.SXIDLastSeen, catalog.ClockEventsTotal, catalog.ClockEventSeconds,
	}
)

// families appends the requested families: the last XIDs, the windows, the totals and the owners of XIDs.
func (l *Log) families(list []gpu.Family, c *snapshot.Cycle) []gpu.Family {
	for i := range c.Plan.Counters {
		counter := &c.Plan.Counters[i]
		if counter.Field == l.xids && counter.Type != gpu.MetricLabel {
			list = append(list, gpu.Family{
				Name: counter.Name, Type: counter.Type, Help: counter.Help, LikeField: true, Series: l.gauge(c),
			})
		}
	}
	for _, names := range [...][]string{windows, totals} {
		for i := range c.Plan.Derived {
			if d := &c.Plan.Derived[i]; d.HasField && slices.Contains(names, d.Name) {
				list = append(list, l.family(d, c))
			}
		}
	}
	if l.opt.OwnersOnInfo && l.xids >= 0 {
		f := catalog.FamilyNamed(catalog.PodXIDLastSeen)
		list = append(list, l.family(&gpu.Derived{Name: f.Name, Type: f.Type, Help: f.HelpLine()}, c))
	}
	return list
}

// family returns a family of windows for all its entities, or a family of totals for GPUs or for the node.
func (l *Log) family(d *gpu.Derived, c *snapshot.Cycle) gpu.Family {
	f := gpu.Family{Name: d.Name, Type: d.Type, Help: d.Help, OfGPUs: slices.Contains(windows, d.Name)}
	if d.Name == catalog.SXIDErrorsTotal || d.Name == catalog.SXIDLastSeen {
		f.OfNode, f.Series = true, l.sxids.series(nil, gpu.AllRows, nil, d.Name == catalog.SXIDLastSeen)
		return f
	}
	levels := gpu.KindsOf(gpu.KindGPU)
	if f.OfGPUs {
		levels = c.Plan.Fields[d.Field].Levels
	}
	for row := range l.rows {
		if levels.Has(c.Topology.Devices[row].Entity.Kind) {
			f.Series = l.appendRow(f.Series, d.Name, row)
		}
	}
	return f
}

// appendRow appends the series of a family for one row.
func (l *Log) appendRow(series []gpu.Series, family string, row int) []gpu.Series {
	e := l.rows[row]
	o := &e.owners
	if l.opt.OwnersOnInfo && (family == catalog.XIDErrorsTotal || family == catalog.XIDLastSeen) {
		o = o.withoutOwner()
	}
	switch family {
	case catalog.XIDErrorsCount:
		var events [][]gpu.Label
		for _, v := range e.window {
			if v.at > l.now-int64(l.opt.XIDWindow) {
				events = append(events, key{xid: v.xid}.labels())
			}
		}
		return appendWindow(series, row, l.opt.XIDWindow, events)
	case catalog.ClockEventsCount:
		events := e.reasons.inWindow(l.now - int64(l.opt.ClockEventsWindow))
		return appendWindow(series, row, l.opt.ClockEventsWindow, events)
	case catalog.XIDErrorsTotal:
		if !l.unreported[row] { // these XIDs have alerts: their counters exist even while they are 0
			present := o.of(o.present(), 0)
			for _, code := range catalog.AlertXIDs() {
				present.counts.add(key{xid: xid{code, wholeGPU}}, maxCodes, 0, 0, math.MaxInt64)
			}
		}
		return o.series(series, row, false)
	case catalog.XIDLastSeen, catalog.PodXIDLastSeen:
		return o.series(series, row, true)
	case catalog.XIDDetailsTotal:
		return e.details.series(series, row, nil, false)
	default:
		return e.reasons.series(series, row, family == catalog.ClockEventSeconds)
	}
}

// appendWindow appends the number of events in a window by their labels, or a 0 without such labels if there is none.
func appendWindow(series []gpu.Series, row int, size time.Duration, events [][]gpu.Label) []gpu.Series {
	window := gpu.Label{Name: "window_size_in_ms", Value: strconv.FormatInt(size.Milliseconds(), 10)}
	first := len(series)
	for _, labels := range events {
		own := series[first:]
		i := slices.IndexFunc(own, func(s gpu.Series) bool { return slices.Equal(s.Labels[1:], labels) })
		if i >= 0 {
			n, _ := own[i].Value.Int64()
			own[i].Value = gpu.Int(n + 1)
			continue
		}
		labels = append([]gpu.Label{window}, labels...)
		series = append(series, gpu.Series{Row: row, Labels: labels, Value: gpu.Int(1)})
	}
	if len(series) == first {
		series = append(series, gpu.Series{Row: row, Labels: []gpu.Label{window}, Value: gpu.Int(0)})
	}
	return series
}

// gauge returns the last XID of each GPU with the labels of NVIDIA's dcgm-exporter, or 0 if the GPU had none. As stored
// by DCGM, an XID that names an instance is on that instance only, and a GPU without XIDs has no series unless the
// source says that it had none.
func (l *Log) gauge(c *snapshot.Cycle) (series []gpu.Series) {
	add := func(row int, last xidEvent) {
		code := strconv.FormatInt(last.code, 10)
		labels := []gpu.Label{{Name: "err_code", Value: code}, {Name: "err_msg", Value: catalog.XIDMessage(last.code)}}
		series = append(series, gpu.Series{Row: row, Labels: labels, Value: gpu.Int(last.code)})
	}
	field := &c.Plan.Fields[l.xids]
	for row, e := range l.rows {
		if !c.Topology.Serves(field, row) || c.Missing(catalog.XIDErrors, row) != "" || c.Down(row) != nil {
			continue
		}
		if !l.opt.LastXIDAsStored {
			add(row, e.last())
			continue
		}
		if last := e.lastOf(wholeGPU); last.at != 0 || slices.Contains(c.Batch.WithoutXID, row) {
			add(row, last)
		}
		for i := range c.Topology.Devices {
			d := &c.Topology.Devices[i]
			if d.Entity.Kind != gpu.KindGPUInstance || c.Topology.ParentRow(i) != row {
				continue
			}
			if last := e.lastOf(int64(d.InstanceID)); last.at != 0 {
				add(i, last)
			}
		}
	}
	return series
}
