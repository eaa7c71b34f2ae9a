package dcgm

import "time"

// How long the engine keeps the samples of fields of which every one is read: long enough for Reads
// that come late. Events are rare and must not be lost, so that their number has no limit; other
// samples are many and have both limits.
const (
	minKeepEvents      = 5 * time.Minute
	keepEventIntervals = 10

	minKeepTrails      = 10 * time.Second
	keepTrailIntervals = 3    // collection intervals
	maxKeepTrails      = 6000 // a minute of samples 10 ms apart
)

// retention returns how long the engine is to keep samples, and how many of a field; zero is no
// limit.
func (s *Session) retention(key sampling) (age time.Duration, samples int) {
	switch {
	case key.history:
		return max(minKeepEvents, keepEventIntervals*key.interval), 0
	case key.every:
		age = max(minKeepTrails, keepTrailIntervals*max(s.plan.Interval, key.interval))
		return age, int(min(age/max(key.interval, 1)+keepSamples, maxKeepTrails))
	default:
		return 0, keepSamples
	}
}

// firstSample returns where the first read of every sample begins, in the engine's microseconds: of
// what has a history with all that the engine still has, else with what is sampled for this
// session, since another client of the engine may have had the field sampled for long.
func (s *Session) firstSample(key sampling) int64 {
	if key.history || !key.every {
		return 0
	}
	begin := time.Now().Add(-key.interval)
	if s.clock.foreign {
		begin = begin.Add(-s.clock.tolerance) // by which its clock may be off without being corrected
	}
	return max(0, (begin.UnixNano()-s.clock.dates.current())/1000)
}
