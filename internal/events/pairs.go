package events

import (
	"slices"
	"time"
)

const (
	// pairWindow is how far apart two witnesses may date one XID.
	pairWindow = 5 * time.Second
	// pairMemory is how long an XID of one witness waits for the other's, beside two Reads.
	pairMemory = 2 * pairWindow
	// stormGap is how far apart equal XIDs are at most that wait as one entry.
	stormGap = time.Second
	// maxUnpaired bounds the entries of a GPU that wait. The oldest is dropped: if the other witness
	// reports its XIDs after all, they count twice.
	maxUnpaired = 1024
)

// Unpaired are XIDs that one witness reported and the other may yet report: Count of one code,
// which happened between From and To (uptimes).
type Unpaired struct {
	Kernel bool // the kernel's log reported them, else the engine
	Code   int64
	Count  int64
	From   int64
	To     int64
	seen   int64 // the Read that came with them (uptime)
}

// pairs are the XIDs of a GPU that wait for the other witness, oldest first.
type pairs struct{ waiting []Unpaired }

// add reports whether an XID is new. It is not if the other witness reported it before. Both report
// in the order of their XIDs, so that the first that waits is the one that is meant; each is paired
// with one at most, so that two of one witness stay two. Dropped is how many had to stop waiting.
func (p *pairs) add(e Unpaired) (isNew bool, dropped int64) {
	at := slices.IndexFunc(p.waiting, func(u Unpaired) bool {
		return u.Kernel != e.Kernel && u.Code == e.Code && u.near(&e, pairWindow)
	})
	if at >= 0 {
		if p.waiting[at].Count--; p.waiting[at].Count == 0 {
			p.waiting = slices.Delete(p.waiting, at, at+1)
		}
		return false, 0
	}
	at = slices.IndexFunc(p.waiting, func(u Unpaired) bool {
		return u.Kernel == e.Kernel && u.Code == e.Code && u.seen == e.seen && u.near(&e, stormGap)
	})
	if at >= 0 {
		u := &p.waiting[at]
		u.From, u.To, u.Count = min(u.From, e.From), max(u.To, e.To), u.Count+e.Count
		return true, 0
	}
	if len(p.waiting) == maxUnpaired {
		dropped = p.waiting[0].Count
		p.waiting = slices.Delete(p.waiting, 0, 1)
	}
	p.waiting = append(p.waiting, e)
	return true, dropped
}

// near reports whether the times of both can be as close as gap.
func (u *Unpaired) near(e *Unpaired, gap time.Duration) bool {
	return u.From-int64(gap) <= e.To && e.From-int64(gap) <= u.To
}

// forget drops what waited since before a time.
func (p *pairs) forget(before int64) {
	p.waiting = slices.DeleteFunc(p.waiting, func(u Unpaired) bool { return u.seen < before })
}
