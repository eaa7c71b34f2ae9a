package app

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/dcgm"
)

func TestAddressesOfThisMachine(t *testing.T) {
	machine, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]bool{
		"localhost": true, "localhost:5555": true, "LOCALHOST:1": true, "127.0.0.1": true, "127.3.2.1:5555": true, "[::1]:5555": true,
		"tcp://localhost": true, "tcp://127.0.0.1:5555": true, "unix:///run/dcgm.sock": true, machine + ":5555": true,
		"10.255.254.253": false, "engine:5555": false, "localhost.example:5555": false, "tcp://engine": false, "vsock://2:5555": false,
		"[2001:db8::1]:5555": false, "vsock://1:5555": true, "[::1%lo]:5555": true, "[fe80::12:3456%lo]": false,
		"": true,
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
		address, err := gpu.ParseEngineAddress(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := isThisMachine(address); got != want {
			t.Errorf("isThisMachine(%q) = %v", text, got)
		}
		if got := mayFallBack(config.Source{Kind: config.SourceAuto, Remote: address, Fallback: config.FallbackAuto}); got != want {
			t.Errorf("mayFallBack for %q = %v", text, got)
		}
		if mayFallBack(config.Source{Kind: config.SourceDCGM, Remote: address, Fallback: config.FallbackNVML}) {
			t.Errorf("%q: NVML serves though --source=dcgm", text)
		}
	}
}

// An engine is a DCGM of which a test says whether it opens.
type engine struct {
	mu    sync.Mutex
	begin time.Time
	err   error
	takes time.Duration
	at    []int // seconds of the attempts to open
}

func (e *engine) Open(context.Context, *gpu.Plan) (collector.Session, error) {
	e.mu.Lock()
	err, takes := e.err, e.takes
	e.at = append(e.at, seconds(time.Since(e.begin)))
	e.mu.Unlock()
	time.Sleep(takes)
	return still{}, err
}

func (e *engine) set(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.err = err
}

func (e *engine) attempts() []int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.at
}

// collect collects from hardware until the test ends, and restores DCGM.
func collect(t *testing.T, s *sources, h *hardware) (stop func()) {
	loop := collector.New(collector.Options{
		Source: collector.SourceOf(func(ctx context.Context, plan *gpu.Plan) (collector.Session, error) {
			return s.openSource(ctx, h, plan)
		}),
		Plan:    &gpu.Plan{Interval: 10 * time.Second},
		Publish: func(*gpu.Snapshot) {}, Registerer: prometheus.NewRegistry(),
	})
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- loop.Run(ctx) }()
	go s.restoreDCGM(ctx, loop)
	go s.awaitEngine(ctx, loop)
	return func() {
		cancel()
		if err := <-over; err != nil {
			t.Errorf("Run: %v", err)
		}
		synctest.Wait()
	}
}

func testSources() *sources {
	return newSources(time.Now(), prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
}

// An embedded engine, to which there is no connection, is tried again after growing pauses while
// NVML serves, is taken back when it opens, and is not tried from then on.
func TestAnEmbeddedEngineIsTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &engine{begin: time.Now(), err: gpu.ErrUnavailable}
		s := testSources()
		stop := collect(t, s, &hardware{dcgm: e, nvml: still{}, fallback: true})
		is := func(what string, nvml bool, want ...int) {
			t.Helper()
			synctest.Wait()
			if diff := cmp.Diff(want, e.attempts()); diff != "" || (s.fallback.active.Load() != nil) != nvml {
				t.Errorf("%s: NVML serves: %v; attempts, in seconds (-want +got):\n%s", what, s.fallback.active.Load() != nil, diff)
			}
		}
		time.Sleep(1000 * time.Second)
		is("away", true, 0, 10, 20, 40, 80, 160, 320, 620, 920)
		e.set(nil)
		time.Sleep(time.Hour)
		is("back", false, 0, 10, 20, 40, 80, 160, 320, 620, 920, 1220)
		stop()
	})
}

// An engine of its own is tried by a plain connection alone while nothing listens, and is taken back
// at once when it does, however long it was away.
func TestAnEngineIsTakenBackAtOnce(t *testing.T) {
	for _, away := range []time.Duration{time.Minute, 10 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "engine.sock")
			address, err := gpu.ParseEngineAddress("unix://" + socket)
			if err != nil {
				t.Fatal(err)
			}
			e := &engine{begin: time.Now(), takes: 5 * time.Second, err: gpu.ErrUnavailable} // as DCGM does where nothing listens
			s := testSources()
			stop := collect(t, s, &hardware{dcgm: e, nvml: still{}, address: address, fallback: true, dials: true})
			synctest.Wait()
			if s.fallback.active.Load() == nil {
				t.Error("NVML does not serve at once")
			}
			time.Sleep(away)
			if at := e.attempts(); len(at) > 0 {
				t.Errorf("DCGM was opened though nothing listens: %v", at)
			}
			l, err := net.Listen("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			e.mu.Lock()
			e.err, e.takes = nil, time.Second
			e.mu.Unlock()
			time.Sleep(restoreEvery + 2*time.Second)
			synctest.Wait()
			if s.fallback.active.Load() != nil || !s.engine.reachable() {
				t.Errorf("after %v DCGM does not serve; attempts: %v", away, e.attempts())
			}
			stop()
		})
	}
}

