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
	"github.com/gpu-telemetry/dcgm-exporter/internal/jobmapper"
	"github.com/gpu-telemetry/dcgm-exporter/internal/process"
	"github.com/gpu-telemetry/dcgm-exporter/internal/runtimemapper"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
)

// Backend is a source, and the attributors of its entities.
type Backend struct {
	Source      collector.Source
	Attributors []collector.Attributor
	// PodOf returns the pod of a process of the source.
	PodOf accounting.PodOf
}

// sources makes the source that the flags name, and its attributors. Both live as long as the process: a reload changes
// fields, intervals and the scenario of a simulation.
type sources struct {
	start    time.Time // of the process
	registry prometheus.Registerer
	log      *slog.Logger

	fallback *fallback
	// noLibrary says that DCGM is requested and its library is not there.
	noLibrary *gauge.State
	engine    engineState

	away      atomic.Pointer[hardware] // whose engine did not listen
	hardware  *hardware                // nil before the first choice, and for a simulation
	simulated *sim.Source              // nil for hardware

	nvmlWorked atomic.Bool       // once
	dcgmWorked atomic.Bool       // once
	replaced   chan struct{}     // a library in use, on disk or by another driver
	pods       *process.Resolver // of this machine's processes

	kubernetes kubernetes
	jobs       *jobmapper.Mapper
	containers *runtimemapper.Mapper
}

// libraryRemedy is the remedy where DCGM is requested and libdcgm is missing.
const libraryRemedy = "install datacenter-gpu-manager-4-core; in a container use the image whose tag ends in -dcgm"

func newSources(start time.Time, registry prometheus.Registerer, log *slog.Logger) *sources {
	s := &sources{
		start: start, registry: registry, log: log,
		fallback: newFallback(registry, log),
		noLibrary: gauge.NewState("dcgm_exporter_library_missing",
			"1 while DCGM is configured and its library cannot be loaded, with what to do; absent otherwise.", "library", "remedy"),
		replaced:   make(chan struct{}, 1),
		pods:       process.NewResolver(os.DirFS("/proc")),
		kubernetes: kubernetes{registry: registry, watches: newAPIWatches(registry, log)},
	}
	registry.MustRegister(s.noLibrary)
	return s
}

// backend returns the source that the flags name, and the attributors of its entities.
func (s *sources) backend(ctx context.Context, cfg *config.Config, plan *gpu.Plan) (Backend, error) {
	backend, err := s.source(ctx, cfg, plan)
	if err != nil {
		return Backend{}, err
	}
	if cfg.Kubernetes.Enabled { // the kubelet is queried, also for a simulated node
		backend.Attributors = []collector.Attributor{s.kubernetes.attributor(ctx, cfg)}
		backend.PodOf = s.kubernetes.podOf(backend.PodOf)
	}
	if cfg.HPC.Dir != "" {
		if s.jobs == nil {
			s.jobs = jobmapper.New(jobmapper.Options{Dir: cfg.HPC.Dir, Metrics: jobmapper.NewMetrics(s.registry), Log: s.log})
		}
		backend.Attributors = append(backend.Attributors, s.jobs)
	}
	if cfg.Containers.Enabled && !cfg.Kubernetes.Enabled {
		if s.containers == nil {
			s.containers = runtimemapper.New(runtimemapper.Options{
				Socket: cfg.Containers.Socket, LabelAllowed: expressions(cfg.Containers.LabelAllowed),
				Metrics: runtimemapper.NewMetrics(s.registry), Log: s.log,
			})
		}
		backend.Attributors = append(backend.Attributors, s.containers)
	}
	return backend, nil
}

// source returns the source without the attributors of Kubernetes, jobs and containers.
func (s *sources) source(ctx context.Context, cfg *config.Config, plan *gpu.Plan) (Backend, error) {
	if s.simulated != nil || cfg.Source.Kind == config.SourceSim {
		return s.ofSim(cfg)
	}
	open := func(ctx context.Context, plan *gpu.Plan) (collector.Session, error) {
		return s.openSource(ctx, s.hardware, plan)
	}
	backend := Backend{Source: collector.SourceOf(open), PodOf: s.pods.PodOf}
	if s.hardware != nil {
		return backend, nil
	}
	s.hardware = newHardware(cfg.Source, s.log)
	s.hardware.locates = cfg.Kubernetes.Enabled && cfg.Kubernetes.DRA
	if s.hardware.named || s.hardware.dcgm == nil || !cfg.Source.Sim.Fallback {
		return backend, nil
	}
	session, err := open(ctx, plan)
	if err == nil {
		err = session.Close()
	}
	if errors.Is(err, gpu.ErrUnavailable) { // the loop reports any other fault
		return s.ofSim(cfg)
	}
	return backend, nil
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
