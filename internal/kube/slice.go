package kube

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpu-telemetry/dcgm-exporter/internal/podmapper"
)

// A Device is a device of a ResourceSlice. NVIDIA's driver gives GPUs and MIG devices the attributes uuid and type ("gpu"
// or "mig"), and MIG devices parentUUID and a profile. A MIG device that it makes when a pod starts has no uuid: its name
// has its place, gpu-MINOR-mig-PROFILE-ID-START (dra-driver-nvidia-gpu, cmd/gpu-kubelet-plugin/mig.go).
type Device = podmapper.ClaimDevice

// deviceKey names a device as a claim's allocation does; a share has an id.
type deviceKey struct{ driver, pool, device, share string }

// A slice is the kept part of a ResourceSlice.
type slice struct {
	generation int64 // of the pool: older ones are obsolete
	devices    map[deviceKey]Device
}

// Slices are the ResourceSlices of one node.
type Slices struct {
	collection[slice]

	indexing sync.Mutex
	index    map[deviceKey]Device // made of the collection at revision at
	at       uint64
}

// draGroup is the API group of DRA, and draVersions its versions that the exporter reads, the newest
// first.
const draGroup = "resource.k8s.io"

func draVersions() []string { return []string{"v1", "v1beta2", "v1beta1"} }

// Slices watches the ResourceSlices of a node until ctx is done. It needs list and watch on
// resourceslices.resource.k8s.io in the whole cluster.
func (c *Client) Slices(ctx context.Context, node string) *Slices {
	s := &Slices{collection: collection[slice]{
		client:   c,
		resource: schema.GroupVersionResource{Group: draGroup, Resource: "resourceslices"},
		versions: draVersions(),
		node:     node,
		convert:  sliceOf,
		listed:   make(chan struct{}),
	}}
	go s.run(ctx)
	return s
}

// Get returns a device of the slices, if they have its UUID or its place.
func (s *Slices) Get(driver, pool, device string) (Device, bool) {
	s.indexing.Lock()
	defer s.indexing.Unlock()
	if revision := s.Revision(); s.index == nil || revision != s.at {
		s.index, s.at = devicesOf(s.all()), revision
	}
	d, ok := s.index[deviceKey{driver: driver, pool: pool, device: device}]
	return d, ok && (d.UUID != "" || d.Parent != "")
}

// devicesOf joins the slices of each pool's latest generation.
func devicesOf(all []slice) map[deviceKey]Device {
	type pool struct{ driver, name string }
	latest := map[pool]int64{}
	for _, s := range all {
		for k := range s.devices {
			p := pool{k.driver, k.pool}
			latest[p] = max(latest[p], s.generation)
		}
	}
	out := map[deviceKey]Device{}
	for _, s := range all {
		for k, d := range s.devices {
			if s.generation == latest[pool{k.driver, k.pool}] {
				out[k] = d
			}
		}
	}
	return out
}

// attributes are those of a device of a ResourceSlice, as far as they are texts.
type attributes map[string]struct {
	String string `json:"string"`
}

// capacities are the amounts that a device has, by name.
type capacities map[string]struct {
	Value any `json:"value"`
}

// sliceOf reads a ResourceSlice of any version. v1beta1 has a device's attributes and capacity under "basic".
func sliceOf(u *unstructured.Unstructured) slice {
	var object struct {
		Spec struct {
			Driver string `json:"driver"`
			Pool   struct {
				Name       string `json:"name"`
				Generation int64  `json:"generation"`
			} `json:"pool"`
			Devices []struct {
				Name       string     `json:"name"`
				Attributes attributes `json:"attributes"`
				Capacity   capacities `json:"capacity"`
				Basic      struct {
					Attributes attributes `json:"attributes"`
					Capacity   capacities `json:"capacity"`
				} `json:"basic"`
			} `json:"devices"`
		} `json:"spec"`
	}
	read(u, &object)
	spec := &object.Spec
	s := slice{generation: spec.Pool.Generation, devices: make(map[deviceKey]Device, len(spec.Devices))}
	for _, d := range spec.Devices {
		text := func(name string) string {
			// A name without domain is one of the driver's own; written out in full it means the same.
			full := spec.Driver + "/" + name
			return d.Attributes[name].String + d.Attributes[full].String + d.Basic.Attributes[name].String + d.Basic.Attributes[full].String
		}
		device := Device{UUID: text("uuid"), MIG: text("type") == "mig", Profile: text("profile")}
		for _, all := range []capacities{d.Capacity, d.Basic.Capacity} {
			for name, c := range all {
				if device.Capacity == nil {
					device.Capacity = map[string]float64{}
				}
				device.Capacity[strings.TrimPrefix(name, spec.Driver+"/")] = quantity(c.Value)
			}
		}
		if start, err := strconv.ParseUint(d.Name[strings.LastIndex(d.Name, "-")+1:], 10, 32); err == nil && device.UUID == "" && device.MIG {
			device.Parent, device.Start = text("parentUUID"), uint32(start)
		}
		s.devices[deviceKey{driver: spec.Driver, pool: spec.Pool.Name, device: d.Name}] = device
	}
	return s
}

// quantity reads an amount of a capacity, "20Gi"; 0 for other text.
func quantity(v any) float64 {
	q, err := resource.ParseQuantity(fmt.Sprint(v))
	if err != nil {
		return 0
	}
	return q.AsApproximateFloat64()
}
