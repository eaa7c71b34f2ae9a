package events_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/loop"
)

const interval = 10 * time.Second

const (
	xidCountFamily, xidTotalFamily     = "DCGM_EXP_XID_ERRORS_COUNT", "DCGM_EXP_XID_ERRORS_TOTAL"
	clockCountFamily, clockTotalFamily = "DCGM_EXP_CLOCK_EVENTS_COUNT", "DCGM_EXP_CLOCK_EVENTS_TOTAL"
	clockSecondsFamily                 = "DCGM_EXP_CLOCK_EVENT_SECONDS_TOTAL"
	seenFamily                         = "DCGM_EXP_XID_LAST_SEEN_TIMESTAMP_SECONDS"
	detailFamily                       = "DCGM_EXP_XID_DETAILS_TOTAL"
	sxidFamily                         = "DCGM_EXP_NVSWITCH_SXID_ERRORS_TOTAL"
	sxidSeen                           = "dcgm_nvswitch_sxid_last_seen_timestamp_seconds"
)

var gpuOnly = gpu.KindsOf(gpu.KindGPU)

// engine is a source whose GPUs have events that a test creates. Field 0 has a value or clock event reasons. Field 1
// contains XIDs.
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
func (e *engine) sample(at time.Time, mask int64) {
	e.do(func() { e.reasons = append(e.reasons, gpu.Sample{Value: gpu.Int(mask), Time: at.UnixNano()}) })
}

// add creates an XID.
func (e *engine) add(x gpu.XID) { e.do(func() { e.xids = append(e.xids, x) }) }

// become replaces the topology.
func (e *engine) become(t *gpu.Topology) {
	e.do(func() {
		e.topology, e.session.err = t, gpu.ErrTopology
		close(e.session.done)
	})
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

func (a *attributor) Name() string { return "test" }

func (a *attributor) Attribute(context.Context, *gpu.Topology) (*gpu.Owners, error) {
	return a.answer(), nil
}

// owned requests the owners that answer returns.
func owned(answer func() *gpu.Owners) func(*loop.Options) {
	return func(o *loop.Options) { o.Attributors = []collector.Attributor{&attributor{answer}} }
}

// ofPod returns the owners of a node whose first GPU has a pod.
func ofPod(name any) *gpu.Owners {
	return &gpu.Owners{Labels: [][]gpu.Label{{{Name: "pod", Value: fmt.Sprint(name)}}}}
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

// families requests families of XIDs.
func families(names ...string) func(*loop.Options) { return derived(1, names) }

// clockFamilies requests families of clock event reasons, which are the only field then.
func clockFamilies(names ...string) func(*loop.Options) {
	return func(o *loop.Options) {
		derived(0, names)(o)
		o.Plan.Counters, o.Plan.Fields = nil, []gpu.Field{{
			ID: 112, Name: "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", Levels: gpuOnly, Range: &gpu.Range{Max: 1 << 32},
			AllSamples: true,
		}}
	}
}

func derived(field int, names []string) func(*loop.Options) {
	return func(o *loop.Options) {
		for _, name := range names {
			o.Plan.Derived = append(o.Plan.Derived, gpu.Derived{Name: name, HasField: true, Field: field})
		}
	}
}

// start runs a Loop until the test or bubble ends.
func start[S collector.Session](
	t *testing.T, open func(context.Context, *gpu.Plan) (S, error), adjust ...func(*loop.Options),
) *loop.Rig {
	r := loop.Start(t, collector.SourceOf(open), testPlan(), func(o *loop.Options) {
		for _, a := range adjust {
			a(o)
		}
	})
	t.Cleanup(r.Stop)
	return r
}

// A rig is a machine with an engine and a kernel log, and the exporter that runs on it after start.
type rig struct {
	*engine
	*loop.Rig
	t        *testing.T
	figures  figures
	set      atomic.Int64 // nanoseconds by which the machine's clock was set
	logged   []gpu.XID    // XIDs of the kernel log
	logSince time.Time    // zero if the kernel log is not read
}

// bubble runs a test in a synctest bubble.
func bubble(t *testing.T, test func(*testing.T, *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, &rig{engine: newEngine(), t: t, logSince: time.Now()}) })
}

func (r *rig) start(adjust ...func(*loop.Options)) {
	r.Rig = start(r.t, r.Open, append(adjust, r.figures.watch)...)
}

// now is the machine's clock.
func (r *rig) now() time.Time { return time.Unix(0, time.Now().UnixNano()+r.set.Load()) }

func (r *rig) withClock(o *loop.Options) { o.Now = r.now }

// withLog attaches the kernel log if there is one.
func (r *rig) withLog(exists bool) func(*loop.Options) {
	return func(o *loop.Options) {
		if exists {
			o.KernelLog = r
		}
	}
}

// Since and Drain implement events.KernelLog.
func (r *rig) Since() (since time.Time) {
	r.do(func() { since = r.logSince })
	return since
}

func (r *rig) Drain(into []gpu.XID) []gpu.XID {
	r.do(func() { into, r.logged = append(into, r.logged...), nil })
	return into
}

// readLog sets since when the kernel log has been read.
func (r *rig) readLog(since time.Time) { r.do(func() { r.logSince = since }) }

// log adds XIDs to the kernel log.
func (r *rig) log(list ...gpu.XID) { r.do(func() { r.logged = append(r.logged, list...) }) }

// onBus returns an XID of the kernel log.
func onBus(bus string, code int64, at time.Time) gpu.XID {
	return gpu.XID{PCIBusID: "00000000:" + bus + ":00.0", Code: code, Time: at.UnixNano()}
}

// counted waits for an interval and compares DCGM_EXP_XID_ERRORS_TOTAL.
func (r *rig) counted(want counts) {
	r.t.Helper()
	r.Wait(interval)
	r.figures.mu.Lock()
	defer r.figures.mu.Unlock()
	if diff := cmp.Diff(want, r.figures.xid); diff != "" {
		r.t.Errorf("XIDs counted (-want +got)\n%s", diff)
	}
}

// counts maps an XID and its owner to a number.
type counts = map[string]int64

// figures holds the values of DCGM_EXP_XID_ERRORS_TOTAL on the latest page, such as "79" without an owner and "79
// pod=a" with one. Zeros are left out.
type figures struct {
	mu   sync.Mutex
	xid  counts
	sum  int64
	fell bool // whether the sum ever fell
}

// watch records the pages of a loop.
func (f *figures) watch(o *loop.Options) {
	publish := o.Publish
	o.Publish = func(s *gpu.Snapshot) {
		publish(s)
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(s.Families) == 0 {
			return
		}
		before := f.sum
		f.xid, f.sum = counts{}, 0
		defer func() { f.fell = f.fell || f.sum < before }()
		for _, family := range s.Families {
			if family.Name != xidTotalFamily {
				continue
			}
			for _, x := range family.Series {
				key := x.Labels[len(x.Labels)-1].Value
				if len(x.Labels) > 1 {
					key += " on " + x.Labels[0].Value
				}
				if x.Row > 0 {
					key = fmt.Sprint("row ", x.Row, " ", key)
				}
				for _, label := range x.Owner {
					key += " " + label.Name + "=" + label.Value
				}
				if n, _ := x.Value.Int64(); n > 0 {
					f.xid[key] += n
					f.sum += n
				}
			}
		}
	}
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
