package kube

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// sharingEvery is how often a node's labels are read.
const sharingEvery = 10 * time.Minute

// Sharing says how the device plugin shares the GPUs of a node.
type Sharing struct{ mps atomic.Bool }

// MPS reports whether replicas of a device run under the MPS daemon, according to the node labels of GPU feature
// discovery and GKE. It is false until the labels are known.
func (s *Sharing) MPS() bool { return s.mps.Load() }

// Sharing reads a node's labels from time to time until ctx is done. It needs the permission get on that node.
func (c *Client) Sharing(ctx context.Context, node string) *Sharing {
	s := &Sharing{}
	go every(ctx, sharingEvery, func() {
		object, err := c.get(ctx, schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, "", node)
		if ctx.Err() != nil {
			return
		}
		c.report("nodes", err)
		if err == nil {
			labels := object.GetLabels()
			s.mps.Store(labels["nvidia.com/gpu.sharing-strategy"] == "mps" ||
				labels["cloud.google.com/gke-gpu-sharing-strategy"] == "mps")
		}
	})
	return s
}
