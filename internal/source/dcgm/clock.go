package dcgm

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// An engine on another machine has another clock, which may be off by any amount, drift, and be set
// in either direction at any time, as may this machine's. The offset is bounded by what every Read
// shows: a sample that is new in it was taken after the call of the Read before, and before this
// one ended. Whatever offset keeps to both bounds is good: a sample then looks at most one reading
// interval older than it is. What it was before stays what it was for the samples of before, so
// that no sample is dated twice.

// How far a bound may be missed before the offset is corrected: what an engine needs to take a
// sample and show it. A quarter of the reading interval within these limits.
const (
	minTolerance = 20 * time.Millisecond
	maxTolerance = time.Second
)

// maxSpans is how many corrections are remembered, and maxDated of how many samples the date is.
const (
	maxSpans = 64
	maxDated = 4096
)

// A span is the offset for the samples from a moment of the engine's clock on, until the next span.
// Both are nanoseconds; the offset is added to the engine's time.
type span struct{ from, offset int64 }

// dates is what the sessions of a Source know together of the engine's clock: a sample that one
// session reports has the same date in the next. The zero dates are ready.
type dates struct {
	mu    sync.Mutex
	used  bool                   // samples were dated
	spans atomic.Pointer[[]span] // never changed in place
	dated map[dated]int64
	order []dated // of dated, oldest first
}

// A dated sample is known by its entity, field and engine time (microseconds).
type dated struct {
	entity entity
	field  uint16
	at     int64
}

// current returns the offset of what the engine samples now.
func (d *dates) current() int64 {
	if spans := d.list(); len(spans) > 0 {
		return spans[len(spans)-1].offset
	}
	return 0
}

func (d *dates) list() []span {
	if p := d.spans.Load(); p != nil {
		return *p
	}
	return nil
}

// keep notes that samples are dated by the offset as it is.
func (d *dates) keep() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.used = true
}

// correct sets the offset from a moment of the engine's clock on; the first one also for what was
// sampled before.
func (d *dates) correct(from, offset int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	spans := slices.Clone(d.list())
	if len(spans) == 0 {
		if !d.used {
			from = math.MinInt64
		} else {
			spans = append(spans, span{math.MinInt64, 0})
		}
	}
	d.used = true
	spans = append(spans, span{from, offset})
	if len(spans) > maxSpans {
		spans = spans[len(spans)-maxSpans:]
	}
	d.spans.Store(&spans)
}

// of returns the time of a sample in this machine's clock by its engine time, both in nanoseconds.
func (d *dates) of(at int64) int64 {
	spans := d.list()
	for i := len(spans) - 1; i >= 0; i-- {
		if spans[i].from <= at || i == 0 { // of before the oldest that is remembered
			return at + spans[i].offset
		}
	}
	return at
}

// once returns the date that a sample was given before, or gives it this one.
func (d *dates) once(key dated, date int64) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if known, ok := d.dated[key]; ok {
		return known
	}
	if d.dated == nil {
		d.dated = map[dated]int64{}
	}
	if len(d.order) >= maxDated {
		delete(d.dated, d.order[0])
		d.order = append(d.order[:0], d.order[1:]...)
	}
	d.dated[key] = date
	d.order = append(d.order, key)
	return date
}

// A clock translates the engine's time into this machine's for one session. An engine on this
// machine needs no translation.
type clock struct {
	foreign bool
	dates   *dates
	// tolerance is by how much a bound may be missed.
	tolerance time.Duration
	newest    int64 // the latest evidence, in the engine's nanoseconds
}

func toleranceOf(interval time.Duration) time.Duration {
	return min(max(interval/4, minTolerance), maxTolerance)
}

// observe corrects the offset by a sample that was taken between two moments of this machine's
// clock (all in nanoseconds). It returns by how much.
func (c *clock) observe(newest, after, before int64) int64 {
	if !c.foreign || newest <= 0 {
		return 0
	}
	last := c.newest
	c.newest = newest
	offset := c.dates.current()
	lower, upper := after-newest, before-newest
	var to int64
	switch {
	case offset > upper+int64(c.tolerance):
		to = upper
	case offset < lower-int64(c.tolerance):
		to = min(lower, upper)
	default:
		c.dates.keep()
		return 0
	}
	from := last + 1 // what was sampled before keeps its date
	if last == 0 || newest <= last {
		from = newest - int64(c.tolerance) // the first sample, or the first after the clock was set back
	}
	c.dates.correct(from, to)
	return to - offset
}

// date returns the time of a sample in this machine's clock by its engine time in microseconds.
func (c *clock) date(at int64) int64 {
	if !c.foreign {
		return at * 1000
	}
	return c.dates.of(at * 1000)
}
