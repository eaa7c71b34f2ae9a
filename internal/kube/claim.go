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

// Claims are the ResourceClaims that were asked about. An unknown claim is read after the question.
type Claims struct {
	client *Client
	wake   chan struct{}

	mu       sync.Mutex
	known    map[types.NamespacedName]claim
	revision uint64
}

// A claim is the kept part of a ResourceClaim.
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
	key := types.NamespacedName{Namespace: namespace, Name: name}
	c, known := s.known[key]
	admin, allocated := c.admin[deviceKey{driver, pool, device}]
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
		for _, key := range s.due() {
			if !s.read(ctx, key) {
				break // the next tick tries again
			}
		}
	}
}

// due returns the claims to read.
func (s *Claims) due() (keys []types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, c := range s.known {
		age := time.Since(c.read)
		if age >= reread || c.admin == nil && age >= retry {
			keys = append(keys, key)
		}
	}
	return keys
}

// read reads one claim, and reports whether the API server answered.
func (s *Claims) read(ctx context.Context, key types.NamespacedName) bool {
	var object *unstructured.Unstructured
	var err error
	for _, version := range draVersions() {
		resource := schema.GroupVersionResource{Group: draGroup, Version: version, Resource: "resourceclaims"}
		if object, err = s.client.get(ctx, resource, key.Namespace, key.Name); !apierrors.IsNotFound(err) {
			break
		}
	}
	next := claim{read: time.Now()}
	switch {
	case ctx.Err() != nil:
		return false
	case apierrors.IsNotFound(err):
		err = nil
	case err == nil:
		next.admin = adminOf(object)
	}
	if s.client.report("resourceclaims", err); err != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !maps.Equal(s.known[key].admin, next.admin) {
		s.revision++
	}
	s.known[key] = next
	return true
}

// adminOf returns the devices that the status of a claim allocates, and whether with admin access
// (resource.k8s.io/v1, DeviceRequestAllocationResult). It is nil where nothing is allocated.
func adminOf(u *unstructured.Unstructured) map[deviceKey]bool {
	var object struct {
		Status struct {
			Allocation struct {
				Devices struct {
					Results []struct {
						Driver string `json:"driver"`
						Pool   string `json:"pool"`
						Device string `json:"device"`
						Admin  bool   `json:"adminAccess"`
					} `json:"results"`
				} `json:"devices"`
			} `json:"allocation"`
		} `json:"status"`
	}
	read(u, &object)
	var admin map[deviceKey]bool
	for _, r := range object.Status.Allocation.Devices.Results {
		if admin == nil {
			admin = map[deviceKey]bool{}
		}
		key := deviceKey{r.Driver, r.Pool, r.Device}
		admin[key] = admin[key] || r.Admin
	}
	return admin
}
