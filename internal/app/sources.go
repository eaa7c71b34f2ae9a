package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/accounting"
	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/events/kernellog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/jobmapper"
	"github.com/gpu-telemetry/dcgm-exporter/internal/process"
	"github.com/gpu-telemetry/dcgm-exporter/internal/runtimemapper"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/hardware"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
)

// A Backend is a source with the attributors of its entities.
type Backend struct {
	Source      collector.Source
	Attributors []collector.Attributor
	// PodOf returns the pod of a process of the source.
	PodOf accounting.PodOf
}

// sources makes the source of the configuration and its attributors. Both last as long as the process: a reload changes
// only fields, intervals and the scenario of a simulation.
type sources struct {
	start    time.Time // when the process started
	registry prometheus.Registerer
	log      *slog.Logger

	hardwareMetrics *hardware.Metrics
	hardware        *hardware.Source // nil before the first backend, and for a simulation
	simulated       *sim.Source      // nil for hardware

	pods       *process.Resolver // finds the pods of this machine's processes
	kubernetes kubernetes
	jobs       *jobmapper.Mapper
	containers *runtimemapper.Mapper
}

func newSources(start time.Time, registry prometheus.Registerer, log *slog.Logger) *sources {
	return &sources{
		start: start, registry: registry, log: log,
		hardwareMetrics: hardware.NewMetrics(registry),
		pods:            process.NewResolver(os.DirFS("/proc")),
		kubernetes:      kubernetes{registry: registry, watches: newAPIWatches(registry, log)},
	}
}

// isReady reports whether the configured driver is available, or was until a moment ago.
func (s *sources) isReady() bool { return s.hardware == nil || s.hardware.Ready() }

// backend returns the source of the configuration and the attributors of its entities.
func (s *sources) backend(ctx context.Context, cfg *config.Config, plan *gpu.Plan) (Backend, error) {
	backend, err := s.source(ctx, cfg, plan)
	if err != nil {
		return Backend{}, err
	}
	if cfg.Kubernetes.Enabled { // a simulated node has a real kubelet too
		backend.Attributors = []collector.Attributor{s.kubernetes.attributor(ctx, cfg)}
		backend.PodOf = s.kubernetes.podOf(backend.PodOf)
	}
	if cfg.HPC.Dir != "" {
		if s.jobs == nil {
			metrics := jobmapper.NewMetrics(s.registry)
			s.jobs = jobmapper.New(jobmapper.Options{Dir: cfg.HPC.Dir, Metrics: metrics, Log: s.log})
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
		return s.simulate(cfg)
	}
	if s.hardware == nil {
		options := hardwareOptions(cfg)
		options.Metrics, options.Log = s.hardwareMetrics, s.log
		source := hardware.New(options)
		if cfg.Source.Sim.Fallback && !options.Required && !options.NVMLOnly {
			session, err := source.Open(ctx, plan)
			if err == nil {
				err = session.Close()
			}
			if errors.Is(err, gpu.ErrUnavailable) { // the loop reports any other fault
				return s.simulate(cfg)
			}
		}
		s.hardware = source
	}
	return Backend{Source: s.hardware, PodOf: s.pods.PodOf}, nil
}

func hardwareOptions(cfg *config.Config) hardware.Options {
	c := cfg.Source
	opt := hardware.Options{
		NVMLOnly: c.Kind == config.SourceNVML, Fallback: FallsBackToNVML(cfg), Engine: c.Remote,
		Required:  c.Kind == config.SourceDCGM || !c.Remote.IsEmbedded(),
		Positions: cfg.Kubernetes.Enabled && cfg.Kubernetes.DRA, // claims may name GPU instances by position
	}
	if c.DCGMLog {
		opt.EngineLog = c.DCGMLogLevel
	}
	return opt
}

// FallsBackToNVML reports whether NVML is read while DCGM is unavailable.
func FallsBackToNVML(cfg *config.Config) bool {
	c := cfg.Source
	return c.Kind == config.SourceAuto &&
		(c.Fallback == config.FallbackNVML || c.Fallback == config.FallbackAuto && hardware.IsLocal(c.Remote))
}

func (s *sources) simulate(cfg *config.Config) (Backend, error) {
	// The simulation starts with the process, so that a reload does not reset its counters.
	options := sim.Options{Node: cfg.Source.Sim.Node, Seed: cfg.Source.Sim.Seed, Start: s.start}
	if path := cfg.Source.Sim.Scenario; path != "" {
		content, err := (&Reader{started: true}).ReadFile(path)
		if err != nil {
			return Backend{}, fmt.Errorf("scenario: %w", err)
		}
		if options.Scenario, err = sim.ParseScenario(content, path); err != nil {
			return Backend{}, err
		}
	}
	source, err := sim.New(options)
	if err != nil {
		return Backend{}, err
	}
	s.simulated = source
	s.log.Warn("SIMULATED NODE: every value is made up, no GPU is read", "node", cmp.Or(options.Node, sim.DefaultNode))
	return Backend{
		Source: collector.SourceOf(source.Open), Attributors: []collector.Attributor{source}, PodOf: source.PodOf,
	}, nil
}

// kernelLogOptions returns the options for the kernel log at path. Simulated GPUs have a simulated log, since this
// machine's log may have XIDs of real GPUs at the same bus address. The pod of a process that an XID has ended is known
// from previous reads.
func (s *sources) kernelLogOptions(path string) kernellog.Options {
	o := kernellog.Options{Path: path, Registerer: s.registry, Log: s.log, PodOf: s.pods.CachedPodOf}
	if source := s.simulated; source != nil {
		o.Path, o.PodOf = "simulated", source.PodOf
		o.Open = func() (kernellog.Device, error) { return source.KernelLog(), nil }
	}
	o.PodOf = s.kubernetes.podOf(o.PodOf)
	return o
}

// expressions compiles regular expressions that package config has validated.
func expressions(texts []string) []*regexp.Regexp {
	var all []*regexp.Regexp
	for _, text := range texts {
		all = append(all, regexp.MustCompile(text))
	}
	return all
}
