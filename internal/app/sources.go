package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/gpu-telemetry/dcgm-exporter/internal/accounting"
	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/events/kernellog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/jobmapper"
	"github.com/gpu-telemetry/dcgm-exporter/internal/kube"
	"github.com/gpu-telemetry/dcgm-exporter/internal/podmapper"
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

// kubernetes creates the attributor "kubernetes". Each process has at most one.
type kubernetes struct {
	registry prometheus.Registerer
	watches  *apiWatches
	mapper   *podmapper.Mapper
	revision func() uint64           // revision of the watched objects; nil if nothing is watched
	uidOf    func(uid string) string // maps a pod's UID on the node to the API server's; nil without an API server
}

// attributor returns the mapper for the configured interval. The mapper and its watches end with the ctx of the first
// call.
func (k *kubernetes) attributor(ctx context.Context, cfg *config.Config) *podmapper.Mapper {
	if k.mapper == nil {
		set := cfg.Kubernetes
		opt := podmapper.Options{
			Socket: set.Socket, Resources: set.ResourceNames, LogFolder: set.PodLogs, PodUID: set.PodUID,
			PodLabels: set.PodLabels, LabelsAllowed: expressions(set.PodLabelAllowed), MaxPodLabels: set.MaxPodLabels,
			Metrics: podmapper.NewMetrics(k.registry),
		}
		if set.PodLabels || set.PodUID || set.DRA {
			k.addAPI(ctx, cfg, &opt)
		}
		k.revision = opt.Revision
		k.mapper = podmapper.New(opt)
		context.AfterFunc(ctx, k.mapper.Close)
	}
	k.mapper.Every(cfg.Collection.Interval)
	return k.mapper
}

// expressions compiles regular expressions that package config has validated.
func expressions(texts []string) []*regexp.Regexp {
	var all []*regexp.Regexp
	for _, text := range texts {
		all = append(all, regexp.MustCompile(text))
	}
	return all
}

// podOf wraps podOf so that it returns the API server's UID of static pods.
func (k *kubernetes) podOf(podOf accounting.PodOf) accounting.PodOf {
	if k.uidOf == nil {
		return podOf
	}
	return func(pid uint32) ([]string, error) {
		uids, err := podOf(pid)
		known := make([]string, len(uids))
		for i, uid := range uids {
			known[i] = k.uidOf(uid)
		}
		return known, err
	}
}

// addAPI adds the pods and claims of the API server to the mapper. Without a server or a node name, the mapper works
// without them.
func (k *kubernetes) addAPI(ctx context.Context, cfg *config.Config, opt *podmapper.Options) {
	client, err := kube.New(kube.Options{
		Kubeconfig: filepath.SplitList(cfg.Kubernetes.Kubeconfig), Report: k.watches.report,
		MaxBackoff: min(max(cfg.Collection.Interval, time.Second), 30*time.Second),
	})
	if cfg.Labels.NodeName == "" { // an agent on each node must not read all pods of the cluster
		err = errors.New("NODE_NAME is not set: pod labels, pod UIDs and claims are unavailable " +
			"(in a manifest, set it from fieldRef spec.nodeName)")
	}
	watchesPods, watchesSlices := cfg.Kubernetes.PodLabels || cfg.Kubernetes.PodUID, cfg.Kubernetes.DRA
	if err != nil {
		if watchesPods {
			k.watches.report("pods", err)
		}
		if watchesSlices {
			k.watches.report("resourceslices", err)
			// unresolved claims are counted as unmatched
			opt.Device = func(_, _, _ string) (d podmapper.ClaimDevice, ok bool) { return d, false }
		}
		return
	}
	opt.MPS = client.MPS(ctx, cfg.Labels.NodeName)
	opt.Revision = func() uint64 { return 0 }
	add := func(revision func() uint64) { // all revisions only grow, and so does their sum
		others := opt.Revision
		opt.Revision = func() uint64 { return others() + revision() }
	}
	if watchesPods {
		pods := client.Pods(ctx, cfg.Labels.NodeName)
		add(pods.Revision)
		opt.Ready = append(opt.Ready, pods.Listed())
		opt.Pod, opt.Stale, k.uidOf = pods.Get, pods.Stale, pods.UIDOf
	}
	if watchesSlices {
		slices, claims := client.Slices(ctx, cfg.Labels.NodeName), client.Claims(ctx)
		add(slices.Revision)
		add(claims.Revision)
		opt.Ready = append(opt.Ready, slices.Listed())
		opt.Device, opt.Claimed, opt.ClaimsRead = slices.Get, claims.Get, claims.Wait
	}
}

// apiWatches reports the success of watches as a metric, and logs changes.
type apiWatches struct {
	log   *slog.Logger
	gauge *prometheus.GaugeVec
	last  sync.Map // text of the latest error by resource; "" after a success
}

func newAPIWatches(reg prometheus.Registerer, log *slog.Logger) *apiWatches {
	return &apiWatches{log: log, gauge: promauto.With(reg).NewGaugeVec(prometheus.GaugeOpts{
		Name: "dcgm_exporter_kubernetes_api_success",
		Help: "Whether the API server answered the latest request for the resource.",
	}, []string{"resource"})}
}

func (w *apiWatches) report(resource string, err error) {
	if resource == "nodes" { // optional: it only tells MPS from time-slicing
		w.log.Debug("Requested the node's labels to recognize MPS", "error", err)
		return
	}
	text, value := "", 1.0
	if err != nil {
		text, value = err.Error(), 0
	}
	w.gauge.WithLabelValues(resource).Set(value)
	before, known := w.last.Swap(resource, text)
	switch {
	case err != nil && before != text:
		w.log.Warn("Kubernetes API request failed", "resource", resource, "error", err)
	case known && before != text:
		w.log.Info("Kubernetes API request succeeded again", "resource", resource)
	}
}

// Pods returns the mapper that Run uses with --kubernetes. It waits for the API server, for at most five seconds.
func Pods(ctx context.Context, cfg *config.Config) *podmapper.Mapper {
	registry := prometheus.NewRegistry()
	k := kubernetes{registry: registry, watches: newAPIWatches(registry, slog.New(slog.DiscardHandler))}
	mapper := k.attributor(ctx, cfg)
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for k.revision != nil && k.revision() == 0 && ctx.Err() == nil {
		time.Sleep(50 * time.Millisecond)
	}
	return mapper
}

// Unmatched returns the devices that the kubelet lists for containers but that match no entity of t.
func Unmatched(ctx context.Context, cfg *config.Config, t *gpu.Topology) ([]podmapper.Unmatched, error) {
	mapper := Pods(ctx, cfg)
	defer mapper.Close()
	return mapper.Unmatched(ctx, t)
}