// An engine without a replacement is opened as soon as it listens, however long the pauses have become; one that listens
// and does not open is tried after short pauses.
func TestAnEngineThatListensIsOpenedAtOnce(t *testing.T) {
	for _, away := range []time.Duration{8 * time.Second, time.Hour + 10*time.Second} {
		synctest.Test(t, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "engine.sock")
			address, err := gpu.ParseEngineAddress("unix://" + socket)
			if err != nil {
				t.Fatal(err)
			}
			e := &engine{begin: time.Now(), err: gpu.ErrUnavailable}
			stop := collect(t, testSources(), &hardware{dcgm: e, address: address, named: true, dials: true})
			time.Sleep(away + dialEvery/2)
			l, err := net.Listen("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
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

// An engine that is configured and away makes the exporter not ready after its grace time, whether
// its Open fails or does not return; it is ready again with the engine.
func TestAnEngineThatIsAwayIsNotReady(t *testing.T) {
	for name, takes := range map[string]time.Duration{"refuses": 0, "does not return": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := testSources()
				e := &engine{err: gpu.ErrUnavailable, takes: takes}
				h := &hardware{dcgm: e, nvml: still{}, address: gpu.EngineAddress{Transport: gpu.TransportUnix, Path: "/nowhere"}}
				open := func() { _, _ = s.openSource(t.Context(), h, &gpu.Plan{}) }
				if !s.engine.reachable() {
					t.Error("not ready before the first attempt")
				}
				go open()
				time.Sleep(engineGrace - time.Second)
				if takes == 0 {
					open() // a further attempt does not begin the time again
				}
				if !s.engine.reachable() {
					t.Error("not ready within the grace time")
				}
				time.Sleep(2 * time.Second)
				if s.engine.reachable() {
					t.Error("ready past the grace time")
				}
				time.Sleep(2 * time.Hour)
				synctest.Wait() // for the attempt that did not return
				e.takes = 0
				e.set(nil)
				open()
				if !s.engine.reachable() {
					t.Error("not ready with the engine")
				}
			})
		})
	}
}

// The advice about a host engine that cannot be reached is given once, and for nothing else.
func TestAdviceAboutAnEngine(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "engine.sock")
	var log strings.Builder
	s := testSources()
	s.log = slog.New(slog.NewTextHandler(&log, nil))
	h := &hardware{
		dcgm: &engine{err: gpu.ErrUnavailable}, nvml: still{}, named: true,
		address: gpu.EngineAddress{Transport: gpu.TransportUnix, Path: socket},
	}
	advice := func(when string, want int) {
		t.Helper()
		_, _ = s.openSource(t.Context(), h, &gpu.Plan{})
		if n := strings.Count(log.String(), "the host engine cannot be reached"); n != want {
			t.Errorf("%s: %d lines, want %d", when, n, want)
		}
	}
	advice("nothing listens", 1)
	advice("again", 1)
	_ = s.engine.end(nil)
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	advice("something listens", 1) // the error of the cycle says what is wrong
}

func TestMissingLibraryIsASeriesWhileItIsMissing(t *testing.T) {
	reg := prometheus.NewRegistry()
	s := newSources(time.Now(), reg, slog.New(slog.DiscardHandler))
	e := &engine{}
	h := &hardware{dcgm: e, nvml: still{}, named: true}
	const series = `# HELP dcgm_exporter_library_missing 1 while DCGM is configured and its library cannot be loaded, with what to do; absent otherwise.
# TYPE dcgm_exporter_library_missing gauge
dcgm_exporter_library_missing{library="libdcgm.so.4",remedy="install datacenter-gpu-manager-4-core; in a container use the image whose tag ends in -dcgm"} 1
`
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
		_, _ = s.openSource(t.Context(), h, &gpu.Plan{})
		if err := testutil.GatherAndCompare(reg, strings.NewReader(tt.want), "dcgm_exporter_library_missing"); err != nil {
			t.Errorf("after %v: %v", tt.err, err)
		}
	}
}
