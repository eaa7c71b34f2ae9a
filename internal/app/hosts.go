package app

import (
	"context"
	"fmt"
	"reflect"
	"regexp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/jobmapper"
	"github.com/gpu-telemetry/dcgm-exporter/internal/runtimemapper"
)

// hosts are the attributors of hosts without Kubernetes. Each is made when
// first configured, and stays until its settings change: what it has read is
// good after a reload too.
type hosts struct {
	jobs       *jobmapper.Mapper
	jobsOf     config.HPC
	jobMetrics *jobmapper.Metrics
	processes  *jobmapper.Processes

	containers       *runtimemapper.Mapper
	containersOf     config.Containers
	containerMetrics *runtimemapper.Metrics
}

// choose returns the source that the configuration names, and everyone who
// says what its entities are used for.
func (s *sources) choose(ctx context.Context, cfg *config.Config, plan *gpu.Plan) (Chosen, error) {
	chosen, err := s.chooseSource(ctx, cfg, plan)
	if err != nil {
		return Chosen{}, err
	}
	if cfg.Kubernetes.Enabled { // the kubelet is asked, also for a simulated node
		pods, err := s.kubernetes.attributor(ctx, cfg)
		if err != nil {
			return Chosen{}, err
		}
		chosen.Attributors = []collector.Attributor{pods}
		chosen.PodOf = s.kubernetes.podOf(chosen.PodOf)
	}
	s.chooseJobs(cfg.HPC, &chosen)
	if cfg.Containers.Enabled && !cfg.Kubernetes.Enabled {
		containers, err := s.ofContainers(cfg.Containers)
		if err != nil {
			return Chosen{}, err
		}
		chosen.Attributors = append(chosen.Attributors, containers)
	}
	return chosen, nil
}

// chooseJobs adds what says which jobs use the entities. The processes of a node that is made up, or
// was recorded elsewhere, are none of this machine's.
func (s *sources) chooseJobs(cfg config.HPC, chosen *Chosen) {
	if cfg.Cgroups && (s.simulated != nil || s.replayed) {
		s.log.Warn("--hpc-job-cgroups has no effect: the processes are not this machine's")
		cfg.Cgroups = false
	}
	if cfg.Dir == "" && !cfg.Cgroups {
		return
	}
	chosen.Attributors = append(chosen.Attributors, s.ofJobs(cfg))
	if cfg.Cgroups {
		chosen.Derivers = append(chosen.Derivers, s.hosts.processes)
	}
}

func (s *sources) ofJobs(cfg config.HPC) collector.Attributor {
	h := &s.hosts
	if h.processes == nil {
		h.processes = jobmapper.NewProcesses(s.pods.JobOf)
	}
	if h.jobMetrics == nil {
		h.jobMetrics = jobmapper.NewMetrics(s.registry)
	}
	if h.jobs == nil || h.jobsOf != cfg {
		options := jobmapper.Options{Dir: cfg.Dir, Metrics: h.jobMetrics, Log: s.log}
		if cfg.Cgroups {
			options.Processes = h.processes
		}
		h.jobs, h.jobsOf = jobmapper.New(options), cfg
	}
	return h.jobs
}

func (s *sources) ofContainers(cfg config.Containers) (collector.Attributor, error) {
	h := &s.hosts
	if h.containerMetrics == nil {
		h.containerMetrics = runtimemapper.NewMetrics(s.registry)
	}
	if h.containers == nil || !reflect.DeepEqual(h.containersOf, cfg) {
		options := runtimemapper.Options{Socket: cfg.Socket, Metrics: h.containerMetrics, Log: s.log}
		for _, expr := range cfg.LabelAllowed {
			allowed, err := regexp.Compile(expr)
			if err != nil {
				return nil, fmt.Errorf("--container-label-allowlist-regex: %w", err)
			}
			options.LabelAllowed = append(options.LabelAllowed, allowed)
		}
		h.containers, h.containersOf = runtimemapper.New(options), cfg
	}
	return h.containers, nil
}
