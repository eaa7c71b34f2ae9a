package events

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

// maxAhead is how far in the future an event can be dated: the clocks of an
// engine on another machine and of this one differ by less, else they are
// corrected.
const maxAhead = 5 * time.Second

// maxEvents bounds what one entity can keep in a window. A GPU in a storm of
// XIDs drops the oldest ones.
const maxEvents = 4096

// An event is one sample that counts.
type event struct {
	at    int64
	value int64
}

type eventKey struct {
	id    gpu.Identity
	field gpu.FieldID
}

// A history is what one Events field of one entity told.
type history struct {
	events []event // oldest first: those of the window, and the last one of all
	told   seenUntil
	due    int64 // when a state counts again
}

// An eventLog keeps the events of the windows, and the last event of every
// entity for the compatible gauges. It outlives sessions: an XID does not
// vanish because the GPU was cut anew.
type eventLog struct {
	windows map[gpu.FieldID]time.Duration
	past    map[eventKey]*history
	read    uint64 // the number of the Read whose samples are added
	told    []xid  // that it told
	echoes  []xid  // that it may tell, dated by itself, though another session has told them
	heard   int64  // when it began

	tally *tally // counts them for good

	topology *gpu.Topology
	plan     *gpu.Plan
	// every is, per field of the plan, how often its samples count: each of them
	// for 0, none for a negative one, else one per such time.
	every []time.Duration
	out   map[string][]gpu.Series
}

func newEventLog(xid, clock time.Duration, counted *tally) *eventLog {
	return &eventLog{
		tally:   counted,
		windows: map[gpu.FieldID]time.Duration{catalog.XIDErrors: xid, catalog.ClocksEventReasons: clock},
		past:    map[eventKey]*history{},
		out:     map[string][]gpu.Series{},
	}
}

// bind prepares for a session, and forgets what was long ago of entities that
// are not there or were away: one that falls off the bus and is reset comes
// back.
func (l *eventLog) bind(t *gpu.Topology, plan *gpu.Plan) {
	before := l.present()
	l.topology, l.plan = t, plan
	l.tally.bind(t, plan)
	l.every = make([]time.Duration, len(plan.Fields))
	for i := range plan.Fields {
		if l.every[i] = -1; plan.Fields[i].ID == catalog.XIDErrors {
			l.every[i] = 0
		}
	}
	for i := range plan.Derived {
		if d := &plan.Derived[i]; d.Name == catalog.ClockEventsCount && d.Field >= 0 {
			l.every[d.Field] = cmp.Or(d.Interval, plan.Interval)
		}
	}
	now, present := time.Now().UnixNano(), l.present()
	for key, h := range l.past {
		stayed := before[key.id] && present[key.id]
		if !stayed && now-h.told.newest >= int64(l.windows[key.field]) {
			delete(l.past, key)
		}
	}
}

// present returns the entities of the session.
func (l *eventLog) present() map[gpu.Identity]bool {
	ids := map[gpu.Identity]bool{}
	if l.topology != nil {
		for row := range l.topology.Devices {
			ids[l.identity(row)] = true
		}
	}
	return ids
}

func (l *eventLog) identity(row int) gpu.Identity { return l.topology.Devices[row].Identity() }

// An xid is one that a session told of an entity.
type xid struct {
	key  eventKey
	code int64
}

// begin says that the samples of another Read follow.
func (l *eventLog) begin() {
	l.read++
	l.told = l.told[:0]
}

// echo lets add record the first Read, begun at begin, of a session that was
// opened beside another one, whose last Read was recorded before. A driver
// tells both what happened in between, and a source that dates XIDs by the Read
// gives them two dates.
func (l *eventLog) echo(begin time.Time, add func()) {
	l.echoes, l.heard = slices.Clone(l.told), begin.UnixNano()
	add()
	l.echoes = nil
}

// add records a sample of a field that has events.
func (l *eventLog) add(s *gpu.Sample, now time.Time) {
	if !l.plan.Fields[s.Field].Events {
		return
	}
	every := l.every[s.Field]
	n, ok := s.Value.Number()
	if !ok || s.Time > now.Add(maxAhead).UnixNano() || n == 0 && every == 0 { // an engine's way to say that nothing happened yet
		return
	}
	key := eventKey{l.identity(s.Row), l.plan.Fields[s.Field].ID}
	x := xid{key, int64(n)}
	if i := slices.Index(l.echoes, x); i >= 0 && s.Time >= l.heard {
		l.echoes = slices.Delete(l.echoes, i, i+1)
		return
	}
	l.tally.add(s, l.read)
	if every < 0 {
		return
	}
	h := l.past[key]
	if h == nil {
		h = &history{}
		l.past[key] = h
	}
	if !h.told.beyond(s.Time, l.read) || every > 0 && !h.counts(s.Time, int64(every)) {
		return
	}
	if every == 0 {
		l.told = append(l.told, x)
	}
	old := 0 // what has left the window; the last event stays for the gauge
	for window := int64(l.windows[key.field]); old < len(h.events) && now.UnixNano()-h.events[old].at >= window; {
		old++
	}
	h.events = append(slices.Delete(h.events, 0, max(old, len(h.events)+1-maxEvents)), event{s.Time, int64(n)})
}

// counts reports whether the sample of a state counts that was taken at a time:
// one does per interval, however often it is sampled. Neither engines nor
// Reads keep quite to their intervals, so that one may come a tenth early.
func (h *history) counts(at, every int64) bool {
	slack := every / 10
	early := h.due - at
	if early > slack && early <= every+slack {
		return false
	}
	if early > slack || early <= -every/2 { // another clock or interval; none for long
		h.due = at
	}
	h.due += every
	return true
}

// restore serves the gauges of Events fields: the last event's value for as
// long as the entity lives, and 0 where the field is read and nothing
// happened. Bit masks are states, not events, and are left as they are.
func (l *eventLog) restore(c *snapshot.Cycle) {
	for f := range l.plan.Fields {
		field := &l.plan.Fields[f]
		if field.ID != catalog.XIDErrors {
			continue
		}
		for row := range l.topology.Devices {
			if !field.Levels.Has(l.topology.Devices[row].Entity.Kind) || c.Missing(f, row) != "" || c.Down(row) != nil {
				continue
			}
			if h := l.past[eventKey{l.identity(row), field.ID}]; h != nil && len(h.events) > 0 {
				last := h.events[len(h.events)-1]
				c.Set(f, row, gpu.Int(last.value), last.at)
			} else {
				c.Set(f, row, gpu.Int(0), c.Now.UnixNano())
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
	case d.Name == catalog.XIDErrorsCount:
		return xidLabel
	case d.Name == catalog.ClockEventsCount:
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
	for event := range catalog.ClockEvents(value) {
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
		var events []event
		if h := l.past[eventKey{l.identity(row), field.ID}]; h != nil {
			events = h.events
		}
		for _, e := range events {
			if now.UnixNano()-e.at >= int64(window) {
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
