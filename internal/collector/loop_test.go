package collector_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/loop"
)

const interval = 10 * time.Second

var gpuOnly = gpu.KindsOf(gpu.KindGPU)

// testPlan returns a plan with a bounded gauge, the same field scaled under a second name, and XIDs.
func testPlan() *gpu.Plan {
	return &gpu.Plan{
		Interval: interval,
		Devices:  gpu.Selector{Flex: true},
		Fields: []gpu.Field{
			{ID: 203, Name: "DCGM_FI_DEV_GPU_UTIL", Levels: gpuOnly, Range: &gpu.Range{Max: 100}},
			{ID: 230, Name: "DCGM_FI_DEV_XID_ERRORS", Levels: gpuOnly},
			{
				ID: 1001, Name: "DCGM_FI_PROF_GR_ENGINE_ACTIVE", Levels: gpu.KindsOf(gpu.KindGPUInstance),
				Range: &gpu.Range{Max: 1},
			},
		},
		Counters: []gpu.Counter{
			{Name: "UTIL", Field: 0, Scale: 1},
			{Name: "UTIL_RATIO", Field: 0, Scale: 0.01},
			{Name: "XID", Field: 1, Scale: 1},
			{Name: "GR", Field: 2, Scale: 1},
		},
		Derived: []gpu.Derived{
			{Name: "DCGM_EXP_XID_ERRORS_COUNT", Type: gpu.MetricGauge, HasField: true, Field: 1},
			{Name: "DCGM_EXP_P2P_STATUS", Type: gpu.MetricGauge},
		},
	}
}

// fake is a source whose behavior the test sets while it runs.
type fake struct {
	mu   sync.Mutex
	gpus int
	// topology, if set, replaces the default topology of gpus GPUs
	topology  *gpu.Topology
	open      func(context.Context) error
	read      func(context.Context, *gpu.Batch) error
	processes []bool // rows whose processes the latest Read was asked for
	close     func()

	opened, closed int
	session        *fakeSession
}

