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

	standIn *standIn
	// noLibrary says that DCGM is requested and its library is not there.
	noLibrary *gauge.State
	engine    engineState
	fellBack  bool // to the simulated node, when the hardware was last tried

	simulated *sim.Source // the latest choice, nil where that is another

	dcgm        *dcgm.Source
	dcgmOptions dcgm.Options
	nvml        *nvml.Source
	worked      atomic.Bool       // NVML did, once
	dcgmWorked  atomic.Bool       // DCGM did, once
	replaced    chan struct{}     // a library in use, on disk or by another driver
	pods        *process.Resolver // of this machine's processes
}

func newSources(start time.Time, registry prometheus.Registerer, log *slog.Logger) *sources {
	noLibrary := newNoLibrary(registry)
	return &sources{start: start, registry: registry, noLibrary: noLibrary, log: log, nvml: nvml.New(nvml.Options{Log: log}), replaced: make(chan struct{}, 1), pods: process.NewResolver(os.DirFS("/proc")),
		kubernetes: kubernetes{registry: registry, log: log}, standIn: newStandIn(registry, log)}
}

// source returns the source that the configuration names. Automatic choice takes DCGM where it is
// and NVML otherwise, again at every attempt to open, so that a driver that arrives late is found.
func (s *sources) source(ctx context.Context, cfg *config.Config, plan *gpu.Plan) (Backend, error) {
	s.simulated = nil
	s.noLibrary.Set()
	if !mayStandIn(cfg.Source) {
		s.standIn.none()
	}
	switch cfg.Source.Kind {
	case config.SourceNVML:
		return Backend{Source: s.ofNVML(), PodOf: s.pods.PodOf}, nil
	case config.SourceSim:
		return s.ofSim(cfg)
	}
	hardware, err := s.ofDCGM(cfg)
	if err != nil {
		return Backend{}, err
	}
	if cfg.Source.Kind == config.SourceDCGM || !cfg.Source.Remote.IsEmbedded() {
		hardware = needsLibrary{Source: hardware, missing: s.noLibrary}
	}
	if mayStandIn(cfg.Source) {
		hardware = s.standIn.of(hardware, s.ofNVML(), cfg.Source.Remote)
	}
	if !cfg.Source.Remote.IsEmbedded() {
		hardware = patientSource{Source: hardware, engineState: &s.engine, address: cfg.Source.Remote, log: s.log}
		return Backend{Source: hardware, PodOf: s.pods.PodOf}, nil
	}
	s.engine.reset()
	if cfg.Source.Kind == config.SourceDCGM {
		return Backend{Source: hardware, PodOf: s.pods.PodOf}, nil
	}
	if cfg.Source.Sim.Fallback {
		session, err := hardware.Open(ctx, plan)
		if err == nil {
			err = session.Close()
		}
		s.fellBack = errors.Is(err, gpu.ErrUnavailable) // what else is wrong with it, the loop reports
	}
	if cfg.Source.Sim.Fallback && s.fellBack {
		return s.ofSim(cfg)
	}
	return Backend{Source: hardware, PodOf: s.pods.PodOf}, nil
}

func (s *sources) ofDCGM(cfg *config.Config) (collector.Source, error) {
	options := dcgm.Options{Remote: cfg.Source.Remote, Log: s.log}
	if cfg.Source.DCGMLog {
		options.EngineLog = cfg.Source.DCGMLogLevel
	}
	if err := options.Check(); err != nil {
		return nil, fmt.Errorf("--dcgm-log-level: %w", err)
	}
	if s.dcgm == nil || s.dcgmOptions != options {
		s.dcgm, s.dcgmOptions = dcgm.New(options), options
	}
	outdated := outdatedEngine
	if !cfg.Source.Remote.IsEmbedded() {
		outdated = outdatedClient
	}
	source := restartOnReplace{Source: collector.SourceOf(s.dcgm.Open), worked: &s.dcgmWorked, replaced: s.replaced, outdated: outdated}
	return paired{Source: source, processes: s.ofNVML()}, nil
}

func (s *sources) ofNVML() collector.Source {
	return restartOnReplace{Source: collector.SourceOf(s.nvml.Open), worked: &s.worked, replaced: s.replaced, outdated: outdatedNVML}
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
