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
	if cfg.HPC.Dir != "" {
		chosen.Attributors = append(chosen.Attributors, s.ofJobs(cfg.HPC))
	}
	if cfg.Containers.Enabled && !cfg.Kubernetes.Enabled {
		containers, err := s.ofContainers(cfg.Containers)
		if err != nil {
			return Chosen{}, err
		}
		chosen.Attributors = append(chosen.Attributors, containers)
	}
	return chosen, nil
}

func (s *sources) ofJobs(cfg config.HPC) collector.Attributor {
	h := &s.hosts
	if h.jobMetrics == nil {
		h.jobMetrics = jobmapper.NewMetrics(s.registry)
	}
	if h.jobs == nil || h.jobsOf != cfg {
		h.jobs, h.jobsOf = jobmapper.New(jobmapper.Options{Dir: cfg.Dir, Metrics: h.jobMetrics, Log: s.log}), cfg
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
