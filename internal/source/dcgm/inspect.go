package dcgm

import (
	"fmt"
	"slices"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// leaveOut records that a row is lost and cannot be watched.
func (inv *inventory) leaveOut(row int) {
	if d := &inv.top.Devices[row]; !inv.absent[row] {
		inv.absent[row] = true
		if isOfGPU(d.Entity) && !slices.Contains(inv.layout.unread, d.GPU) {
			inv.layout.unread, inv.layout.lost = append(inv.layout.unread, d.GPU), append(inv.layout.lost, d.GPU)
		}
		inv.log.Warn("Lost device skipped until it returns", "device", d.Entity.String())
	}
}

// An inspection makes three calls. It runs every inspectIntervals intervals, and at least every inspectPace.
const (
	inspectIntervals = 5
	inspectPace      = 5 * time.Second
)

// inspectDue reports whether this Read must inspect. It must if an inspection is due, if a GPU is lost or partitioned,
// or if a GPU has fewer values than before, as a lost GPU has. On a partitioned GPU, an instance ID may belong to
// another instance by the next Read.
func (inv *inventory) inspectDue(now time.Time) bool {
	pace := min(inspectIntervals*inv.plan.Interval, max(inspectPace, inv.plan.Interval))
	due := now.Sub(inv.inspected) >= pace*9/10 || len(inv.layout.instances) > 0 || slices.Contains(inv.lost, true)
	for row, n := range inv.valued {
		due = due || n < inv.valuedBy[row]
	}
	inv.valued, inv.valuedBy = inv.valuedBy, inv.valued
	return due
}

// inspect adds faults for lost GPUs, and records a change of the set of entities. A GPU that can be read but has no
// watches is also a change: it could not be read when the session was opened, or was detached meanwhile.
func (inv *inventory) inspect(b *gpu.Batch, now time.Time) error {
	if !inv.inspectDue(now) {
		return nil
	}
	inv.inspected = now
	supported, err := inv.engine.supported()
	if err != nil {
		return err
	}
	for _, id := range inv.layout.unread {
		if slices.Contains(supported, id) {
			inv.changed("GPU %d can be read again", id)
		}
	}
	states := map[uint32]error{}
	for row := range inv.top.Devices {
		d := &inv.top.Devices[row]
		inv.lost[row] = isOfGPU(d.Entity) && !slices.Contains(supported, d.GPU)
		if !inv.lost[row] {
			// inspectDue has swapped valued and valuedBy: the row had values before and has none now.
			lostWatches := inv.unwatched[row] && inv.valued[row] > 0 && inv.valuedBy[row] == 0 && isOfGPU(d.Entity)
			if inv.detached[row] || lostWatches {
				inv.changed("GPU %d was detached and attached", d.GPU)
			}
			continue
		}
		if states[d.GPU] == nil {
			state := inv.engine.status(d.GPU)
			states[d.GPU] = fmt.Errorf("%w: GPU %d is %v", gpu.ErrLost, d.GPU, state)
			inv.detached[row] = state == statusDetached
		}
		b.FailPart(row, gpu.PartEntity, states[d.GPU])
	}
	if err := inv.identifyAgain(now); err != nil {
		return err
	}
	return inv.compareLayout()
}

// identifyAgain records a change if a device now reports its identity, because the topology of a session does not
// change.
func (inv *inventory) identifyAgain(now time.Time) error {
	before := inv.unidentified
	if len(before) == 0 || now.Sub(inv.identified) < inv.retryAfter {
		return nil
	}
	if _, _, err := inv.identify(before); err != nil {
		inv.identified = now
		return reopenOnly(err)
	}
	if len(inv.unidentified) < len(before) {
		inv.changed("devices that now report their identity: %d", len(before)-len(inv.unidentified))
	}
	return nil
}

// compareLayout records a change if entities were added or removed, or a GPU was repartitioned.
func (inv *inventory) compareLayout() error {
	gpus, err := inv.engine.entities(groupGPU)
	if err != nil {
		return err
	}
	if gpus = sortedSet(gpus); !slices.Equal(gpus, inv.layout.gpus) {
		inv.changed("GPUs changed from %v to %v", inv.layout.gpus, gpus)
	}
	others, err := inv.listOthers()
	if err != nil {
		return err
	}
	for kind, err := range others.failed {
		if err == nil && !slices.Equal(others.of(kind), inv.layout.others.of(kind)) {
			inv.changed("entities of kind %v changed; there are now %d", kind, len(others.of(kind)))
		}
	}
	instances, err := inv.engine.instances()
	if err != nil {
		return reopenOnly(err)
	}
	if !slices.Equal(sorted(instances), inv.layout.instances) {
		inv.changed("the MIG instances changed")
		for row, e := range inv.members { // an instance that answers may be a different one by now
			inv.lost[row] = inv.lost[row] || e.group == groupInstance
		}
	}
	return nil
}

// changed records a change of the entities. Only the first one is kept.
func (inv *inventory) changed(format string, args ...any) {
	if inv.change == nil {
		inv.change = fmt.Errorf("dcgm: %w: %s", gpu.ErrTopology, fmt.Sprintf(format, args...))
	}
}
