package kube

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-telemetry/dcgm-exporter/internal/podmapper"
)

// Pod is the part of a pod that the pod mapper reads. It is immutable.
type Pod = podmapper.PodInfo

const (
	// configHash is the annotation of the Hash (k8s.io/kubernetes, pkg/kubelet/types, ConfigHashAnnotationKey).
	configHash = "kubernetes.io/config.hash"
	// hamiAllocated is the annotation of Allocated (Project-HAMi/HAMi, pkg/device/nvidia).
	hamiAllocated = "hami.io/vgpu-devices-allocated"
	// maxStatic is the maximum number of static pods that are remembered.
	maxStatic = 256
)

// Pods holds the pods of one node.
type Pods struct {
	collection[Pod]
	// static maps a static pod's Hash to its UID. Deleted pods are included, because a driver still reports their
	// processes.
	static map[string]string
}

// Pods watches the pods of a node until ctx is done. It needs list and watch on pods in the whole cluster, because the
// API has no narrower scope for a node's pods.
func (c *Client) Pods(ctx context.Context, node string) *Pods {
	p := &Pods{static: map[string]string{}}
	p.collection = collection[Pod]{
		client: c, resource: schema.GroupVersionResource{Resource: "pods"}, versions: []string{"v1"}, node: node,
		convert: p.podOf, listed: make(chan struct{}),
	}
	go p.run(ctx)
	return p
}

// Get returns a pod, if it is known.
func (p *Pods) Get(namespace, name string) (Pod, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pod, ok := p.items[types.NamespacedName{Namespace: namespace, Name: name}]
	return pod, ok
}

// UIDOf returns the API server's UID of the pod that the node knows as uid. They differ only for static pods.
func (p *Pods) UIDOf(uid string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known, ok := p.static[uid]; ok {
		return known
	}
	return uid
}

func (p *Pods) podOf(u *unstructured.Unstructured) Pod {
	phase, _, _ := unstructured.NestedString(u.Object, "status", "phase")
	pod := Pod{
		UID: string(u.GetUID()), Labels: u.GetLabels(), Created: u.GetCreationTimestamp().Time,
		Finished: phase == "Succeeded" || phase == "Failed",
		Hash:     u.GetAnnotations()[configHash], Allocated: u.GetAnnotations()[hamiAllocated],
	}
	if pod.Allocated != "" {
		containers, _, _ := unstructured.NestedSlice(u.Object, "spec", "containers")
		for _, c := range containers {
			name, _, _ := unstructured.NestedString(c.(map[string]any), "name")
			pod.Containers = append(pod.Containers, name)
		}
	}
	if pod.Hash != "" {
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.static) >= maxStatic {
			clear(p.static)
		}
		p.static[pod.Hash] = pod.UID
	}
	return pod
}
