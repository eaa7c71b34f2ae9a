package app

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/kube"
)

// deployLabel is the label by which NVIDIA's GPU Operator says whether an
// exporter belongs on a node. Its MIG manager and its driver manager pause it
// there while they need the driver for themselves.
const deployLabel = "nvidia.com/gpu.deploy.dcgm-exporter"

func isPaused(value string) bool {
	return value == "paused-for-mig-change" || value == "paused-for-driver-upgrade"
}

// A pause lets go of the driver for as long as the label of the node says so.
type pause struct {
	hold   *holder
	client *kube.Client
	node   string
}

// newPause returns nil where the configuration asks for none, or there is no
// cluster to ask: that is no reason to have no metrics of GPUs.
func newPause(cfg *config.Config, hold *holder, watches func() *apiWatches) (*pause, error) {
	if !cfg.Kubernetes.ReleaseOnPause {
		return nil, nil
	}
	if cfg.Labels.NodeName == "" {
		return nil, errors.New("NODE_NAME is not set: --kubernetes-release-on-pause needs the node's name (in a manifest, fieldRef spec.nodeName)")
	}
	client, err := kube.New(kube.Options{Kubeconfig: filepath.SplitList(cfg.Kubernetes.Kubeconfig), Report: watches().tell})
	if errors.Is(err, kube.ErrNoCluster) {
		hold.log.Warn("The driver is not released when the operator pauses the exporter", "error", err)
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("--kubernetes-release-on-pause: %w", err)
	}
	return &pause{hold: hold, client: client, node: cfg.Labels.NodeName}, nil
}

// run follows the label until ctx is done. A release that the driver does not
// grant at once stays asked for, so nothing is asked twice.
func (p *pause) run(ctx context.Context) {
	paused := false
	p.client.FollowLabel(ctx, p.node, deployLabel, func(value string) {
		switch {
		case isPaused(value) == paused:
		case paused:
			paused = false
			p.hold.acquire(ctx, deployLabel+"="+value)
		default:
			paused = true
			if err := p.hold.loop.Release(ctx, 0); err != nil {
				p.hold.log.Error("The driver is not released as it should be", "why", deployLabel+"="+value, "error", err)
			}
		}
	})
}
