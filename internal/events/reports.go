package events

import "slices"

const (
	// maxReports is the maximum number of reports of one source about one entity that are remembered individually.
	maxReports = 8192
	// redated is the largest difference between the times that two engines give the same XID, in the engine's
	// microseconds. An engine reads the kernel log from its beginning when it starts, and computes the times
	// again.
	redated = 2_000_000
)

// A report is the key under which a source reports an error in every session.
type report struct {
	id int64
	xid
}

// A reportCount is the number of errors with the same report, and how many of them the latest session has reported.
type reportCount struct {
	counted, session int32
	epoch            uint32
}

// reports holds the reports of one source about one entity.
//
// An engine's history is a multiset of (id, code), and a session reports each element at most once. So an error is new
// if its session has now reported it more often than it was counted before. The order of reports does not matter, and
// IDs may repeat.
//
// Beyond maxReports, the oldest reports are forgotten, and floor is the highest of their IDs. If a session may repeat
// its history, unknown reports with IDs up to floor count as known.
type reports struct {
	counts map[report]reportCount
	order  []report // in the order of their arrival; a ring buffer once it is full
	oldest int      // index in order

	forgotten bool
	floor     int64 // highest forgotten ID

	ids      map[xid][]int64 // sorted IDs of the known reports at the start of idsEpoch; nil before the first
	idsEpoch uint32
}

// add records a report of a session and returns whether its error is new.
//
// If replay is set, the session may repeat errors of earlier sessions. If redate is set as well, it may do so with
// dates that differ by up to redated: the engine may have been restarted.
func (r *reports) add(x report, epoch uint32, replay, redate bool) bool {
	if r.counts == nil {
		r.counts = map[report]reportCount{}
	}
	c, known := r.counts[x]
	if !known && r.forgotten && replay && x.id <= r.floor {
		return false
	}
	if !known && replay && redate {
		if before, found := r.dated(x, epoch); found {
			x = before
			c, known = r.counts[x], true
		}
	}
	if !known {
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

// dated returns the earliest known report of the same error that is at most redated away and that this session has not
// reported yet. Engines date all XIDs anew with about the same offset, so their order stays the same.
func (r *reports) dated(x report, epoch uint32) (report, bool) {
	if r.ids == nil || r.idsEpoch != epoch {
		r.fillIDs(epoch)
	}
	ids := r.ids[x.xid]
	first, _ := slices.BinarySearch(ids, x.id-redated)
	for _, id := range ids[first:] {
		if id > x.id+redated {
			break
		}
		known := report{id, x.xid}
		if c, found := r.counts[known]; found && (c.epoch != epoch || c.session < c.counted) {
			return known, true
		}
	}
	return report{}, false
}

// fillIDs fills ids with the known reports.
func (r *reports) fillIDs(epoch uint32) {
	r.ids, r.idsEpoch = map[xid][]int64{}, epoch
	for known := range r.counts {
		r.ids[known.xid] = append(r.ids[known.xid], known.id)
	}
	for _, ids := range r.ids {
		slices.Sort(ids)
	}
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
