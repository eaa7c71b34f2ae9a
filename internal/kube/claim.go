package kube

import (
	"context"
	"reflect"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-telemetry/dcgm-exporter/internal/podmapper"
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
	devices map[deviceKey]podmapper.Claimed // nil where it is not allocated
	read    time.Time                       // zero before the first answer
}

// Claims reads claims until ctx is done. It needs get on resourceclaims.resource.k8s.io in the
// whole cluster.
func (c *Client) Claims(ctx context.Context) *Claims {
	s := &Claims{client: c, wake: make(chan struct{}, 1), known: map[types.NamespacedName]claim{}}
	go s.run(ctx)
	return s
}

// Get returns what a claim's allocation says of a device, or of the share of it that has an id: whether it holds it with
// admin access, as monitors do beside the pod that the device is allocated to (KEP-5018), and what it consumes of its
// capacity (KEP-5075). It is zero while nothing is known. It never waits.
func (s *Claims) Get(namespace, name, driver, pool, device, share string) podmapper.Claimed {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := types.NamespacedName{Namespace: namespace, Name: name}
	c, known := s.known[key]
	claimed, allocated := c.devices[deviceKey{driver, pool, device, share}]
	// A claim that does not have the device may be another one of the name by now.
	again := c.devices != nil && !allocated && time.Since(c.read) >= retry
	if known && !again {
		return claimed
	}
	if !known && len(s.known) >= maxClaims {
		clear(s.known)
	}
	s.known[key] = claim{devices: c.devices} // due
	select {
	case s.wake <- struct{}{}:
	default: // it is about to look
	}
	return claimed
}

// Revision changes whenever an answer of Get may.
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
		if age >= reread || c.devices == nil && age >= retry {
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
		next.devices = devicesOfClaim(object)
	}
	if s.client.report("resourceclaims", err); err != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !reflect.DeepEqual(s.known[key].devices, next.devices) {
		s.revision++
	}
	s.known[key] = next
	return true
}

// devicesOfClaim returns the devices that the status of a claim allocates (resource.k8s.io/v1,
// DeviceRequestAllocationResult). It is nil where nothing is allocated.
func devicesOfClaim(u *unstructured.Unstructured) map[deviceKey]podmapper.Claimed {
	var object struct {
		Status struct {
			Allocation struct {
				Devices struct {
					Results []struct {
						Driver   string         `json:"driver"`
						Pool     string         `json:"pool"`
						Device   string         `json:"device"`
						Admin    bool           `json:"adminAccess"`
						Share    string         `json:"shareID"`
						Consumed map[string]any `json:"consumedCapacity"`
					} `json:"results"`
				} `json:"devices"`
			} `json:"allocation"`
		} `json:"status"`
	}
	read(u, &object)
	var devices map[deviceKey]podmapper.Claimed
	for _, r := range object.Status.Allocation.Devices.Results {
		if devices == nil {
			devices = map[deviceKey]podmapper.Claimed{}
		}
		key := deviceKey{r.Driver, r.Pool, r.Device, r.Share}
		claimed := podmapper.Claimed{Admin: devices[key].Admin || r.Admin}
		for name, v := range r.Consumed {
			if claimed.Consumed == nil {
				claimed.Consumed = map[string]float64{}
			}
			claimed.Consumed[strings.TrimPrefix(name, r.Driver+"/")] = quantity(v)
		}
		devices[key] = claimed
	}
	return devices
}
