package events

// maxReports bounds the reports of one witness about one entity that are known one by one.
const maxReports = 8192

// A report is the key under which a witness reports an error, in every session.
type report struct {
	id int64
	xid
}

// A reportCount is how many errors are known by one report, and how many of them the latest session has reported.
type reportCount struct {
	counted, session int32
	epoch            uint32
}

// reports are those of one witness about one entity.
//
// An engine's history is a multiset of (id, code), and a session reports each element once at most. Their union has, per
// element, the maximum over the sessions: an error is new if its session has now reported it more often than it was
// counted. That holds in any order and for equal ids; no time is compared.
//
// Beyond maxReports the oldest are forgotten. Their ids were floor at most, and a session that begins again reports them
// before the known ones.
type reports struct {
	counts map[report]reportCount
	order  []report // as they came; a ring once it is full
	oldest int      // index in order

	forgotten bool
	floor     int64  // the highest forgotten id
	passed    uint32 // the session that is past the forgotten ones
}

// add notes a report of a session and returns whether its error is new. With again the session may report those of others.
func (r *reports) add(x report, epoch uint32, again bool) bool {
	if r.counts == nil {
		r.counts = map[report]reportCount{}
	}
	c, known := r.counts[x]
	switch {
	case known:
		r.passed = epoch
	case r.forgotten && again && r.passed != epoch && x.id <= r.floor:
		return false
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
	isNew := c.session > c.counted
	c.counted = max(c.counted, c.session)
	r.counts[x] = c
	return isNew
}

// remember makes room for a report.
func (r *reports) remember(x report) {
	if len(r.order) < maxReports {
		r.order = append(r.order, x)
		return
	}
	old := r.order[r.oldest]
	delete(r.counts, old)
	if !r.forgotten || old.id > r.floor {
		r.forgotten, r.floor = true, old.id
	}
	r.order[r.oldest] = x
	r.oldest = (r.oldest + 1) % len(r.order)
}
