package collector

import (
	"slices"
	"strconv"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// maxEvents bounds what one entity can keep in a window. A GPU in a storm of
// XIDs drops the oldest ones.
const maxEvents = 4096

// An event is one sample of an Events field.
type event struct {
	at    int64
	value int64
}

// identity names an entity beyond the life of a session: row numbers and
// entity ids change with the topology, these do not.
type identity struct {
	uuid     string
	kind     gpu.Kind
	instance uint32
}

type eventKey struct {
	id    identity
	field gpu.FieldID
}

// An eventLog keeps the events of the windows, and the last event of every
// entity for the compatible gauges. It outlives sessions: an XID does not
// vanish because the GPU was cut anew.
type eventLog struct {
	windows map[gpu.FieldID]time.Duration
	past    map[eventKey][]event

	tally *tally // counts them for good

	topology *gpu.Topology
	plan     *gpu.Plan
	tracked  []bool // per field of the plan: its samples are recorded
	out      map[string][]gpu.Series
}

func newEventLog(xid, clock time.Duration, counted *tally) *eventLog {
	return &eventLog{
		tally:   counted,
		windows: map[gpu.FieldID]time.Duration{counters.FieldXID: xid, counters.FieldClockEvents: clock},
		past:    map[eventKey][]event{},
		out:     map[string][]gpu.Series{},
	}
}

// bind prepares for a session, and forgets entities that are no longer there.
func (l *eventLog) bind(t *gpu.Topology, plan *gpu.Plan) {
	l.topology, l.plan, l.tracked = t, plan, make([]bool, len(plan.Fields))
	l.tally.bind(t, plan)
	for i := range plan.Fields {
		l.tracked[i] = plan.Fields[i].Events
	}
	for i := range plan.Derived {
		if f := plan.Derived[i].Field; f >= 0 {
			l.tracked[f] = true
		}
	}
	present := map[identity]bool{}
	for row := range t.Devices {
		present[l.identity(row)] = true
	}
	for key := range l.past {
		if !present[key.id] {
			delete(l.past, key)
		}
	}
}

func (l *eventLog) identity(row int) identity {
	d := &l.topology.Devices[row]
	return identity{uuid: d.UUID, kind: d.Entity.Kind, instance: d.InstanceID}
}

// add records a sample of a field that has events.
func (l *eventLog) add(s *gpu.Sample, now time.Time) {
	if !l.tracked[s.Field] {
		return
	}
	l.tally.add(s)
	n, ok := s.Value.Number()
	if !ok || n == 0 {
		return // an engine's way to say that nothing happened yet
	}
	key := eventKey{l.identity(s.Row), l.plan.Fields[s.Field].ID}
	past := l.past[key]
	if len(past) > 0 && s.Time < past[len(past)-1].at {
		return // seen before, in an earlier session
	}
	if len(past) > 0 && s.Time == past[len(past)-1].at && int64(n) == past[len(past)-1].value {
		return
	}
	old := 0 // what has left the window; the last event stays for the gauge
	for window := int64(l.windows[key.field]); old < len(past) && now.UnixNano()-past[old].at > window; {
		old++
	}
	past = append(slices.Delete(past, 0, max(old, len(past)+1-maxEvents)), event{s.Time, int64(n)})
	l.past[key] = past
}

// restore serves the gauges of Events fields: the last event's value for as
// long as the entity lives, and 0 where the field is read and nothing
// happened. Bit masks are states, not events, and are left as they are.
func (l *eventLog) restore(tab *table, now time.Time) {
	for f := range l.plan.Fields {
		field := &l.plan.Fields[f]
		if field.ID != counters.FieldXID {
			continue
		}
		for row := range l.topology.Devices {
			c := tab.cell(f, row)
			if !field.Levels.Has(l.topology.Devices[row].Entity.Kind) || c.missing != "" ||
				tab.snap.Health.Entities[row].Err != nil {
				continue
			}
			if past := l.past[eventKey{l.identity(row), field.ID}]; len(past) > 0 {
				last := past[len(past)-1]
				tab.set(f, row, gpu.Int(last.value), last.at)
			} else {
				// It says nothing about the entity being up, hence no set.
				c.value, c.time = gpu.Int(0), now.UnixNano()
			}
		}
	}
}

// families appends the families that the plan derives from events.
func (l *eventLog) families(list []gpu.Family, now time.Time) []gpu.Family {
	for i := range l.plan.Derived {
		d := &l.plan.Derived[i]
		labels := labelsOf(d)
		if labels == nil {
			continue
		}
		series := l.count(l.out[d.Name][:0], d.Field, now, labels)
		l.out[d.Name] = series
		list = append(list, gpu.Family{Name: d.Name, Type: d.Type, Help: d.Help, Series: series})
	}
	return list
}

// labelsOf returns what the events of a family are counted by, nil for a
// family that is not served.
func labelsOf(d *gpu.Derived) func(int64, func(name, value string)) {
	switch {
	case d.Field < 0:
		return nil
	case d.Name == counters.XIDErrorsCount.String():
		return xidLabel
	case d.Name == counters.ClockEventsCount.String():
		return clockLabels
	default:
		return nil
	}
}

// xidLabel and clockLabels call yield with the label value of each thing that
// an event counts for.
func xidLabel(value int64, yield func(name, value string)) {
	yield("xid", strconv.FormatInt(value, 10))
}

func clockLabels(value int64, yield func(name, value string)) {
	for event := range counters.ClockEvents(value) {
		yield("clock_event", event.Name)
	}
}

// count appends, per entity of the field's level, how often each label value
// occurred within the window; a 0 without that label where nothing did.
func (l *eventLog) count(series []gpu.Series, f int, now time.Time, labels func(int64, func(string, string))) []gpu.Series {
	field := &l.plan.Fields[f]
	window := l.windows[field.ID]
	size := gpu.Label{Name: "window_size_in_ms", Value: strconv.FormatInt(window.Milliseconds(), 10)}
	for row := range l.topology.Devices {
		if !field.Levels.Has(l.topology.Devices[row].Entity.Kind) {
			continue
		}
		start := len(series)
		for _, e := range l.past[eventKey{l.identity(row), field.ID}] {
			if now.UnixNano()-e.at > int64(window) {
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
	}
	return series
}
