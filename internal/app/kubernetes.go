package app

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/gpu-telemetry/dcgm-exporter/internal/accounting"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/kube"
	"github.com/gpu-telemetry/dcgm-exporter/internal/podmapper"
)

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
