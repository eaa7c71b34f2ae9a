package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

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

// labelPatience is how long a start waits for the label of the node: a driver
// that is about to be replaced is not to be opened even for a moment. Without an
// answer of the API server it is opened all the same.
const labelPatience = 5 * time.Second

// A pause lets go of the driver for as long as the label of the node says so.
type pause struct {
	hold   *holder // set before run
	client *kube.Client
	node   string
}

// newPause returns nil where the configuration asks for none, or there is no
// cluster to ask: that is no reason to have no metrics of GPUs.
func newPause(cfg *config.Config, log *slog.Logger, watches func() *apiWatches) (*pause, error) {
	if !cfg.Kubernetes.ReleaseOnPause {
		return nil, nil
	}
	if cfg.Labels.NodeName == "" {
		watches().tell("nodes", errors.New("NODE_NAME is not set, so that the driver is not released when the operator pauses the exporter (in a manifest, fieldRef spec.nodeName)"))
		return nil, nil
	}
	client, err := kube.New(kube.Options{Kubeconfig: filepath.SplitList(cfg.Kubernetes.Kubeconfig), Report: watches().tell})
	if errors.Is(err, kube.ErrNoCluster) {
		log.Warn("The driver is not released when the operator pauses the exporter", "error", err)
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("--kubernetes-release-on-pause: %w", err)
	}
	return &pause{client: client, node: cfg.Labels.NodeName}, nil
}

// patience is how long nothing is opened at the start, 0 where nobody pauses.
func (p *pause) patience() time.Duration {
	if p == nil {
		return 0
	}
	return labelPatience
}

// run follows the label until ctx is done. A release that the driver does not
// grant at once stays asked for, so nothing is asked twice. The first answer
// ends the wait of the start, unless somebody asked for a release meanwhile.
func (p *pause) run(ctx context.Context) {
	waiting, cancel := context.WithTimeout(ctx, labelPatience)
	defer cancel()
	paused, known := false, false
	p.hold.log.Info("Waiting for the label of the node before the driver is opened", "label", deployLabel, "at_most", labelPatience)
	p.client.FollowLabel(ctx, p.node, deployLabel, func(value string) {
		first := !known
		known = true
		switch {
		case first && !isPaused(value) && waiting.Err() == nil && !p.hold.asked.Load():
			p.hold.acquire(ctx, "start")
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
