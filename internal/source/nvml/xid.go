//go:build linux && cgo

package nvml

import (
	"fmt"
	"time"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// maxDrain bounds how many events one Read takes from a GPU; what is left
// waits in the driver for the next.
const maxDrain = 4096

// wholeGPU is the instance id of events that name no instance (nvml.h,
// nvmlEventData_t).
const wholeGPU = 0xFFFFFFFF

// An eventQueue is the driver's queue of one GPU's XIDs. Each GPU has its own,
// so that a lost GPU cannot keep the others' events back.
//
// Before its first XID a GPU has no sample, and no fault: the field is read,
// and nothing happened.
type eventQueue struct {
	set     gonvml.EventSet // nil if the driver refused
	field   int             // the index of the XID field in the plan
	refused error           // why there is no set
	rows    []*row          // of the GPU and its instances, where the field exists
	hasGI   bool            // the driver tells the instance of an event
}

// listen registers for the XIDs of a GPU if the plan has the field.
func (s *Session) listen(d *device) {
	for i := range s.plan.Fields {
		f := &s.plan.Fields[i]
		if f.ID != catalog.XIDErrors {
			continue
		}
		q := &eventQueue{field: i}
		for _, r := range d.rows {
			if f.Levels.Has(r.kind) {
				q.rows = append(q.rows, r)
			}
		}
		if len(q.rows) == 0 {
			return
		}
		q.hasGI = s.symbols.has("nvmlEventSetWait_v2")
		q.refused = q.register(s, d)
		d.events = q
		return
	}
}

func (q *eventQueue) register(s *Session, d *device) error {
	for _, name := range []string{"nvmlEventSetCreate", "nvmlDeviceRegisterEvents", "nvmlEventSetFree"} {
		if !s.symbols.has(name) {
			return fmt.Errorf("%w: this driver has no %s", gpu.ErrNotSupported, name)
		}
	}
	if !s.symbols.any([]string{"nvmlEventSetWait_v2", "nvmlEventSetWait"}) {
		return fmt.Errorf("%w: this driver has no nvmlEventSetWait_v2", gpu.ErrNotSupported)
	}
	set, ret := s.api.EventSetCreate()
	if ret != gonvml.SUCCESS {
		return &driverError{"nvmlEventSetCreate", ret}
	}
	if ret := d.handle.RegisterEvents(gonvml.EventTypeXidCriticalError, set); ret != gonvml.SUCCESS {
		set.Free()
		return &driverError{"nvmlDeviceRegisterEvents", ret}
	}
	q.set = set
	return nil
}

// drain appends all XIDs since the previous call, oldest first. The driver
// does not date them: each gets the time of the drain, a nanosecond after the
// one before it, so that none passes for another.
func (q *eventQueue) drain(b *gpu.Batch) {
	if q == nil {
		return
	}
	if q.set == nil {
		q.fail(b, q.refused)
		return
	}
	at := time.Now().UnixNano()
	for i := range int64(maxDrain) {
		event, ret := q.set.Wait(0)
		switch {
		case ret == gonvml.ERROR_TIMEOUT || gpuGone(ret) || driverGone(ret):
			return // no more of them; what is lost shows when it is read
		case ret != gonvml.SUCCESS:
			q.fail(b, &driverError{"nvmlEventSetWait_v2", ret})
			return
		}
		if event.EventType != gonvml.EventTypeXidCriticalError {
			continue
		}
		for _, r := range q.rows {
			if r.kind == gpu.KindGPU || q.hasGI && event.GpuInstanceId != wholeGPU && r.gi == int(event.GpuInstanceId) {
				b.AddAt(r.index, q.field, gpu.Int(int64(event.EventData)), at+i)
			}
		}
	}
}

// fail says why the XIDs of the GPU and its instances are not known.
func (q *eventQueue) fail(b *gpu.Batch, err error) {
	for _, r := range q.rows {
		b.Fail(r.index, q.field, err)
	}
}

func (q *eventQueue) free() {
	if q != nil && q.set != nil {
		q.set.Free()
		q.set = nil
	}
}
