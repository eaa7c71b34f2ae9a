package hardware

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/hostengine"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/dcgm"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/nvml"
)

func TestIsLocal(t *testing.T) {
	machine, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]bool{
		"": true, "localhost": true, "unix:///run/dcgm.sock": true, machine + ":5555": true,
		"10.255.254.253": false, "engine:5555": false, "vsock://2:5555": false, "[2001:db8::1]:5555": false,
		"[fe80::12:3456%lo]": false,
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok {
			cases[net.JoinHostPort(n.IP.String(), "5555")] = true
		}
	}
	for text, want := range cases {
		address, err := hostengine.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := IsLocal(address); got != want {
			t.Errorf("IsLocal(%q) = %v, want %v", text, got, want)
		}
	}
}

// emptySession is a source and its session, which always reads nothing.
type emptySession struct{}

func (emptySession) Open(context.Context, *gpu.Plan) (collector.Session, error) {
	return emptySession{}, nil
}
func (emptySession) Topology() *gpu.Topology                                 { return &gpu.Topology{} }
func (emptySession) Read(context.Context, gpu.ReadRequest, *gpu.Batch) error { return nil }
func (emptySession) Done() <-chan struct{}                                   { return nil }
func (emptySession) Err() error                                              { return nil }
func (emptySession) Close() error                                            { return nil }

// fakeEngine is a source of DCGM sessions. A test sets the duration and the error of Open.
type fakeEngine struct {
	mu    sync.Mutex
	begin time.Time
	err   error
	takes time.Duration
	at    []int // times of the attempts to open, in seconds since begin
}

func (e *fakeEngine) Open(context.Context, *gpu.Plan) (collector.Session, error) {
	e.mu.Lock()
	err, takes := e.err, e.takes
	e.at = append(e.at, int(time.Since(e.begin).Round(time.Second)/time.Second))
	e.mu.Unlock()
	time.Sleep(takes)
	return emptySession{}, err
}

func (e *fakeEngine) set(err error, takes time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.err, e.takes = err, takes
}

// tried compares the times of the attempts to open.
func (e *fakeEngine) tried(t *testing.T, when string, want ...int) {
	t.Helper()
	synctest.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	if diff := cmp.Diff(want, e.at); diff != "" {
		t.Errorf("%s: attempts, in seconds (-want +got):\n%s", when, diff)
	}
}

// newSource returns a Source with fakes for DCGM and NVML. NVML may be nil.
func newSource(opt Options, dcgm, nvml collector.Source) *Source {
	if opt.Metrics == nil {
		opt.Metrics = NewMetrics(prometheus.NewRegistry())
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	s := New(opt)
	s.dcgm, s.nvml = dcgm, nvml
	return s
}

func newLoop(s *Source) *collector.Loop {
	return collector.New(collector.Options{
		Settings: collector.Settings{Source: s, Plan: &gpu.Plan{Interval: 10 * time.Second}},
		Publish:  func(*gpu.Snapshot) {}, Registerer: prometheus.NewRegistry(),
	})
}

// collect runs a collector on the source until stop is called.
func collect(t *testing.T, s *Source) (stop func()) {
	loop := newLoop(s)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- loop.Run(ctx) }()
	go func() { ended <- s.Run(ctx, loop) }()
	return func() {
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				t.Errorf("Run: %v", err)
			}
		}
	}
}

// newSocket returns the address of a Unix socket on which nothing listens.
func newSocket(t *testing.T) hostengine.Address {
	return hostengine.Address{Transport: hostengine.Unix, Path: filepath.Join(t.TempDir(), "engine.sock")}
}

func listen(t *testing.T, engine hostengine.Address) net.Listener {
	l, err := net.Listen("unix", engine.Path)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// While NVML is the fallback, an embedded engine is tried after growing pauses until it opens.
func TestReturnsToEmbeddedEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &fakeEngine{begin: time.Now(), err: gpu.ErrUnavailable}
		s := newSource(Options{Fallback: true}, e, emptySession{})
		stop := collect(t, s)
		time.Sleep(1000 * time.Second)
		e.tried(t, "away", 0, 10, 30, 70, 150, 310, 610, 910)
		away := s.onFallback.Load()
		e.set(nil, 0)
		time.Sleep(time.Hour)
		e.tried(t, "back", 0, 10, 30, 70, 150, 310, 610, 910, 1210)
		if back := s.onFallback.Load(); !away || back {
			t.Errorf("on fallback while away = %v, then %v; want true, then false", away, back)
		}
		stop()
	})
}

