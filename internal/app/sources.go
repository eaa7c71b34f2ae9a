package app

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/accounting"
	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gauge"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/process"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/dcgm"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/nvml"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
)

// Backend is a source, and the attributors of its entities.
type Backend struct {
	Source      collector.Source
	Attributors []collector.Attributor
	// PodOf returns the pod of a process of the source.
	PodOf accounting.PodOf
}

// sources makes the sources that configurations name. libdcgm and NVML are one per process, and so
// are their sources: a reload uses them again.
type sources struct {
	start    time.Time // of the process
	registry prometheus.Registerer
	log      *slog.Logger
	hosts    hosts

	kubernetes kubernetes

	fallback *fallback
	// noLibrary says that DCGM is requested and its library is not there.
	noLibrary *gauge.State
	engine    engineState

	simulated *sim.Source // the latest choice, nil where that is another

	dcgm        *dcgm.Source
	dcgmOptions dcgm.Options
	nvml        *nvml.Source
	nvmlWorked  atomic.Bool       // once
	dcgmWorked  atomic.Bool       // once
	replaced    chan struct{}     // a library in use, on disk or by another driver
	pods        *process.Resolver // of this machine's processes
}

// libraryRemedy is what to do where DCGM is requested and libdcgm is missing.
const libraryRemedy = "install datacenter-gpu-manager-4-core; in a container use the image whose tag ends in -dcgm"

func newNoLibrary(reg prometheus.Registerer) *gauge.State {
	s := gauge.NewState("dcgm_exporter_library_missing",
		"1 while DCGM is configured and its library cannot be loaded, with what to do; absent otherwise.", "library", "remedy")
	reg.MustRegister(s)
	return s
}

func newSources(start time.Time, registry prometheus.Registerer, log *slog.Logger) *sources {
	noLibrary := newNoLibrary(registry)
	return &sources{start: start, registry: registry, noLibrary: noLibrary, log: log, nvml: nvml.New(nvml.Options{Log: log}), replaced: make(chan struct{}, 1), pods: process.NewResolver(os.DirFS("/proc")),
		kubernetes: kubernetes{registry: registry, log: log}, fallback: newFallback(registry, log)}
}

// source returns the source that the configuration names.
func (s *sources) source(ctx context.Context, cfg *config.Config, plan *gpu.Plan) (Backend, error) {
	s.simulated = nil
	s.noLibrary.Set()
	if !mayFallBack(cfg.Source) {
		s.fallback.set(nil, nil)
	}
	if cfg.Source.Kind == config.SourceSim {
		return s.ofSim(cfg)
	}
	h := &hardware{nvml: collector.SourceOf(s.nvml.Open)}
	if cfg.Source.Kind != config.SourceNVML {
		if err := s.addDCGM(cfg, h); err != nil {
			return Backend{}, err
		}
	}
	if h.address.IsEmbedded() {
		s.engine.reset()
	}
	open := func(ctx context.Context, plan *gpu.Plan) (collector.Session, error) {
		return s.openSource(ctx, h, plan)
	}
	if h.named || h.dcgm == nil || !cfg.Source.Sim.Fallback {
		return Backend{Source: collector.SourceOf(open), PodOf: s.pods.PodOf}, nil
	}
	session, err := open(ctx, plan)
	if err == nil {
		err = session.Close()
	}
	if errors.Is(err, gpu.ErrUnavailable) { // what else is wrong with it, the loop reports
		return s.ofSim(cfg)
	}
	return Backend{Source: collector.SourceOf(open), PodOf: s.pods.PodOf}, nil
}

// addDCGM makes the hardware that of DCGM, as configured.
func (s *sources) addDCGM(cfg *config.Config, h *hardware) error {
	options := dcgm.Options{Remote: cfg.Source.Remote, Log: s.log}
	if cfg.Source.DCGMLog {
		options.EngineLog = cfg.Source.DCGMLogLevel
	}
	if err := options.Check(); err != nil {
		return fmt.Errorf("--dcgm-log-level: %w", err)
	}
	if s.dcgm == nil || s.dcgmOptions != options {
		s.dcgm, s.dcgmOptions = dcgm.New(options), options
	}
	h.dcgm, h.address = collector.SourceOf(s.dcgm.Open), cfg.Source.Remote
	h.named = cfg.Source.Kind == config.SourceDCGM || !h.address.IsEmbedded()
	h.fallback = mayFallBack(cfg.Source)
	return nil
}

func (s *sources) ofSim(cfg *config.Config) (Backend, error) {
	// The world begins with the process: a reload does not reset its counters.
	options := sim.Options{Node: cfg.Source.Sim.Node, Seed: cfg.Source.Sim.Seed, Start: s.start}
	if path := cfg.Source.Sim.Scenario; path != "" {
		content, err := ReadFile(path)
		if err != nil {
			return Backend{}, fmt.Errorf("scenario: %w", err)
		}
		if options.Scenario, err = sim.ParseScenario(bytes.NewReader(content), path); err != nil {
			return Backend{}, err
		}
	}
	source, err := sim.New(options)
	if err != nil {
		return Backend{}, err
	}
	s.simulated = source
	s.log.Warn("SIMULATED NODE: every value is made up, no GPU is read", "node", cmp.Or(options.Node, sim.DefaultNode))
	return Backend{Source: collector.SourceOf(source.Open), Attributors: []collector.Attributor{source}, PodOf: source.PodOf}, nil
}
