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
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gauge"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/dcgm"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/nvml"
)

// A hardware is the libraries that the flags name.
type hardware struct {
	dcgm     collector.Source // nil: NVML alone
	nvml     collector.Source
	address  gpu.EngineAddress
	named    bool // DCGM is configured, so that a missing library is a fault
	fallback bool // NVML serves while DCGM is not there
	dials    bool // a plain connection to the engine is tried before DCGM's
	locates  bool // claims may name GPU instances by their places, which NVML adds to DCGM's topology
}

func newHardware(c config.Source, log *slog.Logger) *hardware {
	h := &hardware{nvml: collector.SourceOf(nvml.New(nvml.Options{Log: log}).Open)}
	if c.Kind == config.SourceNVML {
		return h
	}
	options := dcgm.Options{Remote: c.Remote, Log: log}
	if c.DCGMLog {
		options.EngineLog = c.DCGMLogLevel
	}
	h.dcgm, h.address = collector.SourceOf(dcgm.New(options).Open), c.Remote
	h.named = c.Kind == config.SourceDCGM || !h.address.IsEmbedded()
	h.fallback = mayFallBack(c)
	h.dials = h.fallback || isThisMachine(c.Remote)
	return h
}

// openSource opens DCGM, else NVML where it may serve instead. Each attempt tries both, so that a driver or an engine that
// arrives late is found.
func (s *sources) openSource(ctx context.Context, h *hardware, plan *gpu.Plan) (collector.Session, error) {
	if h.dcgm == nil {
		return s.openNVML(ctx, h, plan)
	}
	s.engine.begin(h)
	session, err := s.openDCGM(ctx, h, plan)
	if err != nil && h.fallback && isAbsent(err) && ctx.Err() == nil {
		session, err = s.openInstead(ctx, h, plan, err)
	}
	away := err != nil && ctx.Err() == nil && !h.reaches(ctx)
	if err == nil {
		s.away.Store(nil)
	} else if away {
		s.away.Store(h)
	}
	if s.engine.end(err) && away {
		s.log.Error("No data: the host engine cannot be reached. Start nv-hostengine there (systemctl start nvidia-dcgm), install libdcgm here "+
			"(datacenter-gpu-manager-4-core), correct --remote-hostengine-info, or allow NVML in its place with --fallback=nvml",
			"engine", h.address.String(), "not_ready_after", engineGrace, "error", err)
	}
	return session, err
}

// openDCGM opens DCGM. Where NVML is there in its place, or the engine is of this machine, a plain connection is tried
// first: DCGM itself takes seconds to find that nothing listens.
func (s *sources) openDCGM(ctx context.Context, h *hardware, plan *gpu.Plan) (collector.Session, error) {
	if h.dials && !h.reaches(ctx) {
		return nil, fmt.Errorf("dcgm: %w: nothing listens at %s", gpu.ErrUnavailable, h.address)
	}
	session, err := h.dcgm.Open(ctx, plan)
	if h.named && errors.Is(err, dcgm.ErrLibrary) {
		s.noLibrary.Set(gauge.Series{Value: 1, Labels: []string{dcgm.Library, libraryRemedy}})
	} else {
		s.noLibrary.Set()
	}
	if err != nil {
		if s.dcgmWorked.Load() && isOutdated(h, err) {
			s.replace()
		}
		return nil, err
	}
	s.dcgmWorked.Store(true)
	s.fallback.set(nil, nil)
	both := &withProcesses{Session: session, interval: plan.Interval, open: func(ctx context.Context, plan *gpu.Plan) (collector.Session, error) {
		return s.openNVML(ctx, h, plan)
	}}
	if h.locates {
		both.locate(ctx)
	}
	return both, nil
}

// openInstead opens NVML since DCGM is absent, for the reason why.
func (s *sources) openInstead(ctx context.Context, h *hardware, plan *gpu.Plan, why error) (collector.Session, error) {
	session, err := s.openNVML(ctx, h, plan)
	switch {
	case err == nil:
		s.fallback.set(h, why)
		return session, nil
	case errors.Is(err, gpu.ErrUnavailable):
		return nil, fmt.Errorf("%w; %w", why, err)
	default:
		return nil, err
	}
}

func (s *sources) openNVML(ctx context.Context, h *hardware, plan *gpu.Plan) (collector.Session, error) {
	session, err := h.nvml.Open(ctx, plan)
	if err != nil {
		if s.nvmlWorked.Load() && errors.Is(err, nvml.ErrReplaced) {
			s.replace()
		}
		return nil, err
	}
	s.nvmlWorked.Store(true)
	return session, nil
}

// isAbsent reports whether NVML may serve instead of a DCGM that does not open. An error of DCGM itself, such as a version
// that does not fit, must be seen.
func isAbsent(err error) bool {
	return errors.Is(err, gpu.ErrUnavailable) || errors.Is(err, gpu.ErrLost) || errors.Is(err, gpu.ErrTimeout)
}

// reaches reports whether something listens at the address of the host engine. It is true where
// that cannot be tried.
func (h *hardware) reaches(ctx context.Context) bool {
	network, target := h.address.Dial()
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

// engineGrace is how long a configured host engine may be away before the exporter is no longer
// ready.
const engineGrace = time.Minute

// An engineState knows since when neither a configured host engine nor NVML in its place opens.
type engineState struct {
	mu     sync.Mutex
	missed time.Time // zero while it is there
	logged bool
}

// begin begins the grace time with an attempt to open, which may not return.
func (e *engineState) begin(h *hardware) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.missed.IsZero() && !h.address.IsEmbedded() {
		e.missed = time.Now()
	}
}

// end notes how the attempt ended, and reports whether it is the first that finds no engine.
func (e *engineState) end(err error) (first bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err == nil {
		e.missed, e.logged = time.Time{}, false
		return false
	}
	first = !e.logged && !e.missed.IsZero() && isAbsent(err)
	e.logged = e.logged || first
	return first
}

// reachable reports whether the engine is there, or was until a moment ago.
func (e *engineState) reachable() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.missed.IsZero() || time.Since(e.missed) < engineGrace
}

// mayFallBack reports whether NVML may serve in place of the engine of a configuration: it sees the
// GPUs of this machine alone.
func mayFallBack(c config.Source) bool {
	if c.Kind != config.SourceAuto {
		return false
	}
	return c.Fallback == config.FallbackNVML || c.Fallback == config.FallbackAuto && isThisMachine(c.Remote)
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
