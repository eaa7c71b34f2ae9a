package kube

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/gpu-telemetry/dcgm-exporter/internal/podmapper"
)

// collection keeps parts of a node's objects of one resource. Reads never wait.
type collection[T any] struct {
	client   *Client
	resource schema.GroupVersionResource // in the version of the latest list
	versions []string                    // newest first; the newest that the API server supports is used
	node     string
	convert  func(*unstructured.Unstructured) T
	listed   chan struct{} // closed after the first list

	mu          sync.Mutex
	items       map[types.NamespacedName]T
	revision    uint64
	lastContact time.Time // when the API server last answered
	isSilent    bool      // the latest request failed or got no answer
}

// run keeps the collection up to date until ctx is done.
func (c *collection[T]) run(ctx context.Context) {
	// The client's own log would repeat the reported errors.
	silent := logr.Discard()
	options := cache.ReflectorOptions{Logger: &silent, Name: c.resource.Resource, Backoff: c.client.backoff()}
	lists := listThenWatch{&cache.ListWatch{ListWithContextFunc: c.list, WatchFuncWithContext: c.watch}}
	reflector := cache.NewReflectorWithOptions(lists, &unstructured.Unstructured{}, c, options)
	reflector.RunWithContext(klog.NewContext(ctx, silent))
}

// listThenWatch makes the reflector list and then watch, because these have distinct permissions and errors. A node has
// few objects.
type listThenWatch struct{ *cache.ListWatch }

func (listThenWatch) IsWatchListSemanticsUnSupported() bool { return true }

// Listed returns a channel that is closed once the API server has listed the objects.
func (c *collection[T]) Listed() <-chan struct{} { return c.listed }

// Stale returns when the API server last answered if it has stopped answering, and the zero time otherwise. A hanging
// connection is noticed when client-go closes it.
func (c *collection[T]) Stale() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isSilent {
		return c.lastContact
	}
	return time.Time{}
}

// Revision changes whenever the content changes.
func (c *collection[T]) Revision() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.revision
}

// answered records a request's outcome.
func (c *collection[T]) answered(verb string, err error) {
	c.mu.Lock()
	if c.isSilent = err != nil; err == nil {
		c.lastContact = time.Now()
	}
	c.mu.Unlock()
	if err != nil || verb == "list" {
		c.client.report(c.resource.Resource, explain(err, verb, c.resource, ""))
	}
}

func (c *collection[T]) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	options.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", c.node).String()
	var list *unstructured.UnstructuredList
	var err error
	for _, c.resource.Version = range c.versions {
		if list, err = c.client.dynamic.Resource(c.resource).List(ctx, options); !apierrors.IsNotFound(err) {
			break
		}
	}
	if err == nil {
		// Another server may be at this address.
		expected := strings.TrimSuffix(c.resource.Resource, "s") + "List"
		if kind := list.GetKind(); kind != "List" && !strings.EqualFold(kind, expected) {
			err = fmt.Errorf("listing %s returned the unexpected kind %q", c.resource.Resource, kind)
		}
	}
	if apierrors.IsNotFound(err) {
		err = fmt.Errorf("the API server serves %s in none of the versions %v; DRA needs Kubernetes 1.32 or later: %w",
			c.resource.GroupResource(), c.versions, err)
	}
	c.answered("list", err)
	if err != nil {
		return nil, err
	}
	return list, nil
}

func (c *collection[T]) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	options.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", c.node).String()
	w, err := c.client.dynamic.Resource(c.resource).Watch(ctx, options)
	c.answered("watch", err)
	return w, err
}

// These methods implement cache.ReflectorStore. The reflector checks the types of objects.

func (c *collection[T]) Add(obj any) error { return c.Update(obj) }

func (c *collection[T]) Update(obj any) error {
	u := obj.(*unstructured.Unstructured)
	item, key := c.convert(u), keyOf(u)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastContact = time.Now()
	// Ignore changes of parts that are not kept.
	if before, ok := c.items[key]; !ok || !reflect.DeepEqual(before, item) {
		c.items[key] = item
		c.revision++
	}
	return nil
}

func (c *collection[T]) Delete(obj any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.items, keyOf(obj.(*unstructured.Unstructured)))
	c.lastContact = time.Now()
	c.revision++
	return nil
}

func (c *collection[T]) Replace(all []any, _ string) error {
	items := make(map[types.NamespacedName]T, len(all))
	for _, obj := range all {
		u := obj.(*unstructured.Unstructured)
		items[keyOf(u)] = c.convert(u)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.revision == 0 {
		close(c.listed)
	}
	c.items, c.lastContact = items, time.Now()
	c.revision++
	return nil
}

func (c *collection[T]) Resync() error { return nil }

func keyOf(u *unstructured.Unstructured) types.NamespacedName {
	return types.NamespacedName{Namespace: u.GetNamespace(), Name: u.GetName()}
}

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

// UIDOf returns the API server's UID of the pod whose UID on the node is uid. They differ only for static pods.
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
