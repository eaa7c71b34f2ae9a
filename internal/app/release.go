package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/kube"
)

// acquireLimit is how long a signal that acquires the driver waits to log how that went; the
// attempts go on either way.
const acquireLimit = 10 * time.Second

// A releaser releases the driver and acquires it again: the POST routes, the signals and the
// operator's label all come through here.
type releaser struct {
	loop      *collector.Loop
	log       *slog.Logger
	timeout   time.Duration // of a release that names none
	requested atomic.Bool   // a release was, once
}

// release releases the driver for timeout, or for as long as configured if that is 0.
func (r *releaser) release(ctx context.Context, timeout time.Duration) error {
	r.requested.Store(true)
	if timeout == 0 {
		timeout = r.timeout
	}
	return r.loop.Release(ctx, timeout)
}

// serve executes the signals until ctx is done.
func (r *releaser) serve(ctx context.Context, release, acquire <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-release:
			if err := r.release(ctx, 0); err != nil {
				r.log.Error("The driver is not released as it should be", "why", "SIGUSR1", "error", err)
			}
		case <-acquire:
			r.acquire(ctx, "SIGUSR2")
		}
	}
}

func (r *releaser) acquire(ctx context.Context, why string) {
	ctx, cancel := context.WithTimeout(ctx, acquireLimit)
	defer cancel()
	if err := r.loop.Acquire(ctx); err != nil {
		r.log.Warn("The driver is not acquired yet; the attempts go on", "why", why, "error", err)
	}
}

// deployLabel is the label by which NVIDIA's GPU Operator says whether an exporter belongs on a
// node. Its MIG manager and its driver manager pause it there while they need the driver for
// themselves.
const deployLabel = "nvidia.com/gpu.deploy.dcgm-exporter"

// isPaused reports whether a value of the label is a pause. The driver manager appends its own to a value that
// is not true: paused-for-mig-change_paused-for-driver-upgrade.
func isPaused(value string) bool {
	for word := range strings.SplitSeq(value, "_") {
		if word == "paused-for-mig-change" || word == "paused-for-driver-upgrade" {
			return true
		}
	}
	return false
}

// labelPatience is how long a start waits for the label of the node: a driver that is about to be
// replaced is not to be opened even for a moment. Without an answer of the API server it is opened
// all the same.
const labelPatience = 5 * time.Second

// A pause releases the driver for as long as the label of the node says so.
type pause struct {
	client *kube.Client
	node   string
}

// newPause returns nil where the configuration has none, or there is no cluster to read: that is no
// reason to have no metrics of GPUs.
func newPause(cfg *config.Config, log *slog.Logger, watches func() *apiWatches) (*pause, error) {
	if !cfg.Kubernetes.ReleaseOnPause {
		return nil, nil
	}
	if cfg.Labels.NodeName == "" {
		watches().note("nodes", errors.New("NODE_NAME is not set, so that the driver is not released when the operator pauses the exporter (in a manifest, fieldRef spec.nodeName)"))
		return nil, nil
	}
	client, err := kube.New(kube.Options{Kubeconfig: filepath.SplitList(cfg.Kubernetes.Kubeconfig), Report: watches().note})
	if errors.Is(err, kube.ErrNoCluster) {
		log.Warn("The driver is not released when the operator pauses the exporter", "error", err)
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("--kubernetes-release-on-pause: %w", err)
	}
	return &pause{client: client, node: cfg.Labels.NodeName}, nil
}

// patience is how long nothing is opened at the start, 0 without a pause.
func (p *pause) patience() time.Duration {
	if p == nil {
		return 0
	}
	return labelPatience
}

// run follows the label until ctx is done; there is nothing to follow without a pause. A release
// that the driver does not grant at once stays requested, so that none is requested twice. The
// first answer ends the wait of the start, unless a release was requested meanwhile.
func (p *pause) run(ctx context.Context, releases *releaser) {
	if p == nil {
		return
	}
	waiting, cancel := context.WithTimeout(ctx, labelPatience)
	defer cancel()
	paused, known := false, false
	releases.log.Info("Waiting for the label of the node before the driver is opened", "label", deployLabel, "at_most", labelPatience)
	p.client.FollowLabel(ctx, p.node, deployLabel, func(value string) {
		first := !known
		known = true
		switch {
		case first && !isPaused(value) && waiting.Err() == nil && !releases.requested.Load():
			releases.acquire(ctx, "start")
		case isPaused(value) == paused:
		case paused:
			paused = false
			releases.acquire(ctx, deployLabel+"="+value)
		default:
			paused = true
			if err := releases.loop.Release(ctx, 0); err != nil {
				releases.log.Error("The driver is not released as it should be", "why", deployLabel+"="+value, "error", err)
			}
		}
	})
}
