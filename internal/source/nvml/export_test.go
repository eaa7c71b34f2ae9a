//go:build linux && cgo

package nvml

// Age makes profiling samples old enough to be compared, so that benchmarks do not wait for gpmInterval.
func (s *Session) Age() {
	for _, d := range s.devices {
		for _, r := range d.rows {
			r.gpm.taken = r.gpm.taken.Add(-gpmInterval)
		}
	}
}
