package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// The pauses between attempts to take DCGM back while NVML stands in for it.
const (
	minRestorePause = 10 * time.Second
	maxRestorePause = 5 * time.Minute
)

// A standIn is the choice between DCGM and NVML: NVML where DCGM is not there. Its methods may be
// called by any goroutine.
type standIn struct {
	log   *slog.Logger
	gauge prometheus.Gauge
	// active is set while NVML serves.
	active atomic.Bool
	// changed gets a value when active becomes set.
	changed chan struct{}

	mu      sync.Mutex
	current collector.Change // in force
	second  collector.Source // NVML; nil where it must not stand in
	first   collector.Source // DCGM
	address gpu.EngineAddress
}

func newStandIn(reg prometheus.Registerer, log *slog.Logger) *standIn {
	f := &standIn{log: log, changed: make(chan struct{}, 1), gauge: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "dcgm_exporter_source_fallback",
		Help: "Whether NVML stands in for DCGM, which is not available.",
	})}
	reg.MustRegister(f.gauge)
	return f
}

// of returns the source that opens first, and second where that is not there.
func (f *standIn) of(first, second collector.Source, address gpu.EngineAddress) collector.Source {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.first, f.second, f.address = first, second, address
	return firstAvailable{f, first, second}
}

// none notes that the configuration has no choice.
func (f *standIn) none() {
	f.mu.Lock()
	f.first, f.second = nil, nil
	f.mu.Unlock()
	f.set(nil)
}

// set notes why the second source serves; nil where the first does.
func (f *standIn) set(why error) {
	if f.active.Swap(why != nil) == (why != nil) {
		return
	}
	if why == nil {
		f.gauge.Set(0)
		f.log.Info("DCGM serves again")
		return
	}
	f.gauge.Set(1)
	f.log.Warn("NVML stands in for DCGM, which is not available; DCGM is tried again now and then", "error", why)
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// A firstAvailable is the source that a standIn gives.
type firstAvailable struct {
	*standIn
	first, second collector.Source
}

// Open opens the first source that is there.
func (c firstAvailable) Open(ctx context.Context, plan *gpu.Plan) (collector.Session, error) {
	session, err := c.first.Open(ctx, plan)
	if err == nil {
		c.set(nil)
		return session, nil
	}
	if !isAbsent(err) || ctx.Err() != nil {
		return nil, err
	}
	session, secondErr := c.second.Open(ctx, plan)
	if errors.Is(secondErr, gpu.ErrUnavailable) {
		return nil, fmt.Errorf("%w; %w", err, secondErr)
	}
	if secondErr != nil {
		return nil, secondErr
	}
	c.set(err)
	return session, nil
}

// isAbsent reports whether another source may stand in for one that does not open: what it says of
// itself, such as a version that does not fit, is to be seen.
func isAbsent(err error) bool {
	return errors.Is(err, gpu.ErrUnavailable) || errors.Is(err, gpu.ErrLost) || errors.Is(err, gpu.ErrTimeout)
}

// A takenBack is a firstAvailable of which the first Open takes the first source or fails.
type takenBack struct {
	firstAvailable
	later atomic.Bool
}

func (t *takenBack) Open(ctx context.Context, plan *gpu.Plan) (collector.Session, error) {
	if t.later.Swap(true) {
		return t.firstAvailable.Open(ctx, plan)
	}
	session, err := t.first.Open(ctx, plan)
	if err == nil {
		t.set(nil)
	}
	return session, err
}

// begin notes what the loop collects first.
func (f *standIn) begin(c collector.Change) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.current = c
}

// reload makes a change, and notes it as the one in force.
func (f *standIn) reload(ctx context.Context, loop *collector.Loop, c collector.Change) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := loop.Reload(ctx, c); err != nil {
		return err
	}
	f.current = c
	return nil
}

// restore takes the first source back by a reload, which opens and reads it before NVML closes.
// Nothing changes where it is not there.
func (f *standIn) restore(ctx context.Context, loop *collector.Loop) {
	if !f.active.Load() || !answers(ctx, f.address) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.second == nil {
		return
	}
	c := f.current
	c.Source = &takenBack{firstAvailable: firstAvailable{f, f.first, f.second}}
	if err := loop.Reload(ctx, c); err != nil {
		f.log.Debug("DCGM is not back", "error", err)
	}
}

// run tries to take the first source back, with growing pauses, until ctx is done.
func (f *standIn) run(ctx context.Context, loop *collector.Loop) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.changed:
		}
		for pause := minRestorePause; f.active.Load(); pause = min(2*pause, maxRestorePause) {
			timer := time.NewTimer(pause)
			select {
			case <-ctx.Done():
				timer.Stop()
				return
			case <-timer.C:
				f.restore(ctx, loop)
			}
		}
	}
}

// answers reports whether something listens at the address of a host engine. DCGM itself takes
// seconds to find out, in which nothing else is read.
func answers(ctx context.Context, engine gpu.EngineAddress) bool {
	network, target := engine.Dial()
	if network == "" {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, network, target)
	if err == nil {
		_ = c.Close()
	}
	return err == nil
}

// mayStandIn reports whether NVML may stand in for the engine of a configuration: it sees the GPUs
// of this machine alone.
func mayStandIn(c config.Source) bool {
	if c.Kind != config.SourceAuto {
		return false
	}
	switch c.Fallback {
	case config.FallbackNVML:
		return true
	case config.FallbackNone:
		return false
	default:
		return isThisMachine(c.Remote)
	}
}

// isThisMachine reports whether the address of a host engine is one of this machine.
func isThisMachine(engine gpu.EngineAddress) bool {
	if engine.IsLocal() {
		return true
	}
	machine, _ := os.Hostname() // without one, one name less
	if engine.Transport == gpu.TransportTCP && strings.EqualFold(engine.Host, machine) {
		return true
	}
	ip := engine.IP()
	addresses, _ := net.InterfaceAddrs()
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && ip.IsValid() && n.IP.Equal(ip.AsSlice()) {
			return true
		}
	}
	return false
}

// engineGrace is how long a configured host engine may be away before the exporter is no longer
// ready.
const engineGrace = time.Minute

// A patientSource watches over a host engine that was configured and that nothing stands in for:
// one that is not there is more than a node without a driver.
type patientSource struct {
	collector.Source
	*engineState
	address gpu.EngineAddress
	log     *slog.Logger
}

// An engineState is when a configured engine was first missed.
type engineState struct {
	mu     sync.Mutex
	missed time.Time // zero while it is there
	logged bool
}

// Open opens the source.
func (s patientSource) Open(ctx context.Context, plan *gpu.Plan) (collector.Session, error) {
	s.miss()
	session, err := s.Source.Open(ctx, plan)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.missed, s.logged = time.Time{}, false
		return session, nil
	}
	if !s.logged && isAbsent(err) {
		s.logged = true
		s.log.Error("No data: the host engine cannot be reached. Start nv-hostengine there (systemctl start nvidia-dcgm), install libdcgm here "+
			"(datacenter-gpu-manager-4-core), correct --remote-hostengine-info, or allow NVML in its place with --fallback=nvml",
			"engine", s.address.String(), "not_ready_after", engineGrace, "error", err)
	}
	return session, err
}

// miss begins the grace time.
func (e *engineState) miss() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.missed.IsZero() {
		e.missed = time.Now()
	}
}

// reachable reports whether the engine is there, or was until a moment ago.
func (e *engineState) reachable() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.missed.IsZero() || time.Since(e.missed) < engineGrace
}

// reset forgets the engine of an earlier configuration.
func (e *engineState) reset() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.missed, e.logged = time.Time{}, false
}