// A replaced library ends Run at once, even while an attempt to return to DCGM hangs.
func TestReplacedWhileOpenHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &fakeEngine{begin: time.Now(), err: gpu.ErrUnavailable}
		s := newSource(Options{Fallback: true}, e, emptySession{})
		_, _ = s.Open(t.Context(), &gpu.Plan{}) // opens NVML
		time.AfterFunc(time.Minute, s.reportReplaced)
		begin := time.Now()
		// Nothing runs the loop, so its Reopen does not return.
		if err := s.Run(t.Context(), newLoop(s)); !errors.Is(err, ErrReplaced) || time.Since(begin) != time.Minute {
			t.Errorf("Run: %v after %v, want %v after a minute", err, time.Since(begin), ErrReplaced)
		}
	})
}

// A host engine is not opened while nothing listens at its address, and opened at once when something does.
func TestReturnsToHostEngineAtOnce(t *testing.T) {
	for _, away := range []time.Duration{time.Minute, 10 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			engine := newSocket(t)
			// DCGM takes this long to fail if nothing listens at the address.
			e := &fakeEngine{begin: time.Now(), takes: 5 * time.Second, err: gpu.ErrUnavailable}
			s := newSource(Options{Engine: engine, Fallback: true}, e, emptySession{})
			stop := collect(t, s)
			synctest.Wait()
			if !s.onFallback.Load() {
				t.Error("after the first attempt: not on the fallback, want it used")
			}
			time.Sleep(away)
			e.tried(t, "nothing listens")
			defer listen(t, engine).Close()
			e.set(nil, time.Second)
			time.Sleep(lookInterval + 2*time.Second)
			synctest.Wait()
			if s.onFallback.Load() || !s.Ready() {
				t.Errorf("after %v: on the fallback or not ready, want DCGM and ready", away)
			}
			stop()
		})
	}
}

// A host engine without a fallback is opened as soon as it listens. If Open fails, the next attempts follow soon.
func TestOpensHostEngineAtOnce(t *testing.T) {
	for _, away := range []time.Duration{8 * time.Second, time.Hour + 10*time.Second} {
		synctest.Test(t, func(t *testing.T) {
			engine := newSocket(t)
			e := &fakeEngine{begin: time.Now(), err: gpu.ErrUnavailable}
			stop := collect(t, newSource(Options{Engine: engine, Required: true}, e, nil))
			time.Sleep(away + lookInterval/2)
			defer listen(t, engine).Close()
			time.Sleep(4 * time.Second)
			at := int(away / time.Second)
			e.tried(t, "the engine listens", at+1, at+2, at+4)
			stop()
		})
	}
}

// A driver or library that is installed late is opened within a second, without an attempt before. If it does not open,
// the next attempts follow soon.
func TestOpensLateDriverAtOnce(t *testing.T) {
	for name, missing := range map[string]error{
		"library": nvml.ErrNoLibrary, "driver": nvml.ErrNoDriver, "libdcgm": fmt.Errorf("%w: %w", gpu.ErrUnavailable,
			dcgm.ErrLibrary),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &fakeEngine{begin: time.Now(), err: missing}
				s := newSource(Options{NVMLOnly: name != "libdcgm"}, e, e)
				if s.opt.NVMLOnly {
					s.dcgm = nil
				}
				var isThere atomic.Bool
				s.requirements = slices.Clone(s.requirements)
				i := slices.IndexFunc(s.requirements, func(r requirement) bool { return errors.Is(missing, r.err) })
				s.requirements[i].isMet = func(context.Context, *Source) bool { return isThere.Load() }
				stop := collect(t, s)
				time.Sleep(8*time.Second + lookInterval/2)
				isThere.Store(true)
				time.Sleep(2 * time.Second)
				e.set(nil, 0)
				time.Sleep(2 * time.Minute)
				e.tried(t, "it is there", 0, 1, 3, 7, 9, 10, 12)
				stop()
			})
		})
	}
}

