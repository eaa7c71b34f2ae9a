package events

import (
	"slices"
	"time"
)

const (
	// pairWindow is how far apart two witnesses may date one XID.
	pairWindow = 5 * time.Second
	// pairMemory is how long an XID of one witness waits for the other's, beside
	// two Reads.
	pairMemory = 2 * pairWindow
	// stormGap is how far apart equal XIDs are at most that wait as one entry.
	stormGap = time.Second
	// maxUnpaired bounds the entries of a GPU that wait. The oldest is dropped: if
	// the other witness reports its XIDs after all, they count twice.
	maxUnpaired = 1024
)

// An unpaired is XIDs that one witness reported and the other may yet report:
// count of one code, between two moments (uptimes).
type unpaired struct {
	kernel      bool
	code, count int64
	from, to    int64
	seen        int64 // the Read that came with them
}

// pairs are the XIDs of a GPU that wait for the other witness, oldest first.
type pairs struct{ waiting []unpaired }

// add reports whether an XID is new. It is not if the other witness reported it
// before. Both report in the order of their XIDs, so that the first that waits
// is the one that is meant; each is paired with one at most, so that two of one
// witness stay two. Dropped is how many had to stop waiting.
func (p *pairs) add(e unpaired) (isNew bool, dropped int64) {
	at := slices.IndexFunc(p.waiting, func(u unpaired) bool {
		return u.kernel != e.kernel && u.code == e.code && u.near(&e, pairWindow)
	})
	if at >= 0 {
		if p.waiting[at].count--; p.waiting[at].count == 0 {
			p.waiting = slices.Delete(p.waiting, at, at+1)
		}
		return false, 0
	}
	at = slices.IndexFunc(p.waiting, func(u unpaired) bool {
		return u.kernel == e.kernel && u.code == e.code && u.seen == e.seen && u.near(&e, stormGap)
	})
	if at >= 0 {
		u := &p.waiting[at]
		u.from, u.to, u.count = min(u.from, e.from), max(u.to, e.to), u.count+e.count
		return true, 0
	}
	if len(p.waiting) == maxUnpaired {
		dropped = p.waiting[0].count
		p.waiting = slices.Delete(p.waiting, 0, 1)
	}
	p.waiting = append(p.waiting, e)
	return true, dropped
}

// near reports whether the times of both can be as close as gap.
func (u *unpaired) near(e *unpaired, gap time.Duration) bool {
	return u.from-int64(gap) <= e.to && e.from-int64(gap) <= u.to
}

// forget drops what waited since before a time, and reports whether it did.
func (p *pairs) forget(before int64) bool {
	n := len(p.waiting)
	p.waiting = slices.DeleteFunc(p.waiting, func(u unpaired) bool { return u.seen < before })
	return len(p.waiting) < n
}
