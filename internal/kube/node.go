package kube

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

func nodes() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
}

// sharingEvery is how often a node's labels are looked at.
const sharingEvery = 10 * time.Minute

// Sharing is how the device plugin shares the GPUs of a node.
type Sharing struct{ mps atomic.Bool }

// MPS reports whether replicas of a device run under the MPS daemon, as the labels that GPU feature
// discovery and GKE give to the node say. It is false while nothing is known.
func (s *Sharing) MPS() bool { return s.mps.Load() }

// Sharing looks at a node's labels now and then until ctx is done. It needs get on that node.
func (c *Client) Sharing(ctx context.Context, node string) *Sharing {
	s := &Sharing{}
	go func() {
		for {
			object, err := c.get(ctx, nodes(), "", node)
			if ctx.Err() != nil {
				return
			}
			c.report("nodes", err)
			if err == nil {
				labels := object.GetLabels()
				s.mps.Store(labels["nvidia.com/gpu.sharing-strategy"] == "mps" || labels["cloud.google.com/gke-gpu-sharing-strategy"] == "mps")
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(sharingEvery):
			}
		}
	}()
	return s
}

// FollowLabel calls changed with the value of a label of a node, "" where it has none, once it is
// known and whenever it is another, until ctx is done. What is known stays while the API server
// does not answer. It needs list and watch on nodes.
func (c *Client) FollowLabel(ctx context.Context, node, label string, changed func(value string)) {
	news := make(chan struct{}, 1)
	object := &collection[string]{
		client: c, resource: nodes(),
		selector: fields.OneTermEqualSelector("metadata.name", node).String(),
		convert:  func(u *unstructured.Unstructured) string { return strings.Clone(u.GetLabels()[label]) },
		changed: func() {
			select {
			case news <- struct{}{}:
			default: // some are waiting already
			}
		},
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		object.run(ctx)
	}()
	defer func() { <-done }()
	last, known := "", false
	for {
		select {
		case <-ctx.Done():
			return
		case <-news:
		}
		if value, _ := object.get(types.NamespacedName{Name: node}); !known || value != last {
			last, known = value, true
			changed(value)
		}
	}
}
