package sim

import (
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// mostBursts bounds the samples of one field of one entity in a Read: an
// engine keeps no more either.
const mostBursts = 600

// readBursts reports what the engine sampled since the previous Read, oldest
// first; the sample of now is that of every other field. Samples are taken at
// multiples of a field's interval, whoever reads and when. Faults that change
// values are those of the sample's time, so that a spike which is over before
// the Read shows here and nowhere else.
func (s *Session) readBursts(b *gpu.Batch, now int64) {
	if len(s.bursts) == 0 {
		return
	}
	w := s.src.world
	// What lies before the world's present segment cannot be looked at again.
	from := max(s.last, w.t0-1)
	for at := s.nextBurst(from, now); at < now; at = s.nextBurst(at, now) {
		w.advance(at)
		if w.applied != s.epoch || w.resets != s.resets {
			return // the session is about to end, or begins anew
		}
		for _, i := range s.bursts {
			if c := &s.cells[i]; at%s.burstInterval(c) == 0 && at >= now-mostBursts*s.burstInterval(c) {
				s.readBurst(c, b, at)
			}
		}
	}
}

func (s *Session) burstInterval(c *cell) int64 { return int64(s.plan.IntervalOf(c.field)) }

// nextBurst returns when after a time some field is sampled next, now at the
// latest.
func (s *Session) nextBurst(after, now int64) int64 {
	next := now
	for _, i := range s.bursts {
		every := s.burstInterval(&s.cells[i])
		next = min(next, (max(after, now-mostBursts*every-1)/every+1)*every)
	}
	return next
}

// readBurst reports the sample of a cell at a time before now.
func (s *Session) readBurst(c *cell, b *gpu.Batch, at int64) {
	elapsed := s.src.elapsed(at)
	if c.gen == nil || s.lostAt(c.row, elapsed) {
		return
	}
	for _, f := range c.faults {
		if !f.within(elapsed) {
			continue
		}
		switch field := &s.plan.Fields[c.field]; f.kind {
		case faultSpike:
			b.AddAt(c.row, c.field, garbage(f, field), at)
		case faultSet:
			b.AddAt(c.row, c.field, f.told(field, f.unitOf(field)), at)
		}
		return
	}
	b.AddAt(c.row, c.field, s.value(c), at)
}

func (s *Session) lostAt(row int, elapsed time.Duration) bool {
	for i := range s.lost {
		if o := &s.lost[i]; o.row == row && o.fault.within(elapsed) {
			return true
		}
	}
	return false
}
