package kube

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// A collection is what is kept of the objects of one resource that a field selector chooses. Reads
// never wait.
type collection[T any] struct {
	client   *Client
	resource schema.GroupVersionResource
	selector string
	convert  func(*unstructured.Unstructured) T
	listed   chan struct{} // if not nil, closed after the first list

	mu       sync.Mutex
	items    map[types.NamespacedName]T
	revision uint64
	heard    time.Time // of the API server, the latest time
	silent   bool      // its latest answer was an error, or none came
}

// run keeps the collection up to date until ctx is done.
func (c *collection[T]) run(ctx context.Context) {
	// The client's own log would repeat what report gets.
	silent := logr.Discard()
	options := cache.ReflectorOptions{
		Logger: &silent, Name: c.resource.Resource,
		Backoff: &wait.Backoff{Duration: time.Second, Cap: 30 * time.Second, Steps: 6, Factor: 2, Jitter: 1},
	}
	cache.NewReflectorWithOptions(c, &unstructured.Unstructured{}, c, options).RunWithContext(klog.NewContext(ctx, silent))
}

// get returns what is kept of one object.
func (c *collection[T]) get(key types.NamespacedName) (T, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	item, ok := c.items[key]
	return item, ok
}

// all returns what is kept of every object, in no order.
func (c *collection[T]) all() []T {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.items))
}

// Stale reports whether the API server does not answer, and since when nothing was heard of it. A
// connection that hangs shows after a while, when client-go closes it.
func (c *collection[T]) Stale() (since time.Time, stale bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.heard, c.silent
}

// hear notes an answer, or that there was none.
func (c *collection[T]) hear(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.silent = err != nil; err == nil {
		c.heard = time.Now()
	}
}

// Revision changes whenever the content does.
func (c *collection[T]) Revision() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.revision
}

// The collection is the reflector's cache.ListerWatcherWithContext …

func (c *collection[T]) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	options.FieldSelector = c.selector
	list, err := c.client.dynamic.Resource(c.resource).List(ctx, options)
	if err == nil {
		err = checkKind(list.GetKind(), c.resource.Resource)
	}
	c.hear(err)
	if err != nil {
		c.client.report(c.resource.Resource, explain(err, "list", c.resource, "", ""))
		return nil, err
	}
	c.client.report(c.resource.Resource, nil)
	return list, nil
}

// checkKind returns an error for a list of another resource than the one that was requested: what is
// behind the address is no API server then, or a broken one.
func checkKind(kind, resource string) error {
	if kind == "List" || strings.EqualFold(kind, strings.TrimSuffix(resource, "s")+"List") {
		return nil
	}
	return fmt.Errorf("the answer to a list of %s is a %q", resource, kind)
}

func (c *collection[T]) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	options.FieldSelector = c.selector
	w, err := c.client.dynamic.Resource(c.resource).Watch(ctx, options)
	c.hear(err)
	if err != nil {
		c.client.report(c.resource.Resource, explain(err, "watch", c.resource, "", ""))
	}
	return w, err
}

func (c *collection[T]) List(options metav1.ListOptions) (runtime.Object, error) {
	return c.ListWithContext(context.Background(), options)
}

func (c *collection[T]) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return c.WatchWithContext(context.Background(), options)
}

// IsWatchListSemanticsUnSupported keeps the reflector at a list and a watch behind it, whose
// permissions and failures are distinct. A node's pods are few.
func (c *collection[T]) IsWatchListSemanticsUnSupported() bool { return true }

// … and its cache.ReflectorStore.

func (c *collection[T]) Add(obj any) error { return c.Update(obj) }

func (c *collection[T]) Update(obj any) error {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		item := c.convert(u)
		c.change(func() bool {
			before, known := c.items[keyOf(u)]
			c.items[keyOf(u)] = item
			return !known || !reflect.DeepEqual(before, item) // a status can change that nothing here uses
		})
	}
	return nil
}

func (c *collection[T]) Delete(obj any) error {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		c.change(func() bool { delete(c.items, keyOf(u)); return true })
	}
	return nil
}

func (c *collection[T]) Replace(all []any, _ string) error {
	items := make(map[types.NamespacedName]T, len(all))
	for _, obj := range all {
		if u, ok := obj.(*unstructured.Unstructured); ok {
			items[keyOf(u)] = c.convert(u)
		}
	}
	c.change(func() bool {
		c.items = items
		if c.revision == 0 && c.listed != nil {
			close(c.listed)
		}
		return true
	})
	return nil
}

func (c *collection[T]) Resync() error { return nil }

// change makes a change, which reports whether the content differs.
func (c *collection[T]) change(do func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = time.Now()
	if do() {
		c.revision++
	}
}

func keyOf(u *unstructured.Unstructured) types.NamespacedName {
	return types.NamespacedName{Namespace: u.GetNamespace(), Name: u.GetName()}
}
