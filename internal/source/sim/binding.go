package sim

import (
	"slices"
	"time"
)

// bindings returns how often GPUs were unbound or bound again until a time since the start. While
// it stays the same, so do the GPUs that are there.
func (s *Source) bindings(elapsed time.Duration) (n int) {
	s.faults(faultUnbound, func(f *fault) bool {
		for _, edge := range []time.Duration{f.at, f.until} {
			if edge <= elapsed {
				n++
			}
		}
		return true
	})
	return n
}

// bind sets which GPUs of the world are bound to the driver at a time since the start.
func (s *Source) bind(elapsed time.Duration) {
	w := s.world
	for i := range w.gpus {
		g := &w.gpus[i]
		g.gone = false
		s.faults(faultUnbound, func(f *fault) bool {
			g.gone = f.within(elapsed) && slices.ContainsFunc(f.devices, func(r deviceRef) bool { return r.id == g.index })
			return !g.gone
		})
	}
}
