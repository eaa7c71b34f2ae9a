//go:build linux && cgo

package nvml

import (
	"fmt"
	"slices"
	"sync"
	"time"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// maxDrain is the maximum number of events that one Read takes from a GPU. Further events wait in the driver.
const maxDrain = 4096

// maxWaiting limits the events of a GPU that wait for a session. Beyond it, the oldest are dropped.
const maxWaiting = 4 * maxDrain

// noInstance is the instance ID of events that name no instance (nvmlEventData_t, nvml.h).
const noInstance = 0xFFFFFFFF

// queues holds the driver's queues of XIDs. All sessions of a Source share them, so that an event has the same number
// in each session and is counted once. Each GPU has its own queue, so that a lost GPU does not hold back the events of
// others.
type queues struct {
	mu    sync.Mutex
	open  map[string]*queue // queues by GPU UUID
	taken int64             // number of events so far, which is the number of the latest
}

// A queue holds the events of one GPU.
type queue struct {
	set      gonvml.EventSet
	hasGI    bool // the driver reports the instance of an event
	sessions map[*eventQueue]bool
	queried  int64 // time of the latest query in Unix nanoseconds
}

// An eventQueue is a session's view of a queue. It is nil if the XIDs of the GPU are not requested.
type eventQueue struct {
	session *Session
	device  *device
	queue   *queue // nil while the driver refuses to register events
	uuid    string
	field   int       // index of the XID field in the plan
	refused backoff   // why queue is nil
	rows    []*row    // rows of the GPU and its instances that have the field
	waiting []gpu.XID // XIDs without a row that the session has not reported yet, oldest first
}

// listen joins the queue of a GPU if the plan has the XID field.
func (s *Session) listen(d *device, uuid string) {
	field := slices.IndexFunc(s.plan.Fields, func(f gpu.Field) bool { return f.ID == catalog.XIDErrors })
	if field < 0 {
		return
	}
	q := &eventQueue{session: s, device: d, uuid: uuid, field: field}
	for _, r := range d.rows {
		if s.plan.Fields[field].Levels.Has(r.kind) {
			q.rows = append(q.rows, r)
		}
	}
	if len(q.rows) > 0 {
		q.join()
		d.events = q
	}
}

// join joins the queue of a GPU, or records why that is not possible.
func (q *eventQueue) join() {
	s, shared := q.session, q.session.queues
	wait := "nvmlEventSetWait_v2"
	hasGI := s.symbols.has(wait)
	if s.symbols.has("nvmlEventSetWait") {
		wait = "nvmlEventSetWait"
	}
	missing := s.symbols.missing("nvmlEventSetCreate", "nvmlDeviceRegisterEvents", "nvmlEventSetFree", wait)
	if missing != "" {
		q.refused.never(fmt.Errorf("%w: this driver has no %s", gpu.ErrNotSupported, missing))
		return
	}
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if q.queue = shared.open[q.uuid]; q.queue == nil {
		set := q.subscribe()
		if set == nil {
			return
		}
		q.queue = &queue{set: set, hasGI: hasGI, sessions: map[*eventQueue]bool{}, queried: time.Now().UnixNano()}
		if shared.open == nil {
			shared.open = map[string]*queue{}
		}
		shared.open[q.uuid] = q.queue
	}
	q.queue.sessions[q] = true
}

// subscribe makes the driver queue the XIDs of a GPU. If the driver refuses, it returns nil and records the reason.
func (q *eventQueue) subscribe() gonvml.EventSet {
	now := time.Now()
	set, ret := q.session.api.EventSetCreate()
	if ret != gonvml.SUCCESS {
		q.refused.record("nvmlEventSetCreate", ret, now)
		return nil
	}
	if ret := q.device.handle.RegisterEvents(gonvml.EventTypeXidCriticalError, set); ret != gonvml.SUCCESS {
		set.Free()
		q.refused.record("nvmlDeviceRegisterEvents", ret, now)
		return nil
	}
	return set
}

// drain appends the XIDs since the previous call, oldest first.
func (q *eventQueue) drain(b *gpu.Batch) {
	if q == nil {
		return
	}
	if q.queue == nil && !q.refused.active(time.Now()) {
		q.join()
	}
	if q.queue == nil {
		q.fail(b, q.refused.err)
		return
	}
	shared := q.session.queues
	shared.mu.Lock()
	defer shared.mu.Unlock()
	err := shared.fetch(q.queue)
	for _, x := range q.waiting {
		for _, r := range q.rows {
			if r.kind == gpu.KindGPU || x.OnInstance && r.gi == int(x.InstanceID) {
				x.Row = r.index
				b.XIDs = append(b.XIDs, x)
			}
		}
	}
	q.waiting = q.waiting[:0]
	if err != nil {
		q.fail(b, err)
	}
}

// fetch reads the events since the previous query. The driver does not report when they happened.
func (s *queues) fetch(q *queue) error {
	at := time.Now().UnixNano()
	since := min(q.queried, at)
	q.queried = at
	for range maxDrain {
		event, ret := q.set.Wait(0)
		switch {
		case ret == gonvml.ERROR_TIMEOUT || gone(ret):
			return nil // no more events, or the GPU is lost, which Read reports
		case ret != gonvml.SUCCESS:
			return &driverError{"nvmlEventSetWait_v2", ret}
		}
		if event.EventType != gonvml.EventTypeXidCriticalError {
			continue
		}
		s.taken++
		x := gpu.XID{ID: s.taken, Code: int64(event.EventData), Since: since, Time: at}
		if q.hasGI && event.GpuInstanceId != noInstance {
			x.OnInstance, x.InstanceID = true, event.GpuInstanceId
		}
		for session := range q.sessions {
			if len(session.waiting) == maxWaiting {
				session.waiting = slices.Delete(session.waiting, 0, 1)
			}
			session.waiting = append(session.waiting, x)
		}
	}
	return nil
}

// fail appends a fault for the XIDs of the GPU and its instances.
func (q *eventQueue) fail(b *gpu.Batch, err error) {
	for _, r := range q.rows {
		b.Fail(r.index, q.field, err)
	}
}

// free leaves the queue. The last session to leave closes it.
func (q *eventQueue) free() {
	if q == nil || q.queue == nil {
		return
	}
	shared := q.session.queues
	shared.mu.Lock()
	defer shared.mu.Unlock()
	delete(q.queue.sessions, q)
	if len(q.queue.sessions) == 0 {
		q.queue.set.Free()
		delete(shared.open, q.uuid)
	}
	q.queue = nil
}