// A Source whose engine is unavailable is not ready after the grace period, whether Open fails or hangs.
func TestNotReadyWithoutEngine(t *testing.T) {
	for name, takes := range map[string]time.Duration{"refuses": 0, "does not return": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &fakeEngine{err: gpu.ErrUnavailable, takes: takes}
				s := newSource(Options{Engine: hostengine.Address{Transport: hostengine.Unix, Path: "/nowhere"}}, e,
					emptySession{})
				s.dial = false // nothing listens at the path
				open := func() { _, _ = s.Open(t.Context(), &gpu.Plan{}) }
				is := func(when string, ready bool) {
					t.Helper()
					if s.Ready() != ready {
						t.Errorf("Ready %s = %v, want %v", when, !ready, ready)
					}
				}
				is("before the first attempt", true)
				go open()
				time.Sleep(engineGrace - time.Second)
				if takes == 0 {
					open() // another attempt must not restart the grace period
				}
				is("within the grace period", true)
				time.Sleep(2 * time.Second)
				is("after the grace period", false)
				time.Sleep(2 * time.Hour)
				synctest.Wait() // for the attempt that hung
				e.set(nil, 0)
				open()
				is("with the engine back", true)
			})
		})
	}
}

// The advice about an unreachable host engine is logged once per outage, even if another program listens at its
// address.
func TestAdviceAboutUnreachableEngine(t *testing.T) {
	var log strings.Builder
	engine := newSocket(t)
	s := newSource(Options{Engine: engine, Required: true, Log: slog.New(slog.NewTextHandler(&log, nil))},
		&fakeEngine{err: gpu.ErrUnavailable}, emptySession{})
	advice := func(when string, want int) {
		t.Helper()
		_, _ = s.Open(t.Context(), &gpu.Plan{})
		if n := strings.Count(log.String(), "the host engine is unavailable"); n != want {
			t.Errorf("%s: %d lines of advice, want %d", when, n, want)
		}
	}
	advice("nothing listens", 1)
	advice("again", 1)
	_ = s.engine.end(nil)
	defer listen(t, engine).Close()
	advice("another program listens", 2)
}

func TestMissingLibraryMetric(t *testing.T) {
	reg := prometheus.NewRegistry()
	e := &fakeEngine{}
	s := newSource(Options{Required: true, Metrics: NewMetrics(reg)}, e, emptySession{})
	const series = "# HELP dcgm_exporter_library_missing " +
		"1 while DCGM is configured but its library cannot be loaded, with the remedy.\n" +
		"# TYPE dcgm_exporter_library_missing gauge\n" +
		`dcgm_exporter_library_missing{library="libdcgm.so.4",remedy="` + libraryRemedy + `"} 1` + "\n"
	for _, tt := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("%w: %w", gpu.ErrUnavailable, dcgm.ErrLibrary), series},
		{gpu.ErrUnavailable, ""}, // the engine is missing, the library is not
		{fmt.Errorf("open: %w", dcgm.ErrLibrary), series},
		{nil, ""},
	} {
		e.set(tt.err, 0)
		_, _ = s.Open(t.Context(), &gpu.Plan{})
		if err := testutil.GatherAndCompare(reg, strings.NewReader(tt.want),
			"dcgm_exporter_library_missing"); err != nil {
			t.Errorf("after %v: %v", tt.err, err)
		}
	}
}

func TestProfilingRight(t *testing.T) {
	const admin, none = "Name:\tx\nCapEff:\t0000000000200000\n", "CapEff:\t00000000a80425fb\n"
	for name, tt := range map[string]struct {
		status, params string
		want           ProfilingRight
	}{
		"the capability":                      {admin, "RmProfilingAdminOnly: 1\n", RightCapability},
		"no capability":                       {none, "RmProfilingAdminOnly: 1\n", RightNone},
		"no capability, no parameters":        {none, "", RightNone},
		"a driver that lets everyone profile": {none, "A: 1\nRmProfilingAdminOnly: 0\n", RightForAll},
		"no status":                           {"", "", RightUnknown},
		"a status without capabilities":       {"Name:\tx\n", "", RightUnknown},
		"a status with other capabilities":    {"CapEff: all\n", "", RightUnknown},
	} {
		got := ProfilingRightOf(func(path string) (string, error) {
			text := map[string]string{"/proc/self/status": tt.status, "/proc/driver/nvidia/params": tt.params}[path]
			if text == "" {
				return "", fs.ErrNotExist
			}
			return text, nil
		})
		if got != tt.want {
			t.Errorf("%s: right = %d, want %d", name, got, tt.want)
		}
	}
}