func (f *fake) Open(ctx context.Context, _ *gpu.Plan) (*fakeSession, error) {
	f.mu.Lock()
	open := f.open
	f.mu.Unlock()
	if open != nil {
		if err := open(ctx); err != nil {
			return nil, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var devices []gpu.Device
	for i := range f.gpus {
		devices = append(devices, gpu.Device{
			Entity: gpu.Entity{Kind: gpu.KindGPU, ID: uint32(i)}, GPU: uint32(i), UUID: fmt.Sprint("GPU-", i),
		})
	}
	f.opened++
	topology := f.topology
	if topology == nil {
		topology = gpu.NewTopology(devices)
	}
	f.session = &fakeSession{Lifecycle: gpu.NewLifecycle(), source: f, topology: topology}
	return f.session, nil
}

func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// reads sets what later reads do.
func (f *fake) reads(read func(context.Context, *gpu.Batch) error) { f.set(func() { f.read = read }) }

// takes returns a read that takes some time, whatever its context, and then reports a utilization for GPU 0.
func takes(d time.Duration, utilization int64) func(context.Context, *gpu.Batch) error {
	return func(_ context.Context, b *gpu.Batch) error {
		time.Sleep(d)
		b.Add(0, 0, gpu.Int(utilization), time.Now())
		return nil
	}
}

func (f *fake) counts() [2]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return [2]int{f.opened, f.closed}
}

type fakeSession struct {
	gpu.Lifecycle
	source   *fake
	topology *gpu.Topology
}

func (s *fakeSession) Topology() *gpu.Topology { return s.topology }

func (s *fakeSession) Close() error {
	s.source.mu.Lock()
	s.source.closed++
	hang := s.source.close
	s.source.mu.Unlock()
	if hang != nil {
		hang()
	}
	return nil
}

func (s *fakeSession) Read(ctx context.Context, req gpu.ReadRequest, b *gpu.Batch) error {
	s.source.mu.Lock()
	read := s.source.read
	s.source.processes = req.Processes
	s.source.mu.Unlock()
	if read != nil {
		return read(ctx, b)
	}
	for row := range s.topology.Devices {
		b.Add(row, 0, gpu.Int(50), time.Now())
	}
	return nil
}

// rig runs a Loop with a fake source.
type rig struct {
	*loop.Rig
	fake  *fake
	ended bool
}

// start runs a Loop until the end of the test. Then Run must return nil and every session must be closed, unless the
// test ended it before.
func start(t *testing.T, f *fake, adjust func(*loop.Options)) *rig {
	r := &rig{Rig: loop.Start(t, collector.SourceOf(f.Open), testPlan(), adjust), fake: f}
	t.Cleanup(func() {
		if !r.ended {
			r.Stop()
			r.allClosed(t)
		}
	})
	return r
}

// bubble runs a subtest with a fake clock.
func bubble(t *testing.T, name string, f func(*testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

func (r *rig) End() error {
	r.ended = true
	return r.Rig.End()
}

// reload reloads the Loop with another source and plan.
func (r *rig) reload(ctx context.Context, f *fake, plan *gpu.Plan) error {
	return r.Loop.Reload(ctx, collector.Settings{Source: collector.SourceOf(f.Open), Plan: plan})
}

// allClosed checks that every session was closed.
func (r *rig) allClosed(t *testing.T) {
	t.Helper()
	if n := r.fake.counts(); n[0] != n[1] {
		t.Errorf("sessions opened = %d, closed = %d, want every session closed", n[0], n[1])
	}
}

// logTo writes the log of the Loop to a buffer.
func logTo(log *strings.Builder) func(*loop.Options) {
	return func(o *loop.Options) { o.Log = slog.New(slog.NewTextHandler(log, nil)) }
}

// logs checks how many log lines have a text.
func logs(t *testing.T, log *strings.Builder, text string, want int) {
	t.Helper()
	if n := strings.Count(log.String(), text); n != want {
		t.Errorf("log lines with %q = %d, want %d; log:\n%s", text, n, want, log)
	}
}

func TestFirstPageIsImmediate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &fake{gpus: 2}, nil)
		if !r.Loop.Ready() {
			t.Error("Ready = false after the first cycle, want true")
		}
		r.Has("UTIL{0} 50", "UTIL_RATIO{1} 0.5", "XID{0}[{err_code 0} {err_msg No Error}] 0",
			"unavailable{GR -1} no_entity", "unavailable{DCGM_EXP_P2P_STATUS -1} not_supported",
			"DCGM_EXP_XID_ERRORS_COUNT{1}[{window_size_in_ms 300000}] 0")
		r.Metric("dcgm_exporter_collect_success{} 1")
		r.Metric("dcgm_exporter_sessions_total{cause=start} 1")
		if err := r.End(); err != nil {
			t.Errorf("Run: %v, want nil", err)
		}
		if diff := cmp.Diff([2]int{1, 1}, r.fake.counts()); diff != "" {
			t.Errorf("opened, closed (-want +got):\n%s", diff)
		}
	})
}

// The interval determines how long a call may take before it is reported. A reload may change it.
func TestReadTimeoutFollowsTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{gpus: 1}
		plan := testPlan()
		plan.Interval = time.Second
		r := start(t, f, func(o *loop.Options) { o.Plan = plan })
		if err := r.reload(t.Context(), f, testPlan()); err != nil {
			t.Fatal(err)
		}
		f.reads(takes(interval/2, 7))
		r.Wait(4 * interval)
		r.Has("UTIL{0} 7")
		for _, page := range r.Pages() {
			if strings.Contains(page, "error timeout") {
				t.Errorf("page during a call of half an interval = %q, want no timeout", page)
			}
		}
		f.reads(nil)
		r.Wait(interval)
	})
}

func TestOneBadSampleDropsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{gpus: 3}
		f.read = func(_ context.Context, b *gpu.Batch) error {
			b.Add(0, 0, gpu.Int(808334905), time.Now())              // garbage: above the bound
			b.Add(1, 0, gpu.Int(7), time.Now().Add(-31*interval/10)) // older than three intervals
			b.Add(2, 0, gpu.Int(7), time.Now().Add(-29*interval/10))
			return nil
		}
		r := start(t, f, nil)
		r.Has("UTIL{2} 7", "down{0} unavailable", "down{1} unavailable")
		r.HasNot("UTIL{0}")
		r.HasNot("UTIL{1}")
		r.HasNot("XID{0}") // a GPU that reports no XIDs has no "no error" value
		r.Metric("dcgm_exporter_samples_dropped_total{reason=out_of_range} 1")
		r.Metric("dcgm_exporter_samples_dropped_total{reason=stale} 1")
	})
}

func TestHangingReadIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{gpus: 1}
		release := make(chan struct{})
		r := start(t, f, func(o *loop.Options) { o.HangLimit = 2 * time.Minute })
		f.reads(func(_ context.Context, b *gpu.Batch) error { // like a cgo call, it ignores ctx
			<-release
			b.Add(0, 0, gpu.Int(51), time.Now())
			return nil
		})
		r.Wait(2 * interval)
		r.Has("UTIL{0} 50") // still fresh
		r.Wait(interval)
		r.Has("error timeout")
		r.HasNot("UTIL")
		if err := r.Loop.Healthy(); err != nil {
			t.Errorf("Healthy before the hang limit: %v, want nil", err)
		}
		r.Wait(2*time.Minute - 4*interval)
		if err := r.Loop.Healthy(); err != nil {
			t.Errorf("Healthy just before the hang limit: %v, want nil", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), interval)
		defer cancel()
		if err := r.reload(ctx, f, testPlan()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Reload during a hang = %v, want the error of its context", err)
		}
		r.Metric("dcgm_exporter_collect_unavailable{reason=timeout} 1")
		close(release)
		r.Wait(time.Millisecond)
		r.Has("UTIL{0} 51") // late, but served at once
		r.Metric("dcgm_exporter_collect_success{} 1")
	})
}

func TestReadsAreAsFrequentAsTheShortestInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := int64(0)
		f := &fake{gpus: 1, read: func(_ context.Context, b *gpu.Batch) error {
			b.Add(0, 0, gpu.Int(reads), time.Now())
			reads++
			return nil
		}}
		r := start(t, f, func(o *loop.Options) { o.Plan.Cycle = interval / 5 })
		r.Wait(interval)
		r.Has("UTIL{0} 5")
	})
}

// A late Read is served if its samples are no older than three intervals. The previous page is kept meanwhile. The
// same holds for a driver that heeds its context.
func TestLateAnswerIsServed(t *testing.T) {
	for _, c := range []struct {
		every, takes time.Duration
		served       bool
	}{
		{time.Second, 900 * time.Millisecond, true},
		{time.Second, 1500 * time.Millisecond, true},
		{3 * time.Second, 4 * time.Second, true},
		{30 * time.Second, 11 * time.Second, true},
		{30 * time.Second, 55 * time.Second, true},
		{time.Second, 4 * time.Second, false},
	} {
		bubble(t, fmt.Sprint(c.takes, " of ", c.every), func(t *testing.T) {
			var log strings.Builder
			f := &fake{gpus: 1}
			r := start(t, f, func(o *loop.Options) {
				o.Plan.Interval = c.every
				logTo(&log)(o)
			})
			f.reads(func(ctx context.Context, b *gpu.Batch) error {
				return errors.Join(takes(c.takes, 50)(ctx, b), ctx.Err())
			})
			r.Wait(20 * max(c.every, c.takes))
			empty := 0
			for _, page := range r.Pages()[1:] {
				if !strings.Contains(page, "UTIL{0} 50") {
					empty++
				}
			}
			if n := len(r.Pages()); c.served != (empty == 0) || n < 15 {
				t.Errorf("pages = %d, want at least 15; pages without data = %d, want none: %t", n, empty, c.served)
			}
			if timeout := min(max(c.every, time.Second), 10*time.Second); c.served {
				logs(t, &log, "read timed out", map[bool]int{true: 1}[c.takes >= timeout])
			}
			_ = r.End()         // wedged
			time.Sleep(c.takes) // let the pending call end
		})
	}
}

func TestWedgedDriverEndsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{gpus: 1}
		release := make(chan struct{})
		r := start(t, f, func(o *loop.Options) { o.HangLimit = time.Minute })
		f.reads(func(context.Context, *gpu.Batch) error { <-release; return nil })
		r.Wait(interval + time.Minute)
		err := <-r.Result
		r.ended = true
		if !errors.Is(err, gpu.ErrWedged) {
			t.Errorf("Run: %v, want gpu.ErrWedged", err)
		}
		if err := r.Loop.Healthy(); !errors.Is(err, gpu.ErrWedged) {
			t.Errorf("Healthy: %v, want gpu.ErrWedged", err)
		}
		close(release)
	})
}

