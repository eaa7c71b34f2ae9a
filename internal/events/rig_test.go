package events_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/loop"
)

const interval = 10 * time.Second

var gpuOnly = gpu.KindsOf(gpu.KindGPU)

// An engine is a source of GPUs whose events a test makes. Field 0 has a value, field 1 is XIDs, or
// clock event reasons.
type engine struct {
	mu       sync.Mutex
	topology *gpu.Topology
	xids     []gpu.XID    // what happened; each session has a place in it
	keeps    bool         // a new session begins at the oldest
	reasons  []gpu.Sample // of the next Read
	read     func(*gpu.Batch) error
	session  *engineSession
}

func newEngine() *engine {
	return &engine{topology: gpu.NewTopology([]gpu.Device{{Entity: gpu.Entity{Kind: gpu.KindGPU}, UUID: "GPU-0", PCIBusID: "00000000:1B:00.0"}})}
}

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

// happen makes XIDs of one time.
func (e *engine) happen(at time.Time, codes ...int64) {
	e.do(func() {
		for _, code := range codes {
			e.xids = append(e.xids, gpu.XID{Code: code, ID: at.UnixMicro(), Time: at.UnixNano()})
		}
	})
}

// sample has the next Read report clock event reasons.
func (e *engine) sample(at time.Time, masks ...int64) {
	e.do(func() {
		for _, mask := range masks {
			e.reasons = append(e.reasons, gpu.Sample{Field: 1, Value: gpu.Int(mask), Time: at.UnixNano()})
		}
	})
}

// end ends the session.
func (e *engine) end(err error) {
	e.do(func() {
		e.session.err = err
		close(e.session.done)
	})
}

// become has the node look so from now on.
func (e *engine) become(t *gpu.Topology) {
	e.do(func() { e.topology = t })
	e.end(gpu.ErrTopology)
	time.Sleep(interval / 10) // the bubble's clock
	synctest.Wait()
}

type engineSession struct {
	engine   *engine
	topology *gpu.Topology
	next     int // in the engine's xids
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

func (s *engineSession) Read(_ context.Context, b *gpu.Batch) error {
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

// An attributor says who owns the GPUs.
type attributor struct{ answer func() *gpu.Owners }

func pods(answer func() *gpu.Owners) *attributor { return &attributor{answer} }

func (p *attributor) Name() string { return "test" }

func (p *attributor) Attribute(context.Context, *gpu.Topology) (*gpu.Owners, error) {
	return p.answer(), nil
}

// testPlan has a gauge, and XIDs.
func testPlan() *gpu.Plan {
	return &gpu.Plan{
		Interval: interval,
		Devices:  gpu.Selector{Flex: true},
		Fields: []gpu.Field{
			{ID: 203, Name: "DCGM_FI_DEV_GPU_UTIL", Levels: gpuOnly, Max: 100},
			{ID: 230, Name: "DCGM_FI_DEV_XID_ERRORS", Levels: gpuOnly, Min: 1},
		},
		Counters: []gpu.Counter{{Name: "UTIL", Field: 0, Scale: 1}, {Name: "XID", Field: 1, Scale: 1}},
	}
}

// A rig runs a Loop over a source and keeps the last page.
type rig struct {
	t      *testing.T
	loop   *loop.Loop
	change collector.Change // that changes nothing
	reg    *prometheus.Registry
	cancel context.CancelFunc
	result chan error

	mu   sync.Mutex
	page string
}

func start[S collector.Session](t *testing.T, open func(context.Context, *gpu.Plan) (S, error), adjust func(*loop.Options)) *rig {
	r := &rig{t: t, reg: prometheus.NewRegistry(), result: make(chan error, 1)}
	opt := loop.Options{Options: collector.Options{
		Source: collector.SourceOf(open), Plan: testPlan(), Registerer: r.reg,
		Publish: func(s *gpu.Snapshot) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.page = render(s)
		},
	}}
	adjust(&opt)
	r.change = collector.Change{Source: opt.Source, Plan: opt.Plan, Attributors: opt.Attributors}
	r.loop = loop.New(opt)
	ctx, cancel := context.WithCancel(t.Context())
	r.cancel = cancel
	go func() { r.result <- r.loop.Run(ctx) }()
	synctest.Wait()
	return r
}

// render writes a snapshot as one line per value.
func render(s *gpu.Snapshot) string {
	var lines []string
	for _, c := range s.Columns {
		for row, v := range c.Values {
			if !v.IsAbsent() {
				lines = append(lines, fmt.Sprintf("%s{%d} %s", c.Counter.Name, row, v))
			}
		}
	}
	for _, f := range s.Families {
		for _, x := range f.Series {
			if f.Name == "XID" { // without its labels
				lines = append(lines, fmt.Sprintf("%s{%d} %s", f.Name, x.Row, x.Value))
				continue
			}
			lines = append(lines, fmt.Sprintf("%s{%d}%v %s", f.Name, x.Row, x.Labels, x.Value))
		}
	}
	return strings.Join(lines, "\n")
}

func (r *rig) last() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.page
}

func (r *rig) has(want ...string) {
	r.t.Helper()
	page := r.last()
	for _, w := range want {
		if !slices.Contains(strings.Split(page, "\n"), w) {
			r.t.Errorf("no line %q in:\n%s", w, page)
		}
	}
}

func (r *rig) hasNot(prefix string) {
	r.t.Helper()
	if lines := r.family(prefix); len(lines) > 0 {
		r.t.Errorf("lines begin with %q: %v", prefix, lines)
	}
}

// family returns the lines of the last page that begin so.
func (r *rig) family(prefix string) []string {
	return slices.DeleteFunc(strings.Split(r.last(), "\n"), func(line string) bool { return !strings.HasPrefix(line, prefix) })
}

func (r *rig) wait(d time.Duration) {
	time.Sleep(d) // the bubble's clock
	synctest.Wait()
}

func (r *rig) reload(change collector.Change) {
	r.t.Helper()
	if err := r.loop.Reload(r.t.Context(), change); err != nil {
		r.t.Fatal(err)
	}
	synctest.Wait() // for the page of the new session
}

func (r *rig) stop() {
	r.t.Helper()
	r.cancel()
	if err := <-r.result; err != nil {
		r.t.Fatal(err)
	}
}

// dropped is dcgm_exporter_events_dropped_total of one thing.
func (r *rig) dropped(what, reason string, want float64) {
	r.t.Helper()
	families, err := r.reg.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			if f.GetName() == "dcgm_exporter_events_dropped_total" && m.Label[0].GetValue() == reason && m.Label[1].GetValue() == what {
				if got := m.GetCounter().GetValue(); got != want {
					r.t.Errorf("%v of %s dropped for %s, want %v", got, what, reason, want)
				}
				return
			}
		}
	}
	r.t.Errorf("no series of %s dropped for %s", what, reason)
}

func (r *rig) unplaced(want string) {
	r.t.Helper()
	const head = "# HELP dcgm_exporter_xids_unplaced_total XIDs of the kernel's log of GPUs that the exporter does not watch.\n" +
		"# TYPE dcgm_exporter_xids_unplaced_total counter\ndcgm_exporter_xids_unplaced_total "
	if err := testutil.GatherAndCompare(r.reg, strings.NewReader(head+want+"\n"), "dcgm_exporter_xids_unplaced_total"); err != nil {
		r.t.Error(err)
	}
}
