package kube

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/gpu-telemetry/dcgm-exporter/internal/podmapper"
)

// draVersions returns the supported versions of resource.k8s.io, newest first.
func draVersions() []string { return []string{"v1", "v1beta2", "v1beta1"} }

func draResource(name string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "resource.k8s.io", Resource: name}
}

// Device is a device of a ResourceSlice. NVIDIA's driver sets the attributes uuid and type ("gpu" or "mig"), and for
// MIG devices parentUUID and profile. A MIG device that is created when a pod starts has no uuid. Its name contains its
// position: gpu-MINOR-mig-PROFILE-ID-START (dra-driver-nvidia-gpu, cmd/gpu-kubelet-plugin/mig.go).
type Device = podmapper.ClaimDevice

// slice is the part of a ResourceSlice that is kept.
type slice struct {
	driver, pool string
	generation   int64 // of the pool; slices of older generations are obsolete
	devices      map[string]Device
}

// Slices holds the ResourceSlices of one node.
type Slices struct{ collection[slice] }

// Slices watches the ResourceSlices of a node until ctx is done. It needs list and watch on
// resourceslices.resource.k8s.io in the whole cluster.
func (c *Client) Slices(ctx context.Context, node string) *Slices {
	s := &Slices{collection[slice]{
		client: c, resource: draResource("resourceslices"), versions: draVersions(), node: node,
		convert: sliceOf, listed: make(chan struct{}),
	}}
	go s.run(ctx)
	return s
}

// Get returns a device of its pool's latest generation, if its slice has a UUID or a place for it.
func (s *Slices) Get(driver, pool, device string) (Device, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found Device
	latest := int64(-1)
	for _, x := range s.items {
		if x.driver != driver || x.pool != pool || len(x.devices) == 0 || x.generation < latest {
			continue
		}
		if d, ok := x.devices[device]; ok || x.generation > latest {
			found, latest = d, x.generation
		}
	}
	return found, found.UUID != "" || found.Parent != ""
}

// features are the attributes and capacities of a device, by name.
type features struct {
	Attributes map[string]struct{ String string }
	Capacity   map[string]struct{ Value any }
}

// sliceOf reads a ResourceSlice of any version. v1beta1 has the features under "basic".
func sliceOf(u *unstructured.Unstructured) slice {
	var object struct {
		Spec struct {
			Driver string
			Pool   struct {
				Name       string
				Generation int64
			}
			Devices []struct {
				Name string
				features
				Basic features
			}
		}
	}
	read(u, &object)
	spec := &object.Spec
	s := slice{spec.Driver, spec.Pool.Name, spec.Pool.Generation, make(map[string]Device, len(spec.Devices))}
	for _, d := range spec.Devices {
		text, amounts := map[string]string{}, map[string]any{}
		for _, all := range []features{d.features, d.Basic} {
			for name, x := range all.Attributes {
				text[strings.TrimPrefix(name, spec.Driver+"/")] = x.String
			}
			for name, x := range all.Capacity {
				amounts[name] = x.Value
			}
		}
		device := Device{
			UUID: text["uuid"], MIG: text["type"] == "mig", Profile: text["profile"],
			Capacity: quantities(amounts, spec.Driver),
		}
		start, err := strconv.ParseUint(d.Name[strings.LastIndex(d.Name, "-")+1:], 10, 32)
		if err == nil && device.UUID == "" && device.MIG {
			device.Parent, device.Start = text["parentUUID"], uint32(start)
		}
		s.devices[d.Name] = device
	}
	return s
}

// quantities parses quantities such as "20Gi", by their names without the driver's domain. An invalid one is 0. It
// returns nil if there are none.
func quantities(amounts map[string]any, driver string) (all map[string]float64) {
	for name, amount := range amounts {
		if all == nil {
			all = map[string]float64{}
		}
		q, _ := resource.ParseQuantity(fmt.Sprint(amount))
		all[strings.TrimPrefix(name, driver+"/")] = q.AsApproximateFloat64()
	}
	return all
}

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
	forbidden bool // the API server rejected the latest read
	reading   bool // a claim is to be read, and no read has failed since
}

// deviceKey identifies a device in a claim's allocation. A share of it has an id of its own.
type deviceKey struct{ driver, pool, device, share string }

// claim is the part of a ResourceClaim that is kept.
type claim struct {
	devices map[deviceKey]podmapper.Claimed // nil if nothing is allocated
	read    time.Time                       // zero if the claim is to be read now
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
	if claimed, ok := c.devices[deviceKey{driver, pool, device, share}]; ok {
		return claimed
	}
	// A claim without the device may have been replaced by another of the same name.
	if !known || c.devices != nil && time.Since(c.read) >= retry {
		if len(s.known) >= maxClaims {
			clear(s.known)
		}
		s.known[key] = claim{devices: c.devices}
		s.reading = true
		select {
		case s.wake <- struct{}{}:
		default: // run has a pending request
		}
	}
	return podmapper.Claimed{Forbidden: s.forbidden}
}

// Wait waits until all claims that Get has requested are read, a read fails, or ctx is done.
func (s *Claims) Wait(ctx context.Context) {
	// Ignore the error: ctx is done.
	_ = wait.PollUntilContextCancel(ctx, 5*time.Millisecond, true, func(context.Context) (bool, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return !s.reading, nil
	})
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

// next returns a claim that is due.
func (s *Claims) next() (types.NamespacedName, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, c := range s.known {
		if age := time.Since(c.read); age >= reread || c.devices == nil && age >= retry {
			return key, true
		}
	}
	s.reading = false
	return types.NamespacedName{}, false
}

// read reads one claim in the newest version that the API server supports, and reports whether it answered.
func (s *Claims) read(ctx context.Context, key types.NamespacedName) bool {
	var object *unstructured.Unstructured
	var err error
	r := draResource("resourceclaims")
	for _, r.Version = range draVersions() {
		if object, err = s.client.get(ctx, r, key.Namespace, key.Name); !apierrors.IsNotFound(err) {
			break
		}
	}
	if ctx.Err() != nil {
		return false
	}
	next := claim{read: time.Now()}
	if apierrors.IsNotFound(err) {
		err = nil
	} else if err == nil {
		next.devices = devicesOfClaim(object)
	}
	s.client.report("resourceclaims", err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision++
	if err != nil {
		s.forbidden = s.forbidden || apierrors.IsForbidden(err)
		s.reading = false
		return false
	}
	s.forbidden = false
	s.known[key] = next
	return true
}

// devicesOfClaim returns the devices that a claim's status allocates (resource.k8s.io/v1,
// DeviceRequestAllocationResult), or nil if there are none.
func devicesOfClaim(u *unstructured.Unstructured) (devices map[deviceKey]podmapper.Claimed) {
	var object struct {
		Status struct {
			Allocation struct {
				Devices struct {
					Results []struct {
						Driver, Pool, Device, ShareID string
						AdminAccess                   bool
						ConsumedCapacity              map[string]any
					}
				}
			}
		}
	}
	read(u, &object)
	for _, r := range object.Status.Allocation.Devices.Results {
		if devices == nil {
			devices = map[deviceKey]podmapper.Claimed{}
		}
		key := deviceKey{r.Driver, r.Pool, r.Device, r.ShareID}
		devices[key] = podmapper.Claimed{
			Read: true, Admin: devices[key].Admin || r.AdminAccess,
			Consumed: quantities(r.ConsumedCapacity, r.Driver),
		}
	}
	return devices
}
