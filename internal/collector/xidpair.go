package collector

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
	// maxUnpaired bounds the XIDs of a GPU that wait.
	maxUnpaired = 1024
)

// An unpaired is an XID that one source told and the other may yet tell. It
// happened between from and to: some engines date an XID by the Read that found
// it.
type unpaired struct {
	kernel   bool
	code     int64
	from, to int64
	seen     int64 // the Read that came with it
}

// pair reports whether an XID is new. It is not if the other source told it
// before; each is paired with one at most, the oldest first, so that two of one
// source stay two.
func (g *gpuEvents) pair(e unpaired) bool {
	at := slices.IndexFunc(g.unpaired, func(u unpaired) bool {
		return u.kernel != e.kernel && u.code == e.code &&
			u.from-int64(pairWindow) <= e.to && e.from-int64(pairWindow) <= u.to
	})
	if at >= 0 {
		g.unpaired = slices.Delete(g.unpaired, at, at+1)
		return false
	}
	if len(g.unpaired) == maxUnpaired {
		g.unpaired = slices.Delete(g.unpaired, 0, 1)
	}
	g.unpaired = append(g.unpaired, e)
	return true
}

// forget drops what waited since before a time, and reports whether it did.
func (g *gpuEvents) forget(before int64) bool {
	n := len(g.unpaired)
	g.unpaired = slices.DeleteFunc(g.unpaired, func(u unpaired) bool { return u.seen < before })
	return len(g.unpaired) < n
}
