package kube

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpu-telemetry/dcgm-exporter/internal/podmapper"
)

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

// draGroup is the API group of DRA, and draVersions are its supported versions, newest first.
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

// Get returns a device of its pool's latest generation, if its slice has a UUID or a place for it.
func (s *Slices) Get(driver, pool, device string) (Device, bool) {
	var found Device
	latest := int64(-1)
	for _, x := range s.all() {
		if x.driver != driver || x.pool != pool || len(x.devices) == 0 || x.generation < latest {
			continue
		}
		if d, ok := x.devices[device]; ok || x.generation > latest {
			found, latest = d, x.generation
		}
	}
	return found, found.UUID != "" || found.Parent != ""
}

// attributes are the string attributes of a device.
type attributes map[string]struct {
	String string `json:"string"`
}

// capacities are the amounts that a device has, by name.
type capacities map[string]struct {
	Value any `json:"value"`
}

// sliceOf reads a ResourceSlice of any version. v1beta1 has attributes and capacity under "basic".
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
	s := slice{
		driver: spec.Driver, pool: spec.Pool.Name, generation: spec.Pool.Generation,
		devices: make(map[string]Device, len(spec.Devices)),
	}
	for _, d := range spec.Devices {
		text := func(name string) (text string) {
			for _, all := range []attributes{d.Attributes, d.Basic.Attributes} {
				// Names without a domain belong to the driver's domain.
				text += all[name].String + all[spec.Driver+"/"+name].String
			}
			return text
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
		start, err := strconv.ParseUint(d.Name[strings.LastIndex(d.Name, "-")+1:], 10, 32)
		if err == nil && device.UUID == "" && device.MIG {
			device.Parent, device.Start = text("parentUUID"), uint32(start)
		}
		s.devices[d.Name] = device
	}
	return s
}

// quantity parses a quantity such as "20Gi". It returns 0 for invalid text.
func quantity(v any) float64 {
	q, err := resource.ParseQuantity(fmt.Sprint(v))
	if err != nil {
		return 0
	}
	return q.AsApproximateFloat64()
}
