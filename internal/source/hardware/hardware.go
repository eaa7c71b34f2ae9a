package hardware

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gauge"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/hostengine"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/dcgm"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/nvml"
)

// Options configure a Source.
type Options struct {
	NVMLOnly  bool               // never open DCGM
	Engine    hostengine.Address // the DCGM host engine
	EngineLog string             // level of DCGM's own log; empty means no log
	Required  bool               // DCGM is configured explicitly, so that a missing library is a fault
	Fallback  bool               // read NVML while DCGM is unavailable; NVML only sees the GPUs of this machine
	Positions bool               // add the positions of GPU instances, as NVML reports them, to DCGM's topology
	Metrics   *Metrics           // required
	Log       *slog.Logger       // required
}

// Metrics are the series about which driver is read. A Source is made once for a process, and so are its Metrics.
type Metrics struct {
	fallback       prometheus.Gauge
	missingLibrary *gauge.State
}

// NewMetrics registers the metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		fallback: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "dcgm_exporter_source_fallback",
			Help: "Whether NVML is read because DCGM is unavailable.",
		}),
		missingLibrary: gauge.NewState("dcgm_exporter_library_missing",
			"1 while DCGM is configured but its library cannot be loaded, with the remedy.", "library", "remedy"),
	}
	reg.MustRegister(m.fallback, m.missingLibrary)
	return m
}

// libraryRemedy is the remedy if DCGM is configured and libdcgm is missing.
const libraryRemedy = "install datacenter-gpu-manager-4-core; in a container use the image without -nvml in its tag"

// A Source opens sessions of DCGM or NVML. It lasts as long as the process: a reload does not change the driver.
type Source struct {
	opt        Options
	dcgm, nvml collector.Source // dcgm is nil if Options.NVMLOnly is set

	// dial means that a plain connection to the engine is tried before DCGM's own, which takes seconds to fail.
	dial         bool
	engine       engineState
	requirements []requirement
	missing      atomic.Pointer[requirement] // what the last attempt to open did not find; nil if nothing or unknown
	onFallback   atomic.Bool                 // NVML is read because DCGM is unavailable

	dcgmOpened, nvmlOpened atomic.Bool   // the source has opened a session of the driver before
	replaced               chan struct{} // has room for the one report of a replaced library
}

// New returns a Source. It loads no library yet.
func New(opt Options) *Source {
	s := &Source{
		opt: opt, nvml: collector.SourceOf(nvml.New("").Open),
		dial: opt.Fallback || IsLocal(opt.Engine), replaced: make(chan struct{}, 1), requirements: requirements,
	}
	if !opt.NVMLOnly {
		options := dcgm.Options{Remote: opt.Engine, EngineLog: opt.EngineLog, Log: opt.Log,
			MayNotProfile: ProfilingRightOf(readFile) == RightNone}
		s.dcgm = collector.SourceOf(dcgm.New(options).Open)
	}
	return s
}

// Open opens DCGM, or NVML if DCGM is unavailable and Options.Fallback is set. Each call tries both, so that a driver
// or an engine that starts late is found.
func (s *Source) Open(ctx context.Context, plan *gpu.Plan) (collector.Session, error) {
	if s.dcgm == nil {
		session, err := s.openNVML(ctx, plan)
		s.noteMissing(ctx, err, false)
		return session, err
	}
	s.engine.begin(s.opt.Engine)
	session, err := s.openDCGM(ctx, plan)
	if err != nil && s.opt.Fallback && isAbsent(err) && ctx.Err() == nil {
		session, err = s.openFallback(ctx, plan, err)
	}
	unreachable := err != nil && ctx.Err() == nil && !s.isListening(ctx)
	s.noteMissing(ctx, err, unreachable)
	if first := s.engine.end(err); first && (unreachable || isAbsent(err)) {
		s.opt.Log.Error("No data: the host engine is unavailable. Start nv-hostengine on its machine "+
			"(systemctl start nvidia-dcgm), install libdcgm here (datacenter-gpu-manager-4-core), correct "+
			"--remote-hostengine-info, or allow NVML in its place with --fallback=nvml",
			"engine", s.opt.Engine.String(), "not_ready_after", engineGrace, "error", err)
	}
	return session, err
}

// openDCGM opens DCGM. It tries a plain connection first if dial is set.
func (s *Source) openDCGM(ctx context.Context, plan *gpu.Plan) (collector.Session, error) {
	if s.dial && !s.isListening(ctx) {
		return nil, fmt.Errorf("dcgm: %w: nothing listens at %s", gpu.ErrUnavailable, s.opt.Engine)
	}
	session, err := s.dcgm.Open(ctx, plan)
	if s.opt.Required && errors.Is(err, dcgm.ErrLibrary) {
		s.opt.Metrics.missingLibrary.Set(gauge.Series{Value: 1, Labels: []string{dcgm.Library, libraryRemedy}})
	} else {
		s.opt.Metrics.missingLibrary.Set()
	}
	if err != nil {
		if s.dcgmOpened.Load() && s.isOutdated(err) {
			s.reportReplaced()
		}
		return nil, err
	}
	s.dcgmOpened.Store(true)
	s.setFallback(false, nil)
	merged := &mergedSession{Session: session, interval: plan.Interval, open: s.openNVML}
	if s.opt.Positions {
		merged.addPositions(ctx)
	}
	return merged, nil
}

// setFallback records whether NVML is read because DCGM is unavailable, and logs changes.
func (s *Source) setFallback(active bool, cause error) {
	before := s.onFallback.Swap(active)
	switch {
	case before && !active:
		s.opt.Metrics.fallback.Set(0)
		s.opt.Log.Info("DCGM is available again")
	case !before && active:
		s.opt.Metrics.fallback.Set(1)
		s.opt.Log.Warn("DCGM unavailable; using NVML until it returns", "error", cause)
	}
}

// openFallback opens NVML. The cause is why DCGM is unavailable.
func (s *Source) openFallback(ctx context.Context, plan *gpu.Plan, cause error) (collector.Session, error) {
	session, err := s.openNVML(ctx, plan)
	if err == nil {
		s.setFallback(true, cause)
	} else if errors.Is(err, gpu.ErrUnavailable) {
		err = fmt.Errorf("%w; %w", cause, err)
	}
	return session, err
}

func (s *Source) openNVML(ctx context.Context, plan *gpu.Plan) (collector.Session, error) {
	session, err := s.nvml.Open(ctx, plan)
	if err == nil {
		s.nvmlOpened.Store(true)
	} else if s.nvmlOpened.Load() && errors.Is(err, nvml.ErrReplaced) {
		s.reportReplaced()
	}
	return session, err
}

// isAbsent reports whether NVML may be read after DCGM failed to open with err. Other errors of DCGM, such as a version
// mismatch, must stay visible.
func isAbsent(err error) bool {
	return errors.Is(err, gpu.ErrUnavailable) || errors.Is(err, gpu.ErrLost) || errors.Is(err, gpu.ErrTimeout)
}
