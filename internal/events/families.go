package events

import (
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
		if counter.Field == l.xids.field && counter.Type != gpu.MetricLabel {
			list = append(list, gpu.Family{
				Name: counter.Name, Type: counter.Type, Help: counter.Help, LikeField: true, Series: l.gauge(c),
			})
		}
	}
	for i := range c.Plan.Derived {
		if d := &c.Plan.Derived[i]; d.HasField && slices.Contains(windows, d.Name) {
			list = append(list, l.family(d, c.Topology, c.Plan.Fields[d.Field].Levels, true))
		}
	}
	for i := range c.Plan.Derived {
		d := &c.Plan.Derived[i]
		if d.HasField && slices.Contains(totals, d.Name) {
			list = append(list, l.family(d, c.Topology, gpu.KindsOf(gpu.KindGPU), false))
		}
	}
	if l.ownersOnInfo && l.xids.field >= 0 {
		d := catalog.FamilyNamed(catalog.PodXIDLastSeen)
		f := gpu.Family{Name: d.Name, Type: d.Type, Help: d.HelpLine()}
		for row, e := range l.xids.rows {
			if c.Topology.Devices[row].Entity.Kind == gpu.KindGPU {
				f.Series = e.owners.lastSeen(f.Series, row)
			}
		}
		list = append(list, f)
	}
	return list
}

// family returns a family with the series of the entities of the given kinds.
func (l *Log) family(d *gpu.Derived, t *gpu.Topology, levels gpu.Kinds, ofGPUs bool) gpu.Family {
	f := gpu.Family{Name: d.Name, Type: d.Type, Help: d.Help, OfGPUs: ofGPUs}
	switch d.Name {
	case catalog.SXIDErrorsTotal:
		f.OfNode, f.Series = true, l.xids.sxids.series(nil, gpu.AllRows, nil)
		return f
	case catalog.SXIDLastSeen:
		f.OfNode, f.Series = true, l.xids.sxids.lastSeen(nil, gpu.AllRows, nil)
		return f
	}
	for row := range l.xids.rows {
		if levels.Has(t.Devices[row].Entity.Kind) {
			f.Series = l.appendRow(f.Series, d.Name, row)
		}
	}
	return f
}

// gauge returns the last XID of each GPU with the labels of NVIDIA's dcgm-exporter, or 0 if the GPU had none. As stored
// by DCGM, an XID that names an instance is on that instance only, and a GPU without XIDs has no series unless the
// source says that it had none.
func (l *Log) gauge(c *snapshot.Cycle) []gpu.Series {
	var series []gpu.Series
	field := &c.Plan.Fields[l.xids.field]
	for row, e := range l.xids.rows {
		if !c.Topology.Serves(field, row) || c.Missing(catalog.XIDErrors, row) != "" || c.Down(row) != nil {
			continue
		}
		if !l.lastXIDAsStored {
			series = append(series, lastXID(row, e.last.code))
			continue
		}
		if last := e.lastOf(instance{}); last.at != 0 || slices.Contains(c.Batch.WithoutXID, row) {
			series = append(series, lastXID(row, last.code))
		}
		for i := range c.Topology.Devices {
			d := &c.Topology.Devices[i]
			if d.Entity.Kind != gpu.KindGPUInstance || c.Topology.ParentRow(i) != row {
				continue
			}
			if last := e.lastOf(instance{true, d.InstanceID}); last.at != 0 {
				series = append(series, lastXID(i, last.code))
			}
		}
	}
	return series
}

func lastXID(row int, code int64) gpu.Series {
	labels := []gpu.Label{
		{Name: "err_code", Value: strconv.FormatInt(code, 10)}, {Name: "err_msg", Value: catalog.XIDMessage(code)},
	}
	return gpu.Series{Row: row, Labels: labels, Value: gpu.Int(code)}
}

// appendRow appends the series of a family for one row.
func (l *Log) appendRow(series []gpu.Series, family string, row int) []gpu.Series {
	e := l.xids.rows[row]
	switch family {
	case catalog.XIDErrorsCount:
		w := newWindow(row, l.xids.now, l.xids.window)
		for _, v := range e.window {
			w.count(v.at, v.labels)
		}
		return w.appendTo(series)
	case catalog.ClockEventsCount:
		w := newWindow(row, l.xids.now, l.reasonsWindow)
		for _, v := range e.reasons.samples {
			for c := range catalog.ClockEvents(v.mask) {
				w.count(v.at, func() []gpu.Label { return labelsOf("clock_event", c.Name) })
			}
		}
		return w.appendTo(series)
	case catalog.XIDErrorsTotal:
		return l.ownersOf(e).totals(series, row, !l.xids.unreported[row])
	case catalog.XIDLastSeen:
		return l.ownersOf(e).lastSeen(series, row)
	case catalog.XIDDetailsTotal:
		return e.details.series(series, row, nil)
	case catalog.ClockEventsTotal:
		return e.reasons.totals(series, row)
	default:
		return e.reasons.seconds(series, row)
	}
}

// ownersOf returns the XIDs of a GPU by owner, or without owners if these have a family of their own.
func (l *Log) ownersOf(e *entityEvents) *owners {
	if l.ownersOnInfo {
		return e.owners.withoutOwner()
	}
	return &e.owners
}

// A window counts the events of an entity since a time, by their labels.
type window struct {
	row    int
	after  int64
	size   gpu.Label
	series []gpu.Series
}

func newWindow(row int, now int64, size time.Duration) *window {
	label := gpu.Label{Name: "window_size_in_ms", Value: strconv.FormatInt(size.Milliseconds(), 10)}
	return &window{row: row, after: now - int64(size), size: label}
}

func (w *window) count(at int64, of func() []gpu.Label) {
	if at <= w.after {
		return
	}
	labels := of()
	i := slices.IndexFunc(w.series, func(s gpu.Series) bool { return slices.Equal(s.Labels[1:], labels) })
	if i < 0 {
		labels = append([]gpu.Label{w.size}, labels...)
		w.series = append(w.series, gpu.Series{Row: w.row, Labels: labels, Value: gpu.Int(1)})
		return
	}
	n, _ := w.series[i].Value.Int64()
	w.series[i].Value = gpu.Int(n + 1)
}

// appendTo appends the counts, or a 0 without the labels of events if there was none.
func (w *window) appendTo(series []gpu.Series) []gpu.Series {
	if w.series == nil {
		return append(series, gpu.Series{Row: w.row, Labels: []gpu.Label{w.size}, Value: gpu.Int(0)})
	}
	return append(series, w.series...)
}
