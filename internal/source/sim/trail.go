package sim

import (
	"slices"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// mostTrail bounds the samples of one cell in a Read: an engine keeps no more either.
const mostTrail = 600

// sampleTrails takes the samples that the engine took until now, those of now excluded, for every
// open session: once the world has moved on, what lies behind it cannot be looked at again. The
// caller holds mu.
func (src *Source) sampleTrails(now int64) {
	for {
		next := now
		for _, s := range src.trailing {
			next = min(next, s.nextSample(now))
		}
		if next >= now {
			return
		}
		src.world.advance(next)
		for _, s := range src.trailing {
			s.sample(next, now)
		}
	}
}

// follow has the samples of an open session taken by every Read of the source, and leave ends that.
// The caller holds mu.
func (src *Source) follow(s *Session) {
	if len(s.every) > 0 {
		src.trailing = append(src.trailing, s)
	}
}

func (src *Source) leave(s *Session) {
	src.trailing = slices.DeleteFunc(src.trailing, func(x *Session) bool { return x == s })
}

// sample takes the samples of a time before now. Samples are taken at multiples of a field's
// interval, no matter when they are read. Faults that change values are those of the sample's time,
// so that a spike which is over before the Read shows here alone.
func (s *Session) sample(at, now int64) {
	s.sampled = at
	if w := s.src.world; w.applied != s.epoch || w.resets != s.resets {
		return // the session is about to end, or begins again
	}
	if most := mostTrail * len(s.every); len(s.pending.Trails) > 2*most { // it is open and not read
		s.pending.Trails = slices.Delete(s.pending.Trails, 0, len(s.pending.Trails)-most)
	}
	for _, i := range s.every {
		if c := &s.cells[i]; c.events == nil && at%s.sampleInterval(c) == 0 && at >= now-mostTrail*s.sampleInterval(c) {
			s.sampleCell(c, at)
		}
	}
}

// readTrails reports the samples that were taken since the previous Read, oldest first; the sample
// of now follows with those of the other fields.
func (s *Session) readTrails(b *gpu.Batch, now int64) {
	if now < s.last { // the clock was set back
		for _, i := range s.every {
			s.cells[i].trailed = 0
		}
		s.sampled = now
	}
	s.src.sampleTrails(now)
	for _, x := range s.pending.Trails {
		if now-x.Time <= mostTrail*int64(s.plan.IntervalOf(x.Field)) {
			b.Trails = append(b.Trails, x)
		}
	}
	s.pending.Reset()
	s.sampled = now
}

func (s *Session) sampleInterval(c *cell) int64 { return int64(s.plan.IntervalOf(c.field)) }

// nextSample returns when some field is sampled next, now at the latest.
func (s *Session) nextSample(now int64) int64 {
	next, after := now, max(s.sampled, s.src.world.t0-1)
	for _, i := range s.every {
		every := s.sampleInterval(&s.cells[i])
		next = min(next, (max(after, now-mostTrail*every-1)/every+1)*every)
	}
	return next
}

// sampleCell takes the sample of a cell at a time.
func (s *Session) sampleCell(c *cell, at int64) {
	elapsed, b := s.src.elapsed(at), &s.pending
	if c.gen == nil || s.lostAt(c.row, elapsed) {
		return
	}
	for _, f := range c.faults {
		if !f.within(elapsed) {
			continue
		}
		switch field := &s.plan.Fields[c.field]; f.kind {
		case faultSpike:
			c.trail(b, garbage(f, field), at)
		case faultSet:
			c.trail(b, f.given(field, f.unitOf(field)), at)
		}
		return
	}
	c.trail(b, s.value(c), at)
}

func (s *Session) lostAt(row int, elapsed time.Duration) bool {
	for i := range s.lost {
		if o := &s.lost[i]; o.row == row && o.fault.within(elapsed) {
			return true
		}
	}
	return false
}
