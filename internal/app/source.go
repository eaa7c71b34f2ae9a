package app

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/accounting"
	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/process"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/dcgm"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/nvml"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
)

// Chosen is a source, and who says what its entities are used for.
type Chosen struct {
	Source      collector.Source
	Attributors []collector.Attributor
	// PodOf tells the pod of a process of the source.
	PodOf accounting.PodOf
	// Derivers are what the Attributors learn from collections by.
	Derivers []snapshot.Deriver
}

// sources makes the sources that configurations name. libdcgm and NVML are one
// per process, and so are their sources: a reload uses them again.
type sources struct {
	start    time.Time // of the process
	registry prometheus.Registerer
	files    *Files
	log      *slog.Logger
	hosts    hosts

	kubernetes kubernetes

	// released reports whether nothing may be opened now; nil: never.
	released func() bool
	standIn  *standIn
	engine   engineState
	fellBack bool // to the simulated node, when the hardware was last tried

	simulated *sim.Source // the latest choice, nil where that is another
	replayed  bool        // the latest choice is a recording

	dcgm        *dcgm.Source
	dcgmOptions dcgm.Options
	nvml        *nvml.Source
	worked      atomic.Bool       // NVML did, once
	dcgmWorked  atomic.Bool       // DCGM did, once
	replaced    chan struct{}     // a library in use, on disk or by another driver
	pods        *process.Resolver // of this machine's processes
}

func newSources(start time.Time, registry prometheus.Registerer, files *Files, log *slog.Logger) *sources {
	return &sources{start: start, registry: registry, files: files, log: log, nvml: nvml.New(nvml.Options{Log: log}), replaced: make(chan struct{}, 1), pods: process.NewResolver(os.DirFS("/proc")),
		kubernetes: kubernetes{registry: registry, log: log}, standIn: newStandIn(registry, log)}
}

// chooseSource returns the source that the configuration names. Automatic choice
// takes DCGM where it is and NVML otherwise, anew at every attempt to open, so
// that a driver that arrives late is found.
func (s *sources) chooseSource(ctx context.Context, cfg *config.Config, plan *gpu.Plan) (Chosen, error) {
	s.simulated, s.replayed = nil, false
	if !mayStandIn(cfg.Source) {
		s.standIn.none()
	}
	switch cfg.Source.Kind {
	case config.SourceNVML:
		return Chosen{Source: s.ofNVML(), PodOf: s.pods.PodOf}, nil
	case config.SourceSim:
		return s.ofSim(cfg)
	}
	hardware, err := s.ofDCGM(cfg)
	if err != nil {
		return Chosen{}, err
	}
	if mayStandIn(cfg.Source) {
		hardware = s.standIn.of(hardware, s.ofNVML(), cfg.Source.Remote)
	}
	if cfg.Source.Remote != "" {
		hardware = patientSource{Source: hardware, engineState: &s.engine, address: cfg.Source.Remote, log: s.log}
		return Chosen{Source: hardware, PodOf: s.pods.PodOf}, nil
	}
	s.engine.reset()
	if cfg.Source.Kind == config.SourceDCGM {
		return Chosen{Source: hardware, PodOf: s.pods.PodOf}, nil
	}
	if cfg.Source.Sim.Fallback && (s.released == nil || !s.released()) {
		session, err := hardware.Open(ctx, plan)
		if err == nil {
			err = session.Close()
		}
		s.fellBack = errors.Is(err, gpu.ErrUnavailable) // of what else is wrong with it, the loop tells
	}
	if cfg.Source.Sim.Fallback && s.fellBack {
		return s.ofSim(cfg)
	}
	return Chosen{Source: hardware, PodOf: s.pods.PodOf}, nil
}

func (s *sources) ofDCGM(cfg *config.Config) (collector.Source, error) {
	options := dcgm.Options{Remote: cfg.Source.Remote, Log: s.log}
	if cfg.Source.DCGMLog {
		options.EngineLog = cfg.Source.DCGMLogLevel
	}
	if err := options.Check(); err != nil {
		return nil, fmt.Errorf("--remote-hostengine-info or --dcgm-log-level: %w", err)
	}
	if s.dcgm == nil || s.dcgmOptions != options {
		s.dcgm, s.dcgmOptions = dcgm.New(options), options
	}
	outdated := outdatedEngine
	if cfg.Source.Remote != "" {
		outdated = outdatedClient
	}
	source := watchful{Source: collector.SourceOf(s.dcgm.Open), worked: &s.dcgmWorked, replaced: s.replaced, outdated: outdated}
	return paired{Source: source, processes: s.ofNVML()}, nil
}

func (s *sources) ofNVML() collector.Source {
	return watchful{Source: collector.SourceOf(s.nvml.Open), worked: &s.worked, replaced: s.replaced, outdated: outdatedNVML}
}

func (s *sources) ofSim(cfg *config.Config) (Chosen, error) {
	if node := cfg.Source.Sim.Node; isRecording(node) {
		return s.ofRecording(cfg, node)
	}
	// The world begins with the process: a reload does not reset its counters.
	options := sim.Options{Node: cfg.Source.Sim.Node, Seed: cfg.Source.Sim.Seed, Start: s.start}
	if path := cfg.Source.Sim.Scenario; path != "" {
		content, err := s.files.Read(path)
		if err != nil {
			return Chosen{}, fmt.Errorf("scenario: %w", err)
		}
		if options.Scenario, err = sim.ParseScenario(bytes.NewReader(content), path); err != nil {
			return Chosen{}, err
		}
	}
	source, err := sim.New(options)
	if err != nil {
		return Chosen{}, err
	}
	s.simulated = source
	s.log.Warn("SIMULATED NODE: every value is made up, no GPU is read", "node", cmp.Or(options.Node, sim.DefaultNode))
	return Chosen{Source: collector.SourceOf(source.Open), Attributors: []collector.Attributor{source}, PodOf: source.PodOf}, nil
}

// isRecording reports whether the setting names a file and not a node.
func isRecording(node string) bool {
	if node == "" || slices.Contains(sim.Nodes(), node) {
		return false
	}
	_, err := os.Stat(node)
	return err == nil || strings.ContainsAny(node, "./")
}

func (s *sources) ofRecording(cfg *config.Config, path string) (Chosen, error) {
	if cfg.Source.Sim.Scenario != "" {
		return Chosen{}, fmt.Errorf("--sim-scenario %q with the recording --sim-node %q: a recording has its own faults", cfg.Source.Sim.Scenario, path)
	}
	content, err := s.files.Read(path)
	if err != nil {
		return Chosen{}, fmt.Errorf("recording: %w", err)
	}
	rec, err := sim.ReadRecording(bytes.NewReader(content), path)
	if err != nil {
		return Chosen{}, err
	}
	s.replayed = true
	s.log.Warn("REPLAYED RECORDING: every value was recorded elsewhere, no GPU is read", "file", path)
	replay := sim.NewReplay(rec, sim.Options{Start: s.start})
	chosen := Chosen{Source: collector.SourceOf(replay.Open), PodOf: replay.PodOf}
	for _, owners := range replay.Owners() {
		chosen.Attributors = append(chosen.Attributors, owners)
	}
	return chosen, nil
}