// fakeDriver is a source and its session. read fills the batch.
type fakeDriver struct {
	topology       *gpu.Topology
	read           func(gpu.ReadRequest, *gpu.Batch) error
	err            error
	opened, closed int
	openErr        error
}

func (s *fakeDriver) Open(context.Context, *gpu.Plan) (collector.Session, error) {
	s.opened++
	if s.openErr != nil {
		return nil, s.openErr
	}
	return s, nil
}
func (s *fakeDriver) Topology() *gpu.Topology { return s.topology }
func (s *fakeDriver) Read(_ context.Context, req gpu.ReadRequest, b *gpu.Batch) error {
	return s.read(req, b)
}
func (s *fakeDriver) Done() <-chan struct{} { return nil }
func (s *fakeDriver) Err() error            { return s.err }
func (s *fakeDriver) Close() error          { s.closed++; return nil }

func board(id uint32, uuid string) gpu.Device {
	return gpu.Device{Entity: gpu.Entity{Kind: gpu.KindGPU, ID: id}, UUID: uuid}
}

func instance(id, of uint32, uuid string, mig uint32) gpu.Device {
	return gpu.Device{Entity: gpu.Entity{Kind: gpu.KindGPUInstance, ID: id, ParentKind: gpu.KindGPU, Parent: of},
		UUID: uuid, InstanceID: mig}
}

func newPair() (engine, driver *fakeDriver, s *mergedSession) {
	engine = &fakeDriver{
		topology: gpu.NewTopology([]gpu.Device{board(0, "A"), board(1, "B"), instance(7, 1, "B", 9),
			board(2, "elsewhere")}),
		read: func(req gpu.ReadRequest, b *gpu.Batch) error {
			if req.Processes != nil {
				return errors.New("processes were requested from the engine")
			}
			b.Add(0, 0, gpu.Int(1), time.Now())
			return nil
		},
	}
	driver = &fakeDriver{ // the same GPUs in another order
		topology: gpu.NewTopology([]gpu.Device{board(0, "B"), instance(109, 0, "B", 9), board(1, "A")}),
	}
	driver.read = func(req gpu.ReadRequest, b *gpu.Batch) error {
		for row, want := range req.Processes {
			if want {
				b.Processes = append(b.Processes, gpu.Process{Row: row, PID: uint32(1000 + row)})
				b.Utilizations = append(b.Utilizations, gpu.Utilization{Row: row, Busy: gpu.Float(float64(row) / 10)})
			}
		}
		b.FailPart(1, gpu.PartProcessBusy, gpu.ErrNotSupported)
		return nil
	}
	return engine, driver, &mergedSession{Session: engine, open: driver.Open, interval: time.Second}
}

// shown returns what a batch has of processes, and its other faults.
func shown(b *gpu.Batch) (lines []string) {
	for _, p := range b.Processes {
		lines = append(lines, fmt.Sprintf("row %d: process %d", p.Row, p.PID))
	}
	for _, u := range b.Utilizations {
		lines = append(lines, fmt.Sprintf("row %d: busy %v", u.Row, u.Busy))
	}
	for _, f := range b.Faults {
		lines = append(lines, fmt.Sprintf("row %d: part %d %s", f.Row, f.Part, gpu.Reason(f.Err)))
	}
	slices.Sort(lines)
	return lines
}

