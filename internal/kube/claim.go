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
	// maxClaims is the maximum number of claims that are remembered. Above it, all of them are read again.
	maxClaims = 1024
	// retry is the time after which a claim without an allocation is read again.
	retry = 15 * time.Second
	// reread is the time after which a claim with an allocation is read again. Its allocation does not
	// change, but the claim can be deleted and created again under its name.
	reread = time.Hour
)

// Claims holds the ResourceClaims that Get was asked about. They are read in the background.
type Claims struct {
	client *Client
	wake   chan struct{}

	mu        sync.Mutex
	known     map[types.NamespacedName]claim
	revision  uint64
	forbidden bool          // the API server rejected the latest read
	reading   chan struct{} // closed when no claim is left to read or a read failed; nil once closed
}

// deviceKey identifies a device in a claim's allocation. A share of it has an id of its own.
type deviceKey struct{ driver, pool, device, share string }

// claim is the part of a ResourceClaim that is kept.
type claim struct {
	devices map[deviceKey]podmapper.Claimed // nil if nothing is allocated
	read    time.Time                       // zero before the first answer
}

// isDue reports whether the claim should be read.
func (c claim) isDue() bool {
	age := time.Since(c.read)
	return age >= reread || c.devices == nil && age >= retry
}

// Claims reads claims until ctx is done. It needs the permission get on resourceclaims.resource.k8s.io in the whole
// cluster.
func (c *Client) Claims(ctx context.Context) *Claims {
	s := &Claims{client: c, wake: make(chan struct{}, 1), known: map[types.NamespacedName]claim{}}
	go s.run(ctx)
	return s
}

// Get returns what a claim's allocation says about a device, or about one share of it. The answer includes whether the
// access is admin access (KEP-5018), which monitors use, and what is consumed of the device's capacity (KEP-5075). Get
// never waits: until the claim is read, the answer is zero or says that reading is forbidden.
func (s *Claims) Get(namespace, name, driver, pool, device, share string) podmapper.Claimed {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := types.NamespacedName{Namespace: namespace, Name: name}
	c, known := s.known[key]
	claimed, allocated := c.devices[deviceKey{driver, pool, device, share}]
	if !allocated {
		claimed.Forbidden = s.forbidden
	}
	// A claim without the device may have been replaced by another of the same name.
	again := c.devices != nil && !allocated && time.Since(c.read) >= retry
	if known && !again {
		return claimed
	}
	if !known && len(s.known) >= maxClaims {
		clear(s.known)
	}
	s.known[key] = claim{devices: c.devices} // the claim is due
	if s.reading == nil {
		s.reading = make(chan struct{})
	}
	select {
	case s.wake <- struct{}{}:
	default: // run has a pending request
	}
	return claimed
}

// Wait waits until the claims that Get was asked about are read, a read fails, or ctx is done.
func (s *Claims) Wait(ctx context.Context) {
	s.mu.Lock()
	reading := s.reading
	s.mu.Unlock()
	if reading == nil {
		return
	}
	select {
	case <-reading:
	case <-ctx.Done():
	}
}

// Revision changes whenever Get may return something else.
func (s *Claims) Revision() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision
}

// run reads the claims that are due. After a failed read it backs off like a watch.
func (s *Claims) run(ctx context.Context) {
	backoff, pause := s.client.backoff(), retry
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-time.After(pause):
		}
		pause = retry
		for key, ok := s.next(); ok; key, ok = s.next() {
			if !s.read(ctx, key) {
				pause = backoff.Step()
				break
			}
			backoff = s.client.backoff()
		}
	}
}

// next returns a claim that is due. If there is none, it releases Wait.
func (s *Claims) next() (types.NamespacedName, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, c := range s.known {
		if c.isDue() {
			return key, true
		}
	}
	s.release()
	return types.NamespacedName{}, false
}

// release lets Wait return. The caller holds mu.
func (s *Claims) release() {
	if s.reading != nil {
		close(s.reading)
		s.reading = nil
	}
}

// read reads one claim and reports whether the API server answered.
func (s *Claims) read(ctx context.Context, key types.NamespacedName) bool {
	object, err := s.get(ctx, key)
	if ctx.Err() != nil {
		return false
	}
	next := claim{read: time.Now()}
	if err == nil {
		next.devices = devicesOfClaim(object)
	}
	absent, forbidden := apierrors.IsNotFound(err), apierrors.IsForbidden(err)
	if absent {
		err = nil
	}
	s.client.report("resourceclaims", err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil || forbidden {
		if s.forbidden != forbidden {
			s.revision++
		}
		s.forbidden = forbidden
	}
	if err != nil {
		s.release()
		return false
	}
	if !reflect.DeepEqual(s.known[key].devices, next.devices) {
		s.revision++
	}
	s.known[key] = next
	return true
}

// get returns one claim in the newest version that the API server supports.
func (s *Claims) get(ctx context.Context, key types.NamespacedName) (*unstructured.Unstructured, error) {
	var object *unstructured.Unstructured
	var err error
	for _, version := range draVersions() {
		resource := schema.GroupVersionResource{Group: draGroup, Version: version, Resource: "resourceclaims"}
		if object, err = s.client.get(ctx, resource, key.Namespace, key.Name); !apierrors.IsNotFound(err) {
			break
		}
	}
	return object, err
}

// devicesOfClaim returns the devices that a claim's status allocates (resource.k8s.io/v1,
// DeviceRequestAllocationResult), or nil if there are none.
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
		claimed := podmapper.Claimed{Read: true, Admin: devices[key].Admin || r.Admin}
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
