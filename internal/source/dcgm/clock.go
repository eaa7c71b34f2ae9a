package dcgm

// dateAt returns the time of a new sample. The clock of a remote engine may be wrong, drift, or be set. So the time is
// that of the first Read that has the sample, minus the sample's distance to the newest sample of that Read. It is at
// most one interval too late.
func (s *Session) dateAt(at int64) int64 {
	if !s.foreign {
		return at * 1000
	}
	date := at * 1000
	if s.newest > 0 {
		date = s.now - (s.newest-at)*1000
	}
	return min(date, s.now)
}

// setNewest records the newest sample of a remote engine. XIDs and failed samples are ignored.
func (s *Session) setNewest(r readout) {
	if !s.foreign {
		return
	}
	newest := int64(0)
	s.each(r, nil, func(row, f int, x *sample) {
		if w := s.slot(row, f).watch; w != nil && !w.sporadic && x.status == 0 {
			newest = max(newest, x.at)
		}
	})
	if newest > 0 {
		s.newest = newest
	}
}
