package hardware

import (
	"context"
	"errors"
	"fmt"
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

func (e *fakeEngine) set(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.err = err
}

func (e *fakeEngine) attempts() []int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.at
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

// collect runs a collector on the source until stop is called.
func collect(t *testing.T, s *Source) (stop func()) {
	loop := collector.New(collector.Options{
		Settings: collector.Settings{Source: s, Plan: &gpu.Plan{Interval: 10 * time.Second}},
		Publish:  func(*gpu.Snapshot) {}, Registerer: prometheus.NewRegistry(),
	})
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
		is := func(what string, nvml bool, want ...int) {
			t.Helper()
			synctest.Wait()
			if diff := cmp.Diff(want, e.attempts()); diff != "" || s.onFallback.Load() != nvml {
				t.Errorf("%s: on fallback %v, want %v; attempts in seconds (-want +got):\n%s", what,
					s.onFallback.Load(), nvml, diff)
			}
		}
		time.Sleep(1000 * time.Second)
		is("away", true, 0, 10, 30, 70, 150, 310, 610, 910)
		e.set(nil)
		time.Sleep(time.Hour)
		is("back", false, 0, 10, 30, 70, 150, 310, 610, 910, 1210)
		stop()
	})
}

// A replaced library ends Run at once, even while an attempt to return to DCGM hangs.
func TestReplacedWhileOpenHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &fakeEngine{begin: time.Now(), err: gpu.ErrUnavailable}
		s := newSource(Options{Fallback: true}, e, emptySession{})
		loop := collector.New(collector.Options{
			Settings: collector.Settings{Source: s, Plan: &gpu.Plan{Interval: 10 * time.Second}},
			Publish:  func(*gpu.Snapshot) {}, Registerer: prometheus.NewRegistry(),
		})
		_, _ = s.Open(t.Context(), &gpu.Plan{}) // on NVML
		ended := make(chan error, 1)
		go func() { ended <- s.Run(t.Context(), loop) }() // nothing runs the loop, so Reopen does not return
		time.Sleep(time.Minute)
		s.reportReplaced()
		synctest.Wait()
		select {
		case err := <-ended:
			if !errors.Is(err, ErrReplaced) {
				t.Errorf("Run: %v, want %v", err, ErrReplaced)
			}
		default:
			t.Fatal("Run has not returned, want ErrReplaced")
		}
	})
}

// A host engine is not opened while nothing listens at its address, and opened at once when something does.
func TestReturnsToHostEngineAtOnce(t *testing.T) {
	for _, away := range []time.Duration{time.Minute, 10 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			engine := newSocket(t)
			// DCGM takes this long to fail if nothing listens.
			e := &fakeEngine{begin: time.Now(), takes: 5 * time.Second, err: gpu.ErrUnavailable}
			s := newSource(Options{Engine: engine, Fallback: true}, e, emptySession{})
			stop := collect(t, s)
			synctest.Wait()
			if !s.onFallback.Load() {
				t.Error("after the first attempt: not on the fallback, want it used")
			}
			time.Sleep(away)
			if at := e.attempts(); len(at) > 0 {
				t.Errorf("DCGM was opened at %v although nothing listens, want no attempt", at)
			}
			defer listen(t, engine).Close()
			e.mu.Lock()
			e.err, e.takes = nil, time.Second
			e.mu.Unlock()
			time.Sleep(lookInterval + 2*time.Second)
			synctest.Wait()
			if s.onFallback.Load() || !s.Ready() {
				t.Errorf("after %v: on the fallback or not ready, want DCGM and ready; attempts: %v", away,
					e.attempts())
			}
			stop()
		})
	}
}

// Without a fallback, a host engine is opened as soon as it listens. If Open fails, the next attempts follow soon.
func TestOpensHostEngineAtOnce(t *testing.T) {
	for _, away := range []time.Duration{8 * time.Second, time.Hour + 10*time.Second} {
		synctest.Test(t, func(t *testing.T) {
			engine := newSocket(t)
			e := &fakeEngine{begin: time.Now(), err: gpu.ErrUnavailable}
			stop := collect(t, newSource(Options{Engine: engine, Required: true}, e, nil))
			time.Sleep(away + lookInterval/2)
			defer listen(t, engine).Close()
			time.Sleep(4 * time.Second)
			synctest.Wait()
			at := int(away / time.Second)
			if diff := cmp.Diff([]int{at + 1, at + 2, at + 4}, e.attempts()); diff != "" {
				t.Errorf("attempts, in seconds (-want +got):\n%s", diff)
			}
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
				found := false
				for i := range s.requirements {
					if r := &s.requirements[i]; errors.Is(missing, r.err) {
						found = true
						r.isMet = func(context.Context, *Source) bool { return isThere.Load() }
					}
				}
				if !found {
					t.Fatal("no requirement has the error, want one")
				}
				stop := collect(t, s)
				time.Sleep(8*time.Second + lookInterval/2)
				isThere.Store(true)
				time.Sleep(2 * time.Second)
				e.set(nil)
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				if diff := cmp.Diff([]int{0, 1, 3, 7, 9, 10, 12}, e.attempts()); diff != "" {
					t.Errorf("attempts, in seconds (-want +got):\n%s", diff)
				}
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
				if !s.Ready() {
					t.Error("Ready before the first attempt = false, want true")
				}
				go open()
				time.Sleep(engineGrace - time.Second)
				if takes == 0 {
					open() // another attempt must not restart the grace period
				}
				if !s.Ready() {
					t.Error("Ready within the grace period = false, want true")
				}
				time.Sleep(2 * time.Second)
				if s.Ready() {
					t.Error("Ready after the grace period = true, want false")
				}
				time.Sleep(2 * time.Hour)
				synctest.Wait() // for the attempt that hung
				e.takes = 0
				e.set(nil)
				open()
				if !s.Ready() {
					t.Error("Ready with the engine back = false, want true")
				}
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
		e.set(tt.err)
		_, _ = s.Open(t.Context(), &gpu.Plan{})
		if err := testutil.GatherAndCompare(reg, strings.NewReader(tt.want),
			"dcgm_exporter_library_missing"); err != nil {
			t.Errorf("after %v: %v", tt.err, err)
		}
	}
}