func TestEndedSessionIsReplaced(t *testing.T) {
	for _, c := range []struct {
		err   error
		cause string
	}{{gpu.ErrTopology, "topology"}, {fmt.Errorf("engine: %w", gpu.ErrLost), "lost"}} {
		bubble(t, c.cause, func(t *testing.T) {
			f := &fake{gpus: 1}
			r := start(t, f, nil)
			f.set(func() { f.gpus = 2 })
			f.session.End(c.err)
			synctest.Wait()
			r.Has("UTIL{1} 50")
			r.Metric(fmt.Sprintf("dcgm_exporter_sessions_total{cause=%s} 1", c.cause))
			if diff := cmp.Diff([2]int{2, 1}, f.counts()); diff != "" {
				t.Errorf("opened, closed (-want +got):\n%s", diff)
			}
			// The previous page is kept while the topology changes. It is replaced at once after an engine is
			// lost.
			pages := r.Pages()
			between := pages[len(pages)-2]
			want := map[string]string{"lost": "error lost", "topology": "UTIL{0} 50"}[c.cause]
			if !strings.Contains(between, want) {
				t.Errorf("page between the sessions = %q, want %q in it", between, want)
			}
		})
	}
}

func TestReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{gpus: 1}
		r := start(t, f, nil)
		bad := &fake{open: func(context.Context) error { return gpu.ErrVersion }}
		if err := r.reload(t.Context(), bad, testPlan()); !errors.Is(err, gpu.ErrVersion) {
			t.Errorf("Reload to a source that does not open: %v, want gpu.ErrVersion", err)
		}
		unread := &fake{gpus: 1, read: func(context.Context, *gpu.Batch) error { return gpu.ErrTimeout }}
		shared := testPlan()
		shared.Processes = true
		if err := r.reload(t.Context(), unread, shared); !errors.Is(err, gpu.ErrTimeout) {
			t.Errorf("Reload to a source that does not read: %v, want gpu.ErrTimeout", err)
		}
		if diff := cmp.Diff([2]int{1, 1}, unread.counts()); diff != "" {
			t.Errorf("rejected source: opened, closed (-want +got):\n%s", diff)
		}
		r.Wait(interval)
		r.Has("UTIL{0} 50")
		if f.processes != nil || !slices.Contains(unread.processes, true) {
			t.Errorf("processes requested: %v from the old source, want none; %v from the rejected one, want some",
				f.processes, unread.processes)
		}

		plan := testPlan()
		plan.Interval = time.Second
		plan.Counters = plan.Counters[:1]
		good := &fake{gpus: 4}
		if err := r.reload(t.Context(), good, plan); err != nil {
			t.Fatalf("Reload: %v", err)
		}
		synctest.Wait()
		r.Has("UTIL{3} 50")
		r.HasNot("UTIL_RATIO")
		before := len(r.Pages())
		r.Wait(3 * time.Second)
		if n := len(r.Pages()) - before; n != 3 {
			t.Errorf("pages in 3 s = %d, want 3", n)
		}
		if diff := cmp.Diff([2]int{1, 1}, f.counts()); diff != "" {
			t.Errorf("replaced source: opened, closed (-want +got):\n%s", diff)
		}
		for i, page := range r.Pages() {
			if strings.Contains(page, "error") {
				t.Errorf("page %d = %q, want data", i, page)
			}
		}
		r.Metric("dcgm_exporter_sessions_total{cause=reload} 1")
	})
}

// owners is an Attributor that the test controls.
type owners struct {
	mu     sync.Mutex
	answer func(context.Context, *gpu.Topology) (*gpu.Owners, error)
	calls  int
}

// saying returns an Attributor whose answer takes some time.
func saying(said *gpu.Owners, after time.Duration) *owners {
	o := &owners{}
	o.says(said, after)
	return o
}

func (o *owners) says(said *gpu.Owners, after time.Duration) {
	o.answers(func(context.Context, *gpu.Topology) (*gpu.Owners, error) {
		time.Sleep(after)
		return said, nil
	})
}

func (o *owners) answers(answer func(context.Context, *gpu.Topology) (*gpu.Owners, error)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answer = answer
}

// pod returns the labels of GPU 0 if a pod owns it.
func pod(name string) *gpu.Owners {
	return &gpu.Owners{Labels: [][]gpu.Label{{{Name: "pod", Value: name}}}}
}

// attributing adds attributors to the Loop.
func attributing(all ...collector.Attributor) func(*loop.Options) {
	return func(o *loop.Options) { o.Attributors = all }
}

func (o *owners) Name() string { return "test" }

func (o *owners) Attribute(ctx context.Context, t *gpu.Topology) (*gpu.Owners, error) {
	o.mu.Lock()
	o.calls++
	answer := o.answer
	o.mu.Unlock()
	return answer(ctx, t)
}

func TestOwnersExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := saying(pod("a"), 0)
		r := start(t, &fake{gpus: 2}, attributing(o))
		r.Has("UTIL{0} 50 pod=a", "UTIL{1} 50")
		r.Metric("dcgm_exporter_attribution_success{attributor=test} 1")

		o.answers(func(ctx context.Context, _ *gpu.Topology) (*gpu.Owners, error) {
			<-ctx.Done() // it takes the whole time
			return nil, ctx.Err()
		})
		r.Wait(2*interval + time.Second)
		r.Has("UTIL{0} 50 pod=a")
		r.Metric("dcgm_exporter_attribution_success{attributor=test} 0")
		r.Wait(interval)
		r.Has("UTIL{0} 50 pod=a") // 30 seconds old
		r.Wait(interval)
		r.Has("UTIL{0} 50") // GPU series stay, without the expired label
		if o.calls != 5 {
			t.Errorf("calls of the attributor in 5 cycles = %d, want 5", o.calls)
		}
	})
}

// loseRows makes the fake report the given rows as lost and the other rows with values.
func (f *fake) loseRows(lost ...int) {
	f.reads(func(_ context.Context, b *gpu.Batch) error {
		for row := range f.gpus {
			if slices.Contains(lost, row) {
				b.FailPart(row, gpu.PartEntity, gpu.ErrLost)
			} else {
				b.Add(row, 0, gpu.Int(50), time.Now())
			}
		}
		return nil
	})
}

// One line is logged when a GPU is lost, and one when it recovers, even across sessions.
func TestLogOfLostGPUs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		f := &fake{gpus: 4}
		r := start(t, f, logTo(&log))
		lines := func(lost, back int) {
			t.Helper()
			r.Wait(2 * interval)
			logs(t, &log, "GPU cannot be read", lost)
			logs(t, &log, "GPU recovered", back)
		}
		lines(0, 0)
		f.loseRows(2)
		lines(1, 0)
		logs(t, &log, "gpu=2 uuid=GPU-2 reason=lost", 1)
		r.Reload(r.Settings)
		lines(1, 0)
		f.loseRows(2, 3)
		lines(2, 0)
		f.loseRows()
		lines(2, 2)
	})
}

// A GPU that is lost in every other cycle is logged at most once every 10 seconds.
func TestLogOfFlappingGPU(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		f := &fake{gpus: 2}
		plan := testPlan()
		plan.Interval = time.Second
		r := start(t, f, func(o *loop.Options) {
			o.Plan = plan
			logTo(&log)(o)
		})
		for range 60 {
			f.loseRows(1)
			r.Wait(time.Second)
			f.loseRows()
			r.Wait(time.Second)
		}
		if n := strings.Count(log.String(), "uuid=GPU-1"); n < 2 || n > 13 {
			t.Errorf("log lines about GPU-1 in two minutes = %d, want 2 to 13", n)
		}
	})
}

// A cycle fails if no GPU has a value, and the log says why.
func TestNoGPUHasAValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		f := &fake{gpus: 2}
		r := start(t, f, logTo(&log))
		r.Metric("dcgm_exporter_collect_success{} 1")
		f.loseRows(0)
		r.Wait(2 * interval)
		r.Metric("dcgm_exporter_collect_success{} 1")
		f.loseRows(0, 1)
		r.Wait(2 * interval)
		r.Metric("dcgm_exporter_collect_success{} 0")
		r.Metric("dcgm_exporter_collect_unavailable{reason=lost} 1")
		r.Has("down{0} lost", "down{1} lost")
		logs(t, &log, "No GPU has a value", 1)
		f.reads(func(context.Context, *gpu.Batch) error { return nil }) // blank values without a fault
		r.Wait(2 * interval)
		r.Metric("dcgm_exporter_collect_success{} 0")
		r.Metric("dcgm_exporter_collect_unavailable{reason=unavailable} 1")
		f.loseRows()
		r.Wait(interval)
		r.Metric("dcgm_exporter_collect_success{} 1")
		logs(t, &log, "GPUs have values again", 1)
	})
}

// A cycle succeeds if no values are requested, as in subcommands that read only the topology.
func TestNoValueIsRequested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nothing := func(context.Context, *gpu.Batch) error { return nil }
		r := start(t, &fake{gpus: 1, read: nothing}, func(o *loop.Options) {
			o.Plan.Fields, o.Plan.Counters, o.Plan.Derived = nil, nil, nil
		})
		r.HasNot("error")
		r.Metric("dcgm_exporter_collect_success{} 1")
	})
}