func TestMergesProcessesByUUID(t *testing.T) {
	_, driver, s := newPair()
	var b gpu.Batch
	if err := s.Read(t.Context(), gpu.ReadRequest{}, &b); err != nil || driver.opened != 0 || len(b.Samples) != 1 {
		t.Fatalf("without requested processes: error %v, NVML opened %d times, %d samples; want none, 0, 1", err,
			driver.opened, len(b.Samples))
	}
	for range 2 {
		b.Reset()
		if err := s.Read(t.Context(), gpu.ReadRequest{Processes: []bool{true, false, true, true}}, &b); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"row 0: busy 0.2", "row 0: process 1002", "row 2: busy 0.1",
		fmt.Sprintf("row 2: part %d not_supported", gpu.PartProcessBusy), "row 2: process 1001",
		fmt.Sprintf("row 3: part %d not_supported", gpu.PartProcesses)}
	if diff := cmp.Diff(want, shown(&b)); diff != "" {
		t.Errorf("processes (-want +got):\n%s", diff)
	}
	if err := s.Close(); err != nil || driver.opened != 1 || driver.closed != 1 {
		t.Errorf("Close: %v; NVML was opened %d times and closed %d times, want 1 and 1", err, driver.opened,
			driver.closed)
	}
}

// addPositions opens NVML to read the positions of GPU instances, and closes it again.
func TestAddPositions(t *testing.T) {
	_, driver, merged := newPair()
	start := uint32(4)
	driver.topology.Devices[1].Start = &start
	before := merged.Topology()
	merged.addPositions(t.Context())
	for row, d := range merged.Topology().Devices {
		if located := d.Start != nil && *d.Start == 4; located != (row == 2) {
			t.Errorf("row %d starts at slice %v, want slice 4 only for row 2", row, d.Start)
		}
	}
	located := merged.Topology()
	if driver.opened != 1 || driver.closed != 1 || before.Devices[2].Start != nil || merged.Topology() != located {
		t.Errorf("NVML opened %d times, closed %d times, want once each; start in DCGM's own topology = %v, want nil",
			driver.opened, driver.closed, before.Devices[2].Start)
	}
	driver.openErr = gpu.ErrUnavailable
	merged.topology = nil
	if merged.addPositions(t.Context()); merged.Topology() != before {
		t.Error("without NVML, the topology differs from DCGM's, want the same")
	}
}

// NVML is opened at most once a minute, and again after it was repartitioned. DCGM is read meanwhile.
func TestNVMLIsOpenedAgain(t *testing.T) {
	engine, driver, s := newPair()
	driver.openErr = gpu.ErrUnavailable
	for _, step := range []struct {
		name                    string
		openErr, err            error // errors of the driver
		processes, opens, close int
	}{
		{"without NVML", gpu.ErrUnavailable, nil, 0, 1, 0},
		{"still without it", gpu.ErrUnavailable, nil, 0, 1, 0},
		{"after a minute", nil, nil, 1, 2, 0},
		{"repartitioned", nil, gpu.ErrTopology, 0, 2, 1},
		{"open again", nil, nil, 1, 3, 1},
	} {
		driver.openErr, driver.err = step.openErr, step.err
		if step.name == "after a minute" {
			s.retryAt = s.retryAt.Add(-retryInterval)
		}
		var b gpu.Batch
		if err := s.Read(t.Context(), gpu.ReadRequest{Processes: []bool{true}}, &b); err != nil || len(b.Samples) != 1 {
			t.Fatalf("%s: DCGM: error %v, %d samples; want none, 1", step.name, err, len(b.Samples))
		}
		isOf := func(cause error) bool { return cause != nil && errors.Is(b.Faults[0].Err, cause) }
		failed := len(b.Faults) == 1 && b.Faults[0].Part == gpu.PartProcesses && (isOf(step.openErr) || isOf(step.err))
		if len(b.Processes) != step.processes || failed == (step.processes > 0) {
			t.Errorf("%s: %d processes and faults %v, want %d processes or else a fault", step.name, len(b.Processes),
				b.Faults, step.processes)
		}
		if driver.opened != step.opens || driver.closed != step.close {
			t.Errorf("%s: NVML was opened %d times and closed %d times, want %d and %d", step.name, driver.opened,
				driver.closed, step.opens, step.close)
		}
	}
	if engine.closed != 0 {
		t.Error("DCGM was closed together with NVML, want it open")
	}
}
