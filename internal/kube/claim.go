package kube

import (
	"context"
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// maxClaims bounds the claims that are remembered: beyond it all are read again.
	maxClaims = 1024
	// retry is how soon a claim without an allocation is read again; reread how soon one with it: its
	// allocation does not change, but a claim can be deleted and made again under its name.
	retry  = time.Minute
	reread = time.Hour
)

// Claims are the ResourceClaims that were requested. What is not known is read behind the question.
type Claims struct {
	client *Client
	wake   chan struct{}

	mu       sync.Mutex
	known    map[types.NamespacedName]claim
	revision uint64
	resource schema.GroupVersionResource // zero until the API's version is known
}

// A claim is what is kept of one.
type claim struct {
	admin map[deviceKey]bool // its devices, and whether it holds them with admin access; nil where not allocated
	read  time.Time          // zero before the first answer
}

// Claims reads claims until ctx is done. It needs get on resourceclaims.resource.k8s.io in the
// whole cluster.
func (c *Client) Claims(ctx context.Context) *Claims {
	s := &Claims{client: c, wake: make(chan struct{}, 1), known: map[types.NamespacedName]claim{}}
	go s.run(ctx)
	return s
}

// Admin reports whether a claim holds a device with admin access, as monitors do: beside the pod
// that the device is allocated to (KEP-5018). It is false while nothing is known. It never waits.
func (s *Claims) Admin(namespace, name, driver, pool, device string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, of := types.NamespacedName{Namespace: namespace, Name: name}, deviceKey{driver, pool, device}
	c, known := s.known[key]
	admin, allocated := c.admin[of]
	// A claim that does not have the device may be another one of the name by now.
	again := c.admin != nil && !allocated && time.Since(c.read) >= retry
	if known && !again {
		return admin
	}
	if !known && len(s.known) >= maxClaims {
		clear(s.known)
	}
	s.known[key] = claim{admin: c.admin} // due
	select {
	case s.wake <- struct{}{}:
	default: // it is about to look
	}
	return admin
}

// Revision changes whenever an answer of Admin may.
func (s *Claims) Revision() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision
}

func (s *Claims) run(ctx context.Context) {
	tick := time.NewTicker(retry)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-tick.C:
		}
		for _, key := range s.due(time.Now()) {
			if !s.read(ctx, key) {
				break // the next tick tries again
			}
		}
	}
}

// due returns the claims to read.
func (s *Claims) due(now time.Time) []types.NamespacedName {
	s.mu.Lock()
	defer s.mu.Unlock()
	var keys []types.NamespacedName
	for key, c := range s.known {
		age := now.Sub(c.read)
		if age >= reread || c.admin == nil && age >= retry {
			keys = append(keys, key)
		}
	}
	return keys
}

// read reads one claim, and reports whether the API server answered.
func (s *Claims) read(ctx context.Context, key types.NamespacedName) bool {
	resource, err := s.version(ctx)
	var object *unstructured.Unstructured
	if err == nil {
		object, err = s.client.get(ctx, resource, key.Namespace, key.Name)
	}
	gone := apierrors.IsNotFound(err)
	if gone {
		err = nil
	}
	if ctx.Err() != nil {
		return false
	}
	s.client.report("resourceclaims", err)
	if err != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	next := claim{read: time.Now()}
	if !gone {
		next.admin = adminOf(object)
	}
	if !maps.Equal(s.known[key].admin, next.admin) {
		s.revision++
	}
	s.known[key] = next
	return true
}

// version returns the resource in the newest version that both sides know.
func (s *Claims) version(ctx context.Context) (schema.GroupVersionResource, error) {
	if s.resource.Version == "" {
		version, err := s.client.sliceVersion(ctx)
		if err != nil {
			return schema.GroupVersionResource{}, err
		}
		s.resource = schema.GroupVersionResource{Group: sliceGroup, Version: version, Resource: "resourceclaims"}
	}
	return s.resource, nil
}

// adminOf returns the devices that the status of a claim allocates, and whether with admin access:
// status.allocation.devices.results (resource.k8s.io/v1, DeviceRequestAllocationResult). It is nil
// where nothing is allocated.
func adminOf(u *unstructured.Unstructured) map[deviceKey]bool {
	results, _, _ := unstructured.NestedSlice(u.Object, "status", "allocation", "devices", "results")
	var admin map[deviceKey]bool
	for _, each := range results {
		result, ok := each.(map[string]any)
		if !ok {
			continue
		}
		if admin == nil {
			admin = map[deviceKey]bool{}
		}
		text := func(field string) string { s, _, _ := unstructured.NestedString(result, field); return s }
		key := deviceKey{text("driver"), text("pool"), text("device")}
		is, _, _ := unstructured.NestedBool(result, "adminAccess")
		admin[key] = admin[key] || is
	}
	return admin
}
