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

// The bounds of what is known of claims.
const (
	maxClaims = 1024
	// reread is how long a claim's status is believed: a claim can be deleted and made again under its
	// name.
	reread = time.Minute
	// unrequested is how long a claim that is no more is remembered after the last question for it.
	unrequested = 10 * time.Minute
)

// Claims are the ResourceClaims that were requested. What is not known is read behind the question.
type Claims struct {
	client *Client
	wake   chan struct{}

	mu       sync.Mutex
	known    map[types.NamespacedName]*claim
	revision uint64
	resource schema.GroupVersionResource // zero until the API's version is known
}

// A claim is what is kept of one.
type claim struct {
	admin     map[deviceKey]bool // the devices that it holds with admin access
	read      time.Time          // zero before the first answer
	requested time.Time
	gone      bool
}

// Claims reads claims until ctx is done. It needs get on resourceclaims.resource.k8s.io in the
// whole cluster.
func (c *Client) Claims(ctx context.Context) *Claims {
	s := &Claims{client: c, wake: make(chan struct{}, 1), known: map[types.NamespacedName]*claim{}}
	go s.run(ctx)
	return s
}

// Admin reports whether a claim holds a device with admin access, as monitors do: beside the pod
// that the device is allocated to (KEP-5018). It is false while nothing is known. It never waits.
func (s *Claims) Admin(namespace, name, driver, pool, device string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, now := types.NamespacedName{Namespace: namespace, Name: name}, time.Now()
	c := s.known[key]
	if c == nil {
		if len(s.known) >= maxClaims {
			return false
		}
		c = &claim{}
		s.known[key] = c
		select {
		case s.wake <- struct{}{}:
		default: // it is about to look
		}
	}
	c.requested = now
	return c.admin[deviceKey{driver, pool, device}]
}

// Revision changes whenever an answer of Admin may.
func (s *Claims) Revision() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision
}

func (s *Claims) run(ctx context.Context) {
	tick := time.NewTicker(reread)
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

// due returns the claims to read, and forgets those that are no more.
func (s *Claims) due(now time.Time) []types.NamespacedName {
	s.mu.Lock()
	defer s.mu.Unlock()
	var keys []types.NamespacedName
	for key, c := range s.known {
		switch {
		case c.gone && now.Sub(c.requested) > unrequested:
			delete(s.known, key)
		case now.Sub(c.read) >= reread:
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
	if c := s.known[key]; c != nil {
		var admin map[deviceKey]bool
		if !gone {
			admin = adminOf(object)
		}
		if !maps.Equal(c.admin, admin) {
			s.revision++
		}
		c.read, c.gone, c.admin = time.Now(), gone, admin
	}
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

// adminOf returns the devices of a claim that its status allocates with admin access:
// status.allocation.devices.results (resource.k8s.io/v1, DeviceRequestAllocationResult).
func adminOf(u *unstructured.Unstructured) map[deviceKey]bool {
	results, _, _ := unstructured.NestedSlice(u.Object, "status", "allocation", "devices", "results") // none where it is not allocated
	admin := map[deviceKey]bool{}
	for _, each := range results {
		result, ok := each.(map[string]any)
		if !ok {
			continue
		}
		if is, _, _ := unstructured.NestedBool(result, "adminAccess"); is {
			text := func(field string) string { s, _, _ := unstructured.NestedString(result, field); return s }
			admin[deviceKey{text("driver"), text("pool"), text("device")}] = true
		}
	}
	return admin
}
