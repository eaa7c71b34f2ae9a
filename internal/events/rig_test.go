package events_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/loop"
)

const interval = 10 * time.Second

var gpuOnly = gpu.KindsOf(gpu.KindGPU)

// engine is a source whose GPUs have events that a test creates. Field 0 always has a value. Field 1 contains XIDs or
// clock event reasons.
type engine struct {
	mu       sync.Mutex
	topology *gpu.Topology
	xids     []gpu.XID    // what happened; each session has a position in it
	keeps    bool         // a new session starts with the oldest XID, not with the next one
	reasons  []gpu.Sample // samples of the next Read
	read     func(*gpu.Batch) error
	session  *engineSession
}

func newEngine() *engine { return &engine{topology: gpusAt("GPU-0")} }

func (e *engine) Open(context.Context, *gpu.Plan) (*engineSession, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := &engineSession{engine: e, topology: e.topology, done: make(chan struct{})}
	if !e.keeps && e.session != nil {
		s.next = e.session.next
	}
	e.session = s
	return s, nil
}

func (e *engine) do(change func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change()
}

// happen creates XIDs that have the same time.
func (e *engine) happen(at time.Time, codes ...int64) {
	e.do(func() {
		for _, code := range codes {
			e.xids = append(e.xids, gpu.XID{Code: code, ID: at.UnixMicro(), Time: at.UnixNano()})
		}
	})
}

// sample makes the next Read report clock event reasons.
func (e *engine) sample(at time.Time, masks ...int64) {
	e.do(func() {
		for _, mask := range masks {
			e.reasons = append(e.reasons, gpu.Sample{Field: 1, Value: gpu.Int(mask), Time: at.UnixNano()})
		}
	})
}

// add creates an XID.
func (e *engine) add(x gpu.XID) { e.do(func() { e.xids = append(e.xids, x) }) }

// end ends the session with err.
func (e *engine) end(err error) {
	e.do(func() {
		e.session.err = err
		close(e.session.done)
	})
}

// become replaces the topology.
func (e *engine) become(t *gpu.Topology) {
	e.do(func() { e.topology = t })
	e.end(gpu.ErrTopology)
	time.Sleep(interval / 10) // fake clock of the bubble
	synctest.Wait()
}

type engineSession struct {
	engine   *engine
	topology *gpu.Topology
	next     int // index in the engine's xids
	done     chan struct{}
	err      error
}

func (s *engineSession) Topology() *gpu.Topology { return s.topology }
func (s *engineSession) Done() <-chan struct{}   { return s.done }
func (s *engineSession) Close() error            { return nil }

func (s *engineSession) Err() error {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	return s.err
}

func (s *engineSession) Read(_ context.Context, _ gpu.ReadRequest, b *gpu.Batch) error {
	e := s.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	for row := range s.topology.Devices {
		b.Add(row, 0, gpu.Int(1), time.Now())
	}
	b.Trails = append(b.Trails, e.reasons...)
	e.reasons = nil
	for ; s.next < len(e.xids); s.next++ {
		if x := e.xids[s.next]; x.Row < len(s.topology.Devices) {
			b.XIDs = append(b.XIDs, x)
		}
	}
	if e.read != nil {
		return e.read(b)
	}
	return nil
}

// attributor returns the given owners of GPUs.
type attributor struct{ answer func() *gpu.Owners }

// pods returns an attributor of the given owners.
func pods(answer func() *gpu.Owners) []collector.Attributor {
	return []collector.Attributor{&attributor{answer}}
}

// ofPod returns the owners of a node whose first GPU has a pod.
func ofPod(name string) *gpu.Owners {
	return &gpu.Owners{Labels: [][]gpu.Label{{{Name: "pod", Value: name}}}}
}

func (p *attributor) Name() string { return "test" }

func (p *attributor) Attribute(context.Context, *gpu.Topology) (*gpu.Owners, error) {
	return p.answer(), nil
}

// testPlan returns a plan with a gauge and XIDs.
func testPlan() *gpu.Plan {
	return &gpu.Plan{
		Interval: interval,
		Devices:  gpu.Selector{Flex: true},
		Fields: []gpu.Field{
			{ID: 203, Name: "DCGM_FI_DEV_GPU_UTIL", Levels: gpuOnly, Range: &gpu.Range{Max: 100}},
			{ID: 230, Name: "DCGM_FI_DEV_XID_ERRORS", Levels: gpuOnly},
		},
		Counters: []gpu.Counter{{Name: "UTIL", Field: 0, Scale: 1}, {Name: "XID", Field: 1, Scale: 1}},
	}
}

// start runs a Loop until the test or bubble ends.
func start[S collector.Session](
	t *testing.T, open func(context.Context, *gpu.Plan) (S, error), adjust func(*loop.Options),
) *loop.Rig {
	r := loop.Start(t, collector.SourceOf(open), testPlan(), adjust)
	t.Cleanup(r.Stop)
	return r
}

// gauge returns the expected line of a row's XID gauge.
func gauge(row int, code int64) string {
	return fmt.Sprintf("XID{%d}[{err_code %d} {err_msg %s}] %d", row, code, catalog.XIDMessage(code), code)
}

// total returns the expected line of a row's counter of XIDs.
func total(row, code, count int) string {
	return fmt.Sprintf("%s{%d}[{xid %d}] %d", xidTotalFamily, row, code, count)
}

// inWindow returns the expected line of a row's XIDs in the window. Without labels, it has no XIDs.
func inWindow(row int, labels string, count int) string {
	if labels != "" {
		labels = " " + labels
	}
	return fmt.Sprintf("%s{%d}[{window_size_in_ms 300000}%s] %d", xidCountFamily, row, labels, count)
}

// lastSeen returns the expected line of the time of a row's latest XID with a code.
func lastSeen(row, code int, at time.Time) string {
	return fmt.Sprintf("%s{%d}[{xid %d}] %v", seenFamily, row, code, gpu.Float(float64(at.UnixNano())/1e9))
}
