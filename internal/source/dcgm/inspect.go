package dcgm

import (
	"fmt"
	"slices"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// leaveOut records that a row is lost and cannot be watched.
func (s *Session) leaveOut(row int) {
	if d := &s.top.Devices[row]; !s.absent[row] {
		s.absent[row] = true
		if isOfGPU(d.Entity) && !slices.Contains(s.layout.unread, d.GPU) {
			s.layout.unread, s.layout.lost = append(s.layout.unread, d.GPU), append(s.layout.lost, d.GPU)
		}
		s.log.Warn("Lost device skipped until it returns", "device", d.Entity.String())
	}
}

// An inspection makes three calls. It runs every inspectIntervals intervals, and at least every inspectPace.
const (
	inspectIntervals = 5
	inspectPace      = 5 * time.Second
)

// inspectDue reports whether this Read must inspect. It must if an inspection is due, if a GPU is lost or partitioned (an
// instance ID may belong to another instance by the next Read), or if a GPU has fewer values than before, as a lost GPU
// has.
func (s *Session) inspectDue(now time.Time) bool {
	pace := min(inspectIntervals*s.plan.Interval, max(inspectPace, s.plan.Interval))
	due := now.Sub(s.inspected) >= pace*9/10 || len(s.layout.instances) > 0 || slices.Contains(s.lost, true)
	for row, n := range s.valued {
		due = due || n < s.valuedBy[row]
	}
	s.valued, s.valuedBy = s.valuedBy, s.valued
	return due
}

// inspect adds faults for lost GPUs, and ends the session if the set of entities has changed. It also ends the session
// if a GPU can be read but has no watches. That happens if the GPU could not be read when the session was opened, or
// was detached meanwhile.
func (s *Session) inspect(b *gpu.Batch, now time.Time) error {
	if !s.inspectDue(now) {
		return nil
	}
	s.inspected = now
	supported, err := s.engine.supported()
	if err != nil {
		return err
	}
	for _, id := range s.layout.unread {
		if slices.Contains(supported, id) {
			s.changed("GPU %d can be read again", id)
		}
	}
	states := map[uint32]error{}
	for row := range s.top.Devices {
		d := &s.top.Devices[row]
		s.lost[row] = isOfGPU(d.Entity) && !slices.Contains(supported, d.GPU)
		if !s.lost[row] {
			if s.detached[row] || s.lostWatches(row) {
				s.changed("GPU %d was detached and attached", d.GPU)
			}
			continue
		}
		if states[d.GPU] == nil {
			state := s.engine.status(d.GPU)
			states[d.GPU] = fmt.Errorf("%w: GPU %d is %v", gpu.ErrLost, d.GPU, state)
			s.detached[row] = state == statusDetached
		}
		b.FailPart(row, gpu.PartEntity, states[d.GPU])
	}
	if err := s.identifyAgain(now); err != nil {
		return err
	}
	return s.compareLayout()
}

// lostWatches reports whether the engine has dropped the watches of a row: the row had values before and has none now,
// and the engine reports that a field is not watched.
func (s *Session) lostWatches(row int) bool {
	had, has := s.valued[row], s.valuedBy[row] // inspectDue has swapped them
	return s.unwatched[row] && had > 0 && has == 0 && isOfGPU(s.top.Devices[row].Entity)
}

// identifyAgain ends the session if a device now reports its identity, because the topology of a session does not
// change.
func (s *Session) identifyAgain(now time.Time) error {
	before := s.unidentified
	if len(before) == 0 || now.Sub(s.identified) < s.retry {
		return nil
	}
	if _, _, err := s.identify(before); err != nil {
		s.identified = now
		return reopenOnly(err)
	}
	if len(s.unidentified) < len(before) {
		s.changed("%d devices now report their identity", len(before)-len(s.unidentified))
	}
	return nil
}

// compareLayout ends the session if entities were added or removed, or a GPU was repartitioned.
func (s *Session) compareLayout() error {
	gpus, err := s.engine.entities(groupGPU)
	if err != nil {
		return err
	}
	if gpus = sortedSet(gpus); !slices.Equal(gpus, s.layout.gpus) {
		s.changed("GPUs changed from %[2]v to %[1]v", gpus, s.layout.gpus)
	}
	others, err := s.listOthers()
	if err != nil {
		return err
	}
	for kind, err := range others.failed {
		if err == nil && !slices.Equal(others.of(kind), s.layout.others.of(kind)) {
			s.changed("entities of kind %[2]v changed; there are now %[1]d", len(others.of(kind)), kind)
		}
	}
	instances, err := s.engine.instances()
	if err != nil {
		return reopenOnly(err)
	}
	if slices.Equal(sorted(instances), s.layout.instances) {
		return nil
	}
	s.changed("the MIG instances changed")
	for row := range s.top.Devices {
		// An instance that answers may be a different one by now.
		if s.members[row].group == groupInstance {
			s.lost[row] = true
		}
	}
	return nil
}

// changed ends the session because the topology has changed.
func (s *Session) changed(format string, args ...any) {
	_ = s.End(fmt.Errorf("dcgm: %w: %s", gpu.ErrTopology, fmt.Sprintf(format, args...)))
}
