package events

import (
	"slices"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// maxAhead is how far in the future a sample of the clock event reasons can be dated.
const maxAhead = 5 * time.Second

// A clockTotal counts how often one clock event reason was set, and for how long.
type clockTotal struct {
	catalog.ClockEvent
	count, nanoseconds int64
	labels             []gpu.Label // clock_event
}

// A reasonSample is a sample of clock event reasons.
type reasonSample struct{ at, mask int64 }

// reasons counts how often and how long the clock event reasons of one entity were set, according to samples. Times are
// Unix nanoseconds.
type reasons struct {
	samples []reasonSample // of the window, oldest first
	started bool           // at least one sample counted for the window
	newest  int64          // time of the latest sample, counted or not
	due     int64          // when the state counts again

	events []clockTotal // every reason; nil before the first sample
	known  bool         // at least one sample counted for the totals
	latest reasonSample // latest sample that counted for the totals
}

func (r *reasons) init() {
	for _, e := range catalog.ClockEvents() {
		r.events = append(r.events, clockTotal{ClockEvent: e, labels: gpu.Labels("clock_event", e.Name)})
	}
}

// add counts a sample for the totals. The time since the previous sample is added to the reasons that were set then. If
// it exceeds limit, it is not added: the state in between is unknown.
func (r *reasons) add(mask, at, now, limit int64) {
	before := r.latest
	if before.at > now+int64(maxAhead) { // the clock was set back
		r.known = false
	}
	if r.known && at <= before.at {
		return
	}
	if r.events == nil {
		r.init()
	}
	for i := range r.events {
		e := &r.events[i]
		if r.known && mask&^before.mask&e.Mask != 0 {
			e.count++
		}
		if gap := at - before.at; r.known && before.mask&e.Mask != 0 && gap <= limit {
			e.nanoseconds += gap
		}
	}
	r.known, r.latest = true, reasonSample{at, mask}
}

// addToWindow adds a sample to the window, if it counts. It returns the number of samples that left early for lack of
// room.
func (r *reasons) addToWindow(mask, at, now int64, every, window time.Duration) (dropped int) {
	if r.newest > now+int64(maxAhead) { // the clock was set back
		r.started, r.samples = false, nil
	}
	if r.started && at <= r.newest {
		return 0
	}
	if !r.started {
		r.due = at
	}
	r.started, r.newest = true, at
	if !r.counts(at, int64(every)) {
		return 0
	}
	old := 0
	for old < len(r.samples) && now-r.samples[old].at >= int64(window) {
		old++
	}
	if full := len(r.samples) + 1 - maxEvents; full > old {
		dropped, old = full-old, full
	}
	r.samples = append(slices.Delete(r.samples, 0, old), reasonSample{at, mask})
	return dropped
}

// counts reports whether a sample at the given time counts. One sample per interval counts, however often the state is
// sampled. It may be early by a tenth of the interval, since engines and Reads do not keep to it exactly.
func (r *reasons) counts(at, every int64) bool {
	slack := every / 10
	early := r.due - at
	if early > slack && early <= every+slack {
		return false
	}
	if early > slack || early <= -every/2 { // the clock or the interval changed, or there was a long gap
		r.due = at
	}
	r.due += every
	return true
}

// inWindow returns the labels of the events in the window, which begins after the given time.
func (r *reasons) inWindow(after int64) (events [][]gpu.Label) {
	if r.events == nil && len(r.samples) > 0 {
		r.init()
	}
	for _, s := range r.samples {
		for i := range r.events {
			if e := &r.events[i]; s.at > after && s.mask&e.Mask != 0 {
				events = append(events, e.labels)
			}
		}
	}
	return events
}

// expire empties the window if its latest sample is from before the given time.
func (r *reasons) expire(before int64) {
	if n := len(r.samples); n > 0 && r.samples[n-1].at <= before {
		r.samples = nil
	}
}

// series appends how often each reason was set. If seconds is set, it appends how many seconds each reason that slows
// work down was set instead. There are no series before the first sample.
func (r *reasons) series(series []gpu.Series, row int, seconds bool) []gpu.Series {
	for i := range r.events {
		e := &r.events[i]
		value := gpu.Int(e.count)
		if seconds {
			value = gpu.Float(float64(e.nanoseconds) / 1e9)
		}
		if r.known && (e.Slows || !seconds) {
			series = append(series, gpu.Series{Row: row, Labels: e.labels, NoOwner: true, Value: value})
		}
	}
	return series
}
