package dcgm

import (
	"sync/atomic"
	"time"
)

// tolerance is how far the engine's clock may seem off before it is corrected:
// the sampling thread needs its time, and clocks that NTP keeps differ by less.
const tolerance = 2 * time.Second

// A clock translates the engine's time into this machine's. An engine on this
// machine needs no translation; for another one the offset is estimated where
// a sample is known to be new: at Open, right after the engine was told to
// sample, and in a Read whose newest sample is a new one and yet lies in the
// future or is older than any sample can be that is still being renewed.
//
// No two estimates are quite the same. What one session told, the next tells
// again, and it must have the same time to be known for it: hence the offset of
// the sessions before is kept for as long as it fits.
type clock struct {
	foreign bool
	found   *atomic.Int64 // the latest offset of any session of the Source
	offset  int64         // nanoseconds to add to the engine's time
	newest  int64         // the newest sample of the Read before, in the engine's nanoseconds
}

// start estimates the offset from the newest of samples that were taken
// between two moments of this machine's clock (all in nanoseconds).
func (c *clock) start(newest, from, to int64) {
	if !c.foreign || newest <= 0 {
		return
	}
	c.newest = newest
	for _, offset := range []int64{c.found.Load(), 0} {
		if at := newest + offset; at >= from-int64(tolerance) && at <= to+int64(tolerance) {
			c.offset = offset
			return
		}
	}
	c.set(to - newest)
}

func (c *clock) set(offset int64) {
	c.offset = offset
	c.found.Store(offset)
}

// observe corrects the offset by the newest sample of a Read at the moment
// now. It returns by how much to correct the times of that Read. maxAge is how
// old a sample can be while the engine works.
func (c *clock) observe(newest, now int64, maxAge time.Duration) int64 {
	if !c.foreign || newest <= 0 || newest == c.newest {
		return 0
	}
	c.newest = newest
	age := now - (newest + c.offset)
	if age >= -int64(tolerance) && age <= int64(maxAge+tolerance) {
		return 0
	}
	c.set(c.offset + age)
	return age
}
