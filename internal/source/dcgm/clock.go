package dcgm

// A clock converts times of the engine to times of this machine.
type clock struct {
	foreign bool  // the engine runs on another machine and has another clock
	now     int64 // when the latest call for newest samples returned, in Unix nanoseconds
	newest  int64 // newest sample of a remote engine, in its microseconds; see dateAt
}

// dateAt returns the time of a new sample. The clock of a remote engine may be wrong, drift, or be set. So the time is
// that of the first Read that has the sample, minus the sample's distance to the newest sample of that Read. It is at
// most one interval too late.
func (c *clock) dateAt(at int64) int64 {
	date := at * 1000
	if !c.foreign {
		return date
	}
	if c.newest > 0 {
		date = c.now - (c.newest-at)*1000
	}
	return min(date, c.now)
}

// dateOf returns the time of a sample and makes the sample the newest of its slot. A sample has the same time in every
// Read. Trails stay in time order unless the engine's clock is set back.
func (c *clock) dateOf(slot *slot, at int64) int64 {
	if at == slot.at {
		return slot.date
	}
	date := c.dateAt(at)
	if slot.watch.every && at > slot.at {
		date = max(date, slot.date+1)
	}
	slot.at, slot.date = at, date
	return date
}
