package kube

import (
	"context"
	"maps"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// A Pod is what is kept of a pod. It is not to be changed.
type Pod struct {
	UID      string
	Labels   map[string]string
	Finished bool // status.phase is Succeeded or Failed
	Created  time.Time
	// Hash is the UID that the kubelet knows a static pod by, and that control groups have: the hash
	// of its manifest. "" for a pod that came from the API.
	Hash string
	// Allocated is what HAMi's scheduler says of the devices of the containers, whose names are then
	// Containers; "" for a pod that it did not schedule.
	Allocated  string
	Containers []string
}

// configHash is the annotation of the Hash (k8s.io/kubernetes, pkg/kubelet/types,
// ConfigHashAnnotationKey).
const configHash = "kubernetes.io/config.hash"

// hamiAllocated is the annotation of Allocated (Project-HAMi/HAMi, pkg/device/nvidia).
const hamiAllocated = "hami.io/vgpu-devices-allocated"

// maxStatic bounds the static pods that are remembered.
const maxStatic = 256

// Pods are the pods of one node.
type Pods struct {
	collection[Pod]
	// static has the UIDs of static pods by Hash, also of deleted ones: a driver reports what their
	// processes did since its last read.
	static map[string]string
}

// Pods watches the pods of a node until ctx is done. It needs list and watch on pods in the whole
// cluster: the API has no narrower scope for a node's.
func (c *Client) Pods(ctx context.Context, node string) *Pods {
	p := &Pods{static: map[string]string{}, collection: collection[Pod]{
		client:   c,
		resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"},
		selector: fields.OneTermEqualSelector("spec.nodeName", node).String(),
		listed:   make(chan struct{}),
	}}
	p.convert = p.podOf
	go p.run(ctx)
	return p
}

// Listed returns a channel that is closed once the API server has listed the pods.
func (p *Pods) Listed() <-chan struct{} { return p.listed }

// Get returns what is known of a pod.
func (p *Pods) Get(namespace, name string) (Pod, bool) {
	return p.get(types.NamespacedName{Namespace: namespace, Name: name})
}

// UIDOf returns the UID by which the API server knows the pod that the node knows by uid: another
// one for a static pod alone.
func (p *Pods) UIDOf(uid string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known, ok := p.static[uid]; ok {
		return known
	}
	return uid
}

func (p *Pods) podOf(u *unstructured.Unstructured) Pod {
	pod := podOf(u)
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

func podOf(u *unstructured.Unstructured) Pod {
	phase, _, _ := unstructured.NestedString(u.Object, "status", "phase") // "" where the server reports none
	p := Pod{
		UID:      string(u.GetUID()),
		Labels:   cloned(u.GetLabels()),
		Finished: phase == "Succeeded" || phase == "Failed",
		Created:  u.GetCreationTimestamp().Time,
		Hash:     strings.Clone(u.GetAnnotations()[configHash]),
	}
	if p.Allocated = strings.Clone(u.GetAnnotations()[hamiAllocated]); p.Allocated != "" {
		p.Containers = containersOf(u)
	}
	return p
}

// containersOf returns the names of a pod's containers.
func containersOf(u *unstructured.Unstructured) []string {
	containers, _, _ := unstructured.NestedSlice(u.Object, "spec", "containers") // every pod has them
	var names []string
	for _, each := range containers {
		if c, ok := each.(map[string]any); ok {
			name, _, _ := unstructured.NestedString(c, "name")
			names = append(names, strings.Clone(name))
		}
	}
	return names
}

// cloned copies the strings, so that the object that they came in can go.
func cloned(labels map[string]string) map[string]string {
	out := make(map[string]string, len(labels))
	for k, v := range maps.All(labels) {
		out[strings.Clone(k)] = strings.Clone(v)
	}
	return out
}
