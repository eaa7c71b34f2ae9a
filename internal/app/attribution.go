package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"reflect"
	"regexp"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/accounting"
	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/jobmapper"
	"github.com/gpu-telemetry/dcgm-exporter/internal/kube"
	"github.com/gpu-telemetry/dcgm-exporter/internal/podmapper"
	"github.com/gpu-telemetry/dcgm-exporter/internal/runtimemapper"
)

// hosts are the attributors of hosts without Kubernetes. Each is made when first configured, and
// stays until its settings change: what it has read is good after a reload too.
type hosts struct {
	jobs       *jobmapper.Mapper
	jobsOf     config.HPC
	jobMetrics *jobmapper.Metrics

	containers       *runtimemapper.Mapper
	containersOf     config.Containers
	containerMetrics *runtimemapper.Metrics
}

// backend returns the source that the configuration names, and the attributors of its entities.
func (s *sources) backend(ctx context.Context, cfg *config.Config, plan *gpu.Plan) (Backend, error) {
	backend, err := s.source(ctx, cfg, plan)
	if err != nil {
		return Backend{}, err
	}
	if cfg.Kubernetes.Enabled { // the kubelet is queried, also for a simulated node
		pods, err := s.kubernetes.attributor(ctx, cfg)
		if err != nil {
			return Backend{}, err
		}
		backend.Attributors = []collector.Attributor{pods}
		backend.PodOf = s.kubernetes.podOf(backend.PodOf)
	}
	if cfg.HPC.Dir != "" {
		backend.Attributors = append(backend.Attributors, s.ofJobs(cfg.HPC))
	}
	if cfg.Containers.Enabled && !cfg.Kubernetes.Enabled {
		containers, err := s.ofContainers(cfg.Containers)
		if err != nil {
			return Backend{}, err
		}
		backend.Attributors = append(backend.Attributors, containers)
	}
	return backend, nil
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

// kubernetes makes the attributor "kubernetes": one per process, since the settings that it is made
// of cannot change while the process runs.
type kubernetes struct {
	registry prometheus.Registerer
	log      *slog.Logger
	mapper   *podmapper.Mapper
	revision func() uint64           // of what is watched; nil where nothing is
	uidOf    func(uid string) string // by the API server, of the pod that the node knows by uid; nil without one
	watches  *apiWatches
}

// apiWatches returns the one place that reports how the API server answers.
func (k *kubernetes) apiWatches() *apiWatches {
	if k.watches == nil {
		k.watches = newAPIWatches(k.registry, k.log)
	}
	return k.watches
}

// attributor returns it. What it watches ends with the ctx of the first call.
func (k *kubernetes) attributor(ctx context.Context, cfg *config.Config) (*podmapper.Mapper, error) {
	if k.mapper != nil {
		k.mapper.Every(cfg.Collection.Interval)
		return k.mapper, nil
	}
	set := cfg.Kubernetes
	opt := podmapper.Options{Socket: set.Socket, Resources: set.ResourceNames, PodUID: set.PodUID, PodLabels: set.PodLabels,
		LogFolder: set.PodLogs}
	for _, text := range set.PodLabelAllowed {
		expression, err := regexp.Compile(text)
		if err != nil {
			return nil, fmt.Errorf("--kubernetes-pod-label-allowlist-regex: %w", err)
		}
		opt.LabelsAllowed = append(opt.LabelsAllowed, expression)
	}
	if set.PodLabels || set.PodUID || set.DRA {
		k.addAPI(ctx, cfg, &opt)
	}
	k.revision = opt.Revision
	opt.Metrics = podmapper.NewMetrics(k.registry)
	k.mapper = podmapper.New(opt)
	k.mapper.Every(cfg.Collection.Interval)
	context.AfterFunc(ctx, k.mapper.Close)
	return k.mapper, nil
}

// errNoNodeName says that the API server cannot be queried for this node's pods alone. Those of a
// whole cluster are nothing that an agent on each node reads.
var errNoNodeName = errors.New("NODE_NAME is not set, so that pods go without labels and UIDs and claims without devices (in a manifest, fieldRef spec.nodeName)")

// podOf returns podOf with the UIDs of static pods as the API server has them.
func (k *kubernetes) podOf(podOf accounting.PodOf) accounting.PodOf {
	if k.uidOf == nil || podOf == nil {
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

// addAPI gives the mapper what the API server knows. Without one, or without the node's name, the
// mapper goes without: a cluster's API is no reason to have no metrics of GPUs.
func (k *kubernetes) addAPI(ctx context.Context, cfg *config.Config, opt *podmapper.Options) {
	watches := k.apiWatches()
	client, err := kube.New(kube.Options{Kubeconfig: filepath.SplitList(cfg.Kubernetes.Kubeconfig), Report: watches.report})
	none := func(string, string, string) (podmapper.ClaimDevice, bool) { return podmapper.ClaimDevice{}, false }
	if cfg.Kubernetes.DRA {
		opt.Device = none // claims are counted as unmatched
	}
	if cfg.Labels.NodeName == "" {
		err = errNoNodeName
	}
	if err != nil {
		for _, resource := range watchedResources(cfg.Kubernetes) {
			watches.report(resource, err)
		}
		return
	}
	sharing := client.Sharing(ctx, cfg.Labels.NodeName)
	opt.Replicated = func() gpu.Sharing {
		if sharing.MPS() {
			return gpu.SharingMPS
		}
		return gpu.SharingTimeSlicing
	}
	var revisions []func() uint64
	if cfg.Kubernetes.PodLabels || cfg.Kubernetes.PodUID {
		pods := client.Pods(ctx, cfg.Labels.NodeName)
		revisions = append(revisions, pods.Revision)
		opt.Ready = append(opt.Ready, pods.Listed())
		k.uidOf = pods.UIDOf
		opt.Stale = pods.Stale
		opt.Pod = func(namespace, name string) (podmapper.PodInfo, bool) {
			pod, ok := pods.Get(namespace, name)
			return podmapper.PodInfo{
				UID: pod.UID, Hash: pod.Hash, Labels: pod.Labels, Finished: pod.Finished, Created: pod.Created,
				Containers: pod.Containers, Allocated: pod.Allocated,
			}, ok
		}
	}
	if cfg.Kubernetes.DRA {
		slices := client.Slices(ctx, cfg.Labels.NodeName)
		revisions = append(revisions, slices.Revision)
		opt.Ready = append(opt.Ready, slices.Listed())
		claims := client.Claims(ctx)
		revisions = append(revisions, claims.Revision)
		opt.Admin = claims.Admin
		opt.Device = func(driver, pool, name string) (podmapper.ClaimDevice, bool) {
			d, ok := slices.Get(driver, pool, name)
			return podmapper.ClaimDevice{UUID: d.UUID, MIG: d.Type == "mig", Profile: d.Profile}, ok
		}
	}
	// Each only grows, and so does the sum.
	opt.Revision = func() uint64 {
		var sum uint64
		for _, r := range revisions {
			sum += r()
		}
		return sum
	}
}

// watchedResources are the resources of the API that a setting needs.
func watchedResources(cfg config.Kubernetes) []string {
	var resources []string
	if cfg.PodLabels || cfg.PodUID {
		resources = append(resources, "pods")
	}
	if cfg.DRA {
		resources = append(resources, "resourceslices")
	}
	return resources
}

// apiWatches reports how the requests of what is watched go: as a series, and in the log when it
// changes.
type apiWatches struct {
	log   *slog.Logger
	gauge *prometheus.GaugeVec

	mu   sync.Mutex
	last map[string]string
}

func newAPIWatches(reg prometheus.Registerer, log *slog.Logger) *apiWatches {
	w := &apiWatches{log: log, last: map[string]string{}, gauge: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "dcgm_exporter_kubernetes_api_success",
		Help: "Whether the API server answered the latest request for what is watched.",
	}, []string{"resource"})}
	reg.MustRegister(w.gauge)
	return w
}

func (w *apiWatches) report(resource string, err error) {
	if resource == "nodes" || resource == "resourceclaims" { // a finer word for sharing; it need not be granted
		w.log.Debug("The way of sharing was requested", "resource", resource, "error", err)
		return
	}
	w.note(resource, err)
}

// note reports an answer that a setting depends on.
func (w *apiWatches) note(resource string, err error) {
	text, value := "", 1.0
	if err != nil {
		text, value = err.Error(), 0
	}
	w.gauge.WithLabelValues(resource).Set(value)
	w.mu.Lock()
	defer w.mu.Unlock()
	before, known := w.last[resource]
	w.last[resource] = text
	switch {
	case err != nil && text != before:
		w.log.Warn("The Kubernetes API does not answer as needed", "resource", resource, "error", err)
	case err == nil && known && before != "":
		w.log.Info("The Kubernetes API answers again", "resource", resource)
	}
}

// settled is how long Pods waits for what the API server knows.
const settled = 5 * time.Second

// Pods makes the mapper that Run would use with --kubernetes, and gives what it watches a moment to
// come in.
func Pods(ctx context.Context, cfg *config.Config) (*podmapper.Mapper, error) {
	k := kubernetes{registry: prometheus.NewRegistry(), log: slog.New(slog.DiscardHandler)}
	mapper, err := k.attributor(ctx, cfg)
	if err != nil || k.revision == nil {
		return mapper, err
	}
	ctx, cancel := context.WithTimeout(ctx, settled)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for k.revision() == 0 {
		select {
		case <-ctx.Done():
			return mapper, nil // without them
		case <-tick.C:
		}
	}
	return mapper, nil
}

// Unmatched returns the devices that the kubelet lists for containers and that match no entity of t.
func Unmatched(ctx context.Context, cfg *config.Config, t *gpu.Topology) ([]podmapper.Unmatched, error) {
	mapper, err := Pods(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer mapper.Close()
	return mapper.Unmatched(ctx, t)
}
