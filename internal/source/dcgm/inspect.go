package dcgm

import (
	"fmt"
	"slices"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// An inspector finds lost GPUs, and changes of the entities that end the session. All slices are by row.
type inspector struct {
	*inventory

	absent   []bool // the GPU was lost when the session opened, so it is in no group
	lost     []bool // lost according to the latest inspection
	detached []bool // the GPU was detached in this session, so the engine has dropped its watches

	unwatched []bool // in the current Read, the engine reported that a field is not watched
	valued    []int  // number of fields with a value in the current Read
	valuedBy  []int  // the same for the previous Read

	inspected time.Time // time of the latest inspection
	change    error     // first change that ends the session
}

// start prepares the inspector for the entities of its inventory.
func (i *inspector) start() error {
	n := len(i.top.Devices)
	i.absent, i.lost, i.detached, i.unwatched = make([]bool, n), make([]bool, n), make([]bool, n), make([]bool, n)
	i.valued, i.valuedBy = make([]int, n), make([]int, n)
	for row := range i.top.Devices {
		d := &i.top.Devices[row]
		i.absent[row] = isOfGPU(d.Entity) && slices.Contains(i.layout.lost, d.GPU)
	}
	return nil
}

// leaveOut records that a row is lost and cannot be watched.
func (i *inspector) leaveOut(row int) {
	if d := &i.top.Devices[row]; !i.absent[row] {
		i.absent[row] = true
		if isOfGPU(d.Entity) && !slices.Contains(i.layout.unread, d.GPU) {
			i.layout.unread, i.layout.lost = append(i.layout.unread, d.GPU), append(i.layout.lost, d.GPU)
		}
		i.log.Warn("Lost device skipped until it returns", "device", d.Entity.String())
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
func (i *inspector) inspectDue(now time.Time) bool {
	pace := min(inspectIntervals*i.plan.Interval, max(inspectPace, i.plan.Interval))
	due := now.Sub(i.inspected) >= pace*9/10 || len(i.layout.instances) > 0 || slices.Contains(i.lost, true)
	for row, n := range i.valued {
		due = due || n < i.valuedBy[row]
	}
	i.valued, i.valuedBy = i.valuedBy, i.valued
	return due
}

// inspect adds faults for lost GPUs, and records a change of the set of entities. A GPU that can be read but has no
// watches is also a change: it could not be read when the session was opened, or was detached meanwhile.
func (i *inspector) inspect(b *gpu.Batch, now time.Time) error {
	if !i.inspectDue(now) {
		return nil
	}
	i.inspected = now
	supported, err := i.engine.supported()
	if err != nil {
		return err
	}
	for _, id := range i.layout.unread {
		if slices.Contains(supported, id) {
			i.changed("GPU %d can be read again", id)
		}
	}
	states := map[uint32]error{}
	for row := range i.top.Devices {
		d := &i.top.Devices[row]
		i.lost[row] = isOfGPU(d.Entity) && !slices.Contains(supported, d.GPU)
		if !i.lost[row] {
			// inspectDue has swapped valued and valuedBy: the row had values before and has none now.
			lostWatches := i.unwatched[row] && i.valued[row] > 0 && i.valuedBy[row] == 0 && isOfGPU(d.Entity)
			if i.detached[row] || lostWatches {
				i.changed("GPU %d was detached and attached", d.GPU)
			}
			continue
		}
		if states[d.GPU] == nil {
			state := i.engine.status(d.GPU)
			states[d.GPU] = fmt.Errorf("%w: GPU %d is %v", gpu.ErrLost, d.GPU, state)
			i.detached[row] = state == statusDetached
		}
		b.FailPart(row, gpu.PartEntity, states[d.GPU])
	}
	if err := i.identifyAgain(now); err != nil {
		return err
	}
	return i.compareLayout()
}

// identifyAgain records a change if a device now reports its identity, because the topology of a session does not
// change.
func (i *inspector) identifyAgain(now time.Time) error {
	before := i.unidentified
	if len(before) == 0 || now.Sub(i.identified) < i.retryAfter {
		return nil
	}
	if _, _, err := i.identify(before); err != nil {
		i.identified = now
		return reopenOnly(err)
	}
	if len(i.unidentified) < len(before) {
		i.changed("devices that now report their identity: %d", len(before)-len(i.unidentified))
	}
	return nil
}

// compareLayout records a change if entities were added or removed, or a GPU was repartitioned.
func (i *inspector) compareLayout() error {
	gpus, err := i.engine.entities(groupGPU)
	if err != nil {
		return err
	}
	if gpus = sortedSet(gpus); !slices.Equal(gpus, i.layout.gpus) {
		i.changed("GPUs changed from %v to %v", i.layout.gpus, gpus)
	}
	others, err := i.listOthers()
	if err != nil {
		return err
	}
	for kind, err := range others.failed {
		if err == nil && !slices.Equal(others.of(kind), i.layout.others.of(kind)) {
			i.changed("entities of kind %v changed; there are now %d", kind, len(others.of(kind)))
		}
	}
	instances, err := i.engine.instances()
	if err != nil {
		return reopenOnly(err)
	}
	if !slices.Equal(sorted(instances), i.layout.instances) {
		i.changed("the MIG instances changed")
		for row, e := range i.members { // an instance that answers may be a different one by now
			i.lost[row] = i.lost[row] || e.group == groupInstance
		}
	}
	return nil
}

// changed records a change of the entities. Only the first one is kept.
func (i *inspector) changed(format string, args ...any) {
	if i.change == nil {
		i.change = fmt.Errorf("dcgm: %w: %s", gpu.ErrTopology, fmt.Sprintf(format, args...))
	}
}
