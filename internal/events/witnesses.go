package events

import (
	"slices"
	"time"
)

const (
	// pairWindow is how far apart two sources may date one XID.
	pairWindow = 5 * time.Second
	// pairMemory is how long an XID of one source waits for the other's, beside
	// two Reads.
	pairMemory = 2 * pairWindow
	// stormGap is how far apart equal XIDs are at most that wait as one entry.
	stormGap = time.Second
	// maxUnpaired bounds the entries of a GPU that wait. The oldest is dropped: if
	// the other source tells its XIDs after all, they count twice.
	maxUnpaired = 1024
)

// An unpaired is XIDs that one source told and the other may yet tell: count of
// one code, between from and to. Some engines date an XID by the Read that
// found it.
type unpaired struct {
	kernel      bool
	code, count int64
	from, to    int64
	seen        int64 // the Read that came with them
}

// pair reports whether an XID is new. It is not if the other source told it
// before; each is paired with one at most, the oldest first, so that two of one
// source stay two.
func (g *gpuEvents) pair(e unpaired) bool {
	at := slices.IndexFunc(g.unpaired, func(u unpaired) bool {
		return u.kernel != e.kernel && u.code == e.code && u.near(&e, pairWindow)
	})
	if at >= 0 {
		if g.unpaired[at].count--; g.unpaired[at].count == 0 {
			g.unpaired = slices.Delete(g.unpaired, at, at+1)
		}
		return false
	}
	at = slices.IndexFunc(g.unpaired, func(u unpaired) bool {
		return u.code == e.code && u.seen == e.seen && u.near(&e, stormGap)
	})
	if at >= 0 {
		u := &g.unpaired[at]
		u.from, u.to, u.count = min(u.from, e.from), max(u.to, e.to), u.count+e.count
		return true
	}
	if len(g.unpaired) == maxUnpaired {
		g.unpaired = slices.Delete(g.unpaired, 0, 1)
	}
	g.unpaired = append(g.unpaired, e)
	return true
}

// near reports whether the times of both can be as close as gap.
func (u *unpaired) near(e *unpaired, gap time.Duration) bool {
	return u.from-int64(gap) <= e.to && e.from-int64(gap) <= u.to
}

// forget drops what waited since before a time, and reports whether it did.
func (g *gpuEvents) forget(before int64) bool {
	n := len(g.unpaired)
	g.unpaired = slices.DeleteFunc(g.unpaired, func(u unpaired) bool { return u.seen < before })
	return len(g.unpaired) < n
}
