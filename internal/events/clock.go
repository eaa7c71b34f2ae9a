package events

import (
	"slices"
	"time"
)

const (
	// setBy is by how much this machine's clock differs at least, from that which is never set, if it
	// was set and not disciplined.
	setBy = 500 * time.Millisecond
	// misdated is by how much a report may be dated before the Read that came before the one that
	// found it, to be believed: an engine needs its time.
	misdated = pairWindow
)

// A clock translates times of this machine's clock, which can be set, into uptimes: nanoseconds of
// one that cannot. What is remembered is dated by the latter.
type clock struct {
	offset int64 // to add to an uptime, to have this machine's time
	// past are the offsets that were in force before, oldest first: what arrives may be dated by the
	// clock as it was.
	past []pastOffset

	memory     int64 // for how long what was reported waits for a second witness
	now, begin int64 // of the cycle, and of its Read
	started    bool
}

// A pastOffset was in force until an uptime.
type pastOffset struct{ offset, until int64 }

// maxPast bounds how many are remembered.
const maxPast = 64

// observe begins a cycle whose Read began and ended at times of this machine's clock; uptime is its
// end by the clock that is never set. Memory is for how long after the clock was set something may
// come that is dated by the clock of before.
func (k *clock) observe(begin, now time.Time, uptime, memory time.Duration) {
	k.memory = int64(memory)
	offset, first := now.UnixNano()-int64(uptime), !k.started
	switch moved := offset - k.offset; {
	case first:
		k.started, k.offset = true, offset
	case max(moved, -moved) > int64(setBy):
		if len(k.past) == maxPast {
			k.past = slices.Delete(k.past, 0, 1)
		}
		k.past = append(k.past, pastOffset{k.offset, int64(uptime)})
		k.offset = offset
	}
	k.now = k.of(now.UnixNano())
	if first {
		k.begin = k.of(begin.UnixNano())
	}
	k.begin = min(k.now, max(k.begin, k.of(begin.UnixNano())))
}

// of returns the uptime of a time of now.
func (k *clock) of(wall int64) int64 { return wall - k.offset }

// wall returns the time of an uptime, by this machine's clock as it is now.
func (k *clock) wall(uptime int64) int64 { return uptime + k.offset }

// A reach is since when a witness's new reports are of what happened: since it was read before.
type reach struct {
	read  int64 // when the latest Read began that had its reports
	known bool  // there was one
	late  bool  // it may report now what happened long before that
}

// span returns between which uptimes something happened that is dated between two times and was
// found by this Read. A date that cannot be, since the clock of the one who dated it was set, is
// not believed.
func (k *clock) span(since, at int64, r reach) (from, to int64) {
	earliest, reached := k.now, k.begin
	if r.known {
		earliest, reached = r.read-int64(misdated), r.read
	}
	low, high := k.offset, k.offset
	for _, p := range k.past {
		if p.until >= reached-k.memory {
			low, high = min(low, p.offset), max(high, p.offset)
		}
	}
	from, to = since-high, at-low
	switch {
	case from > k.now+int64(setBy): // in the future
		return earliest, k.now
	case to < k.begin-k.memory && r.known && !r.late: // older than whatever waits
		to = k.now
	}
	if low != high && r.known && !r.late {
		from = max(from, earliest)
	}
	to = min(to, k.now)
	return min(from, to), to
}
