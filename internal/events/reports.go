package events

import (
	"cmp"
	"slices"
)

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

func (x report) compare(y report) int {
	return cmp.Or(cmp.Compare(x.id, y.id), cmp.Compare(x.code, y.code), cmp.Compare(x.instance, y.instance))
}

// A reportCount is the number of errors with the same report, and how many of them the latest session has reported.
type reportCount struct {
	report
	counted, session int32
	epoch            uint32
}

// reports holds the reports of one source about one entity.
//
// An engine's history is a multiset of (id, code), and a session reports each element at most once. So an error is new
// if its session has now reported it more often than it was counted before. The order of reports does not matter, and
// IDs may repeat.
//
// If there are more than maxReports, those with the lowest IDs are forgotten. If a session may repeat its history,
// unknown reports with IDs up to floor count as known.
type reports struct {
	known []reportCount // sorted
	floor int64         // highest forgotten ID; IDs are positive
}

// find returns where a report is or belongs, and whether it is known.
func (r *reports) find(x report) (int, bool) {
	return slices.BinarySearchFunc(r.known, x, func(c reportCount, x report) int { return c.report.compare(x) })
}

// add records a report of a session and returns whether its error is new.
//
// If replay is set, the session may repeat errors of earlier sessions. If redate is set as well, it may do so with
// dates that differ by up to redated: the engine may have been restarted.
func (r *reports) add(x report, epoch uint32, replay, redate bool) bool {
	i, known := r.find(x)
	if !known && replay && x.id <= r.floor {
		return false
	}
	if !known && replay && redate {
		if at := r.dated(x, epoch); at >= 0 {
			i, known = at, true
		}
	}
	if !known {
		r.known = slices.Insert(r.known, i, reportCount{report: x})
	}
	c := &r.known[i]
	if c.epoch != epoch {
		c.session, c.epoch = 0, epoch
	}
	c.session++
	isNew := c.session > c.counted
	c.counted = max(c.counted, c.session)
	if len(r.known) > maxReports {
		r.floor = max(r.floor, r.known[0].id)
		r.known = slices.Delete(r.known, 0, 1)
	}
	return isNew
}

// dated returns the index of the earliest known report of the same error that is at most redated away and that this
// session has not reported yet, or -1. An engine that changes the times of its XIDs shifts all of them by about the
// same offset, so their order stays the same.
func (r *reports) dated(x report, epoch uint32) int {
	first, _ := r.find(report{id: x.id - redated})
	for i := first; i < len(r.known) && r.known[i].id <= x.id+redated; i++ {
		if c := &r.known[i]; c.xid == x.xid && (c.epoch != epoch || c.session < c.counted) {
			return i
		}
	}
	return -1
}
