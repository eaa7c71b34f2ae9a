package app

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/node"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/kube"
	"github.com/gpu-telemetry/dcgm-exporter/internal/operatorstate"
)

// An operator is what the gpu_operator_* series are made of; nil where they are off.
type operator struct {
	state *operatorstate.State
	whole bool // every GPU and GPU instance of the node is exported
}

// newOperator returns nil where the configuration has none. Without a cluster or the node's name
// the validator's files remain.
func newOperator(cfg *config.Config, registry prometheus.Registerer, log *slog.Logger, watches func() *apiWatches) *operator {
	set := cfg.Kubernetes
	if !set.OperatorMetrics || !cfg.Web.ExporterMetrics {
		return nil
	}
	opt := operatorstate.Options{Validations: os.DirFS(set.Validations), Registerer: registry, Log: log}
	client, err := kube.New(kube.Options{Kubeconfig: filepath.SplitList(set.Kubeconfig)})
	if err == nil && cfg.Labels.NodeName == "" {
		err = errors.New("NODE_NAME is not set, so that the node's resources and MIG state are not known (in a manifest, fieldRef spec.nodeName)")
	}
	// Not "nodes", which --kubernetes-release-on-pause lists and watches: other rights are needed
	// here.
	const resource = "node"
	if err != nil {
		watches().note(resource, err)
	} else {
		opt.Node = func(ctx context.Context) (node.Node, error) {
			n, err := client.Node(ctx, cfg.Labels.NodeName)
			if ctx.Err() == nil {
				watches().note(resource, err)
			}
			return node.Node{Name: cfg.Labels.NodeName, Labels: n.Labels, Capacity: n.Capacity, Allocatable: n.Allocatable}, err
		}
	}
	sel := cfg.Devices.GPUs
	whole := sel.Flex || sel.Major && len(sel.MajorIDs) == 0 && sel.Minor && len(sel.MinorIDs) == 0
	if !whole {
		log.Warn("gpu_operator_resource_expected is not served: the GPUs of the node are known only where all are exported", "devices", sel.String(), "expected", "f or g+i")
	}
	return &operator{state: operatorstate.New(opt), whole: whole}
}

// took hands on which GPUs a cycle saw.
func (o *operator) took(s *gpu.Snapshot) {
	if o != nil && o.whole {
		o.state.Hardware(s.Topology, s.ValidFor)
	}
}

func (o *operator) run(ctx context.Context) {
	if o != nil {
		o.state.Run(ctx)
	}
}
