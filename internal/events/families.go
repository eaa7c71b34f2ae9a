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

// A derivation computes a family. Either row or node is set.
type derivation struct {
	isWindow bool // the family counts events in a window, for all entities; other row families are for GPUs
	// row appends the series of a row.
	row func(l *Log, dst []gpu.Series, row int) []gpu.Series
	// node returns the series of the node.
	node func(*Log) []gpu.Series
}

// derivations lists the families that a counters file can request from a Log, except for the gauge of the last XID.
var derivations = map[string]derivation{
	catalog.XIDErrorsCount:    {row: (*Log).xidWindow, isWindow: true},
	catalog.ClockEventsCount:  {row: (*Log).clockEventWindow, isWindow: true},
	catalog.XIDErrorsTotal:    {row: (*Log).xidTotals},
	catalog.XIDLastSeen:       {row: (*Log).xidTimes},
	catalog.XIDDetailsTotal:   {row: (*Log).xidDetails},
	catalog.SXIDErrorsTotal:   {node: (*Log).sxidTotals},
	catalog.SXIDLastSeen:      {node: (*Log).sxidTimes},
	catalog.ClockEventsTotal:  {row: (*Log).clockEvents},
	catalog.ClockEventSeconds: {row: (*Log).clockEventSeconds},
}

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
	for _, isWindow := range [...]bool{true, false} { // windows come first
		for i := range c.Plan.Derived {
			d := &c.Plan.Derived[i]
			if how, ok := derivations[d.Name]; ok && d.HasField && how.isWindow == isWindow {
				list = append(list, l.family(d, how, c))
			}
		}
	}
	if l.opt.OwnersOnInfo && l.xids >= 0 {
		f := catalog.FamilyNamed(catalog.PodXIDLastSeen)
		d := &gpu.Derived{Name: f.Name, Type: f.Type, Help: f.HelpLine()}
		list = append(list, l.family(d, derivation{row: (*Log).podXIDTimes}, c))
	}
	return list
}

// family returns a requested family with the series of all entities for which it is computed.
func (l *Log) family(d *gpu.Derived, how derivation, c *snapshot.Cycle) gpu.Family {
	f := gpu.Family{Name: d.Name, Type: d.Type, Help: d.Help, OfGPUs: how.isWindow, OfNode: how.node != nil}
	if f.OfNode {
		f.Series = how.node(l)
		return f
	}
	levels := gpu.KindsOf(gpu.KindGPU)
	if how.isWindow {
		levels = c.Plan.Fields[d.Field].Levels
	}
	for row := range l.rows {
		if levels.Has(c.Topology.Devices[row].Entity.Kind) {
			f.Series = how.row(l, f.Series, row)
		}
	}
	return f
}

func (l *Log) xidWindow(dst []gpu.Series, row int) []gpu.Series {
	var events [][]gpu.Label
	for _, v := range l.rows[row].window {
		if v.at > l.now-int64(l.opt.XIDWindow) {
			events = append(events, key{xid: v.xid}.labels())
		}
	}
	return appendWindow(dst, row, l.opt.XIDWindow, events)
}

func (l *Log) clockEventWindow(dst []gpu.Series, row int) []gpu.Series {
	events := l.rows[row].reasons.inWindow(l.now - int64(l.opt.ClockEventsWindow))
	return appendWindow(dst, row, l.opt.ClockEventsWindow, events)
}

// ownersOf returns the counts of a row's XIDs, with owners unless these have a family of their own.
func (l *Log) ownersOf(row int) *owners {
	o := &l.rows[row].owners
	if l.opt.OwnersOnInfo {
		return o.withoutOwner()
	}
	return o
}

func (l *Log) xidTotals(dst []gpu.Series, row int) []gpu.Series {
	o := l.ownersOf(row)
	if !l.unreported[row] { // alerts watch these XIDs, so their counters exist even at 0
		present := o.of(o.present(), 0)
		for _, code := range catalog.AlertXIDs() {
			present.counts.add(key{xid: xid{code, wholeGPU}}, maxCodes, 0, 0, math.MaxInt64)
		}
	}
	return o.series(dst, row, false)
}

func (l *Log) xidTimes(dst []gpu.Series, row int) []gpu.Series {
	return l.ownersOf(row).series(dst, row, true)
}

func (l *Log) podXIDTimes(dst []gpu.Series, row int) []gpu.Series {
	return l.rows[row].owners.series(dst, row, true)
}

func (l *Log) xidDetails(dst []gpu.Series, row int) []gpu.Series {
	return l.rows[row].details.series(dst, row, nil, false)
}

func (l *Log) sxidTotals() []gpu.Series { return l.sxids.series(nil, gpu.AllRows, nil, false) }

func (l *Log) sxidTimes() []gpu.Series { return l.sxids.series(nil, gpu.AllRows, nil, true) }

func (l *Log) clockEvents(dst []gpu.Series, row int) []gpu.Series {
	return l.rows[row].reasons.series(dst, row, false)
}

func (l *Log) clockEventSeconds(dst []gpu.Series, row int) []gpu.Series {
	return l.rows[row].reasons.series(dst, row, true)
}

// appendWindow appends the number of events in a window for each set of event labels. If there are no events, it
// appends one series with the value 0 and no event labels.
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

// gauge returns the last XID of each GPU with the labels of NVIDIA's dcgm-exporter, or 0 if the GPU had none. With
// LastXIDAsStored, it follows DCGM: an XID that names an instance is shown on that instance only, and a GPU without
// XIDs has no series unless the engine reports that none occurred.
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
