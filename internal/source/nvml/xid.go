//go:build linux && cgo

package nvml

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// maxDrain is the maximum number of events that one Read takes from a GPU. Further events wait in the driver.
const maxDrain = 4096

// maxWaiting is the maximum number of events of a GPU that wait for a session that does not read.
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
	waiting  []queued // events that some session has not reported yet, oldest first
	queried  int64    // time of the latest query in Unix nanoseconds
}

// A queued is an event from the driver.
type queued struct {
	number      int64
	code        int64
	instance    uint32
	onInstance  bool // instance is set
	since, time int64
}

// An eventQueue is a session's view of a queue. It is nil if the XIDs of the GPU are not requested.
type eventQueue struct {
	queues   *queues
	queue    *queue // nil while the driver refuses to register events
	uuid     string
	field    int            // index of the XID field in the plan
	refused  backoff        // why queue is nil
	register func(*backoff) // joins a queue
	rows     []*row         // rows of the GPU and its instances that have the field
	number   int64          // number of the latest reported event
}

// listen joins the queue of a GPU if the plan has the XID field.
func (s *Session) listen(d *device, uuid string) {
	for i := range s.plan.Fields {
		f := &s.plan.Fields[i]
		if f.ID != catalog.XIDErrors {
			continue
		}
		q := &eventQueue{queues: s.queues, uuid: uuid, field: i}
		for _, r := range d.rows {
			if f.Levels.Has(r.kind) {
				q.rows = append(q.rows, r)
			}
		}
		if len(q.rows) == 0 {
			return
		}
		q.register = func(refused *backoff) { q.join(s, d, refused) }
		q.register(&q.refused)
		d.events = q
		return
	}
}

// join joins the queue of a GPU, or records why that is not possible.
func (q *eventQueue) join(s *Session, d *device, refused *backoff) {
	wait := "nvmlEventSetWait_v2"
	if s.symbols.has("nvmlEventSetWait") {
		wait = "nvmlEventSetWait"
	}
	if missing := s.symbols.missing("nvmlEventSetCreate", "nvmlDeviceRegisterEvents", "nvmlEventSetFree", wait); missing != "" {
		refused.never(fmt.Errorf("%w: this driver has no %s", gpu.ErrNotSupported, missing))
		return
	}
	q.queues.mu.Lock()
	defer q.queues.mu.Unlock()
	if q.queue = q.queues.open[q.uuid]; q.queue == nil {
		set, ok := subscribe(s, d, refused)
		if !ok {
			return
		}
		q.queue = &queue{
			set: set, hasGI: s.symbols.has("nvmlEventSetWait_v2"), sessions: map[*eventQueue]bool{}, queried: time.Now().UnixNano(),
		}
		if q.queues.open == nil {
			q.queues.open = map[string]*queue{}
		}
		q.queues.open[q.uuid] = q.queue
	}
	q.queue.sessions[q] = true
	q.number = q.queues.taken
}

// subscribe makes the driver queue the XIDs of a GPU, or records why it does not.
func subscribe(s *Session, d *device, refused *backoff) (gonvml.EventSet, bool) {
	now := time.Now()
	set, ret := s.api.EventSetCreate()
	if ret != gonvml.SUCCESS {
		refused.backOff("nvmlEventSetCreate", ret, now, s.reprobe)
		return nil, false
	}
	if ret := d.handle.RegisterEvents(gonvml.EventTypeXidCriticalError, set); ret != gonvml.SUCCESS {
		set.Free()
		refused.backOff("nvmlDeviceRegisterEvents", ret, now, s.reprobe)
		return nil, false
	}
	return set, true
}

// drain appends the XIDs since the previous call, oldest first.
func (q *eventQueue) drain(b *gpu.Batch) {
	if q == nil {
		return
	}
	if q.queue == nil && !q.refused.active(time.Now()) {
		q.register(&q.refused)
	}
	if q.queue == nil {
		q.fail(b, q.refused.err)
		return
	}
	q.queues.mu.Lock()
	defer q.queues.mu.Unlock()
	err := q.queues.fetch(q.queue)
	for i := range q.queue.waiting {
		if e := &q.queue.waiting[i]; e.number > q.number {
			q.number = e.number
			q.report(b, e)
		}
	}
	q.queue.trim()
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
		case ret == gonvml.ERROR_TIMEOUT || gpuGone(ret) || driverGone(ret):
			return nil // no more events, or the GPU is lost, which Read reports
		case ret != gonvml.SUCCESS:
			return &driverError{"nvmlEventSetWait_v2", ret}
		}
		if event.EventType != gonvml.EventTypeXidCriticalError {
			continue
		}
		s.taken++
		e := queued{number: s.taken, code: int64(event.EventData), since: since, time: at}
		if q.hasGI {
			e.instance, e.onInstance = event.GpuInstanceId, event.GpuInstanceId != noInstance
		}
		if len(q.waiting) == maxWaiting {
			q.waiting = slices.Delete(q.waiting, 0, 1)
		}
		q.waiting = append(q.waiting, e)
	}
	return nil
}

// trim drops the events that every session has reported.
func (q *queue) trim() {
	least := int64(math.MaxInt64)
	for other := range q.sessions {
		least = min(least, other.number)
	}
	q.waiting = slices.DeleteFunc(q.waiting, func(e queued) bool { return e.number <= least })
}

func (q *eventQueue) report(b *gpu.Batch, e *queued) {
	for _, r := range q.rows {
		if r.kind == gpu.KindGPU || e.onInstance && r.gi == int(e.instance) {
			x := gpu.XID{Row: r.index, Code: e.code, ID: e.number, Time: e.time, Since: e.since}
			if e.onInstance {
				x.OnInstance, x.InstanceID = true, e.instance
			}
			b.XIDs = append(b.XIDs, x)
		}
	}
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
	q.queues.mu.Lock()
	defer q.queues.mu.Unlock()
	delete(q.queue.sessions, q)
	if len(q.queue.sessions) == 0 {
		q.queue.set.Free()
		delete(q.queues.open, q.uuid)
	}
	q.queue = nil
}
