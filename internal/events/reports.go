package events

// maxReports bounds the reports of one witness about one entity that are known one by one.
const maxReports = 8192

// A report is what a witness says of an error, and says again in another session.
type report struct{ id, code int64 }

// A reportCount is how many errors are known by one report, and how many of them were reported in
// this process, and by the latest session to report any.
type reportCount struct {
	counted, here, session int32
	epoch                  uint32
}

// reports are those of one witness about one entity.
//
// An engine's history is a multiset of (id, code), of which a session reports each element once at
// most. The union of what sessions report is, per element, the maximum over the sessions: an
// element is new if the session has now reported it more often than it was counted. That holds
// whatever the ids are, in whatever order they come, and however many errors share one; no time is
// compared. See doc.go.
//
// Beyond maxReports the oldest are forgotten. Of those it is known that their ids were floor at
// most, and that a session that begins again reports them before the ones that are known.
type reports struct {
	counts map[report]reportCount
	order  []report // as they came; a ring once it is full
	oldest int      // index in order

	forgotten bool
	floor     int64  // the highest id that was forgotten
	passed    uint32 // the session that is past them
}

// add takes a report of a session, and returns whether it is of an error that was not counted, and
// whether it is of one that is new to this process. Again says that the session may report what
// others did.
func (r *reports) add(x report, epoch uint32, again bool) (isNew, isNewHere bool) {
	if r.counts == nil {
		r.counts = map[report]reportCount{}
	}
	c, known := r.counts[x]
	switch {
	case known:
		r.passed = epoch
	case r.forgotten && again && r.passed != epoch && x.id <= r.floor:
		return false, false
	default:
		if r.forgotten && x.id > r.floor {
			r.passed = epoch
		}
		r.remember(x)
	}
	if c.epoch != epoch {
		c.session, c.epoch = 0, epoch
	}
	c.session++
	isNew, isNewHere = c.session > c.counted, c.session > c.here
	c.counted, c.here = max(c.counted, c.session), max(c.here, c.session)
	r.counts[x] = c
	return isNew, isNewHere
}

// remember makes room for a report.
func (r *reports) remember(x report) {
	if len(r.order) < maxReports {
		r.order = append(r.order, x)
		return
	}
	old := r.order[r.oldest]
	delete(r.counts, old)
	r.forget(old.id)
	r.order[r.oldest] = x
	r.oldest = (r.oldest + 1) % len(r.order)
}

func (r *reports) forget(id int64) {
	if !r.forgotten || id > r.floor {
		r.forgotten, r.floor = true, id
	}
}

// newest yields the latest reports, n of them at most, the oldest first, and how often each was
// counted.
func (r *reports) newest(n int, yield func(report, int32)) {
	for i := max(0, len(r.order)-n); i < len(r.order); i++ {
		x := r.order[(r.oldest+i)%len(r.order)]
		yield(x, r.counts[x].counted)
	}
}
