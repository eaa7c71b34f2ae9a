package dcgm

import "time"

// tolerance is how far the engine's clock may seem off before it is corrected:
// the sampling thread needs its time, and clocks that NTP keeps differ by less.
const tolerance = 2 * time.Second

// A clock translates the engine's time into this machine's. An engine on this
// machine needs no translation; for another one the offset is estimated where
// a sample is known to be new: at Open, right after the engine was told to
// sample, and in a Read whose newest sample is a new one and yet lies in the
// future or is older than any sample can be that is still being renewed.
type clock struct {
	foreign bool
	offset  int64 // nanoseconds to add to the engine's time
	newest  int64 // the newest sample of the Read before, in the engine's nanoseconds
}

// start estimates the offset from the newest of samples that were taken
// between two moments of this machine's clock (all in nanoseconds).
func (c *clock) start(newest, from, to int64) {
	if !c.foreign || newest <= 0 {
		return
	}
	c.newest = newest
	if newest < from-int64(tolerance) || newest > to+int64(tolerance) {
		c.offset = to - newest
	}
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
	c.offset += age
	return age
}
