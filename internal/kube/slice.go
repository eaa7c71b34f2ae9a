package kube

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A Device is what a ResourceSlice says of one device.
type Device struct {
	UUID    string // the attribute uuid; the NVIDIA driver gives it to GPUs and MIG devices
	Type    string // the attribute type: "gpu" or "mig"
	Profile string // the attribute profile of a MIG device
}

// deviceKey names a device as a claim's allocation does.
type deviceKey struct{ driver, pool, device string }

// A slice is what is kept of a ResourceSlice.
type slice struct {
	generation int64 // of the pool: older ones are obsolete
	devices    map[deviceKey]Device
}

// Slices are the ResourceSlices of one node.
type Slices struct {
	client *Client
	node   string
	listed chan struct{}

	mu      sync.Mutex
	watched *collection[slice] // nil until the API's version is known
	// index is made of the collection at revision at.
	index map[deviceKey]Device
	at    uint64
}

// sliceGroup is the group of DRA, and its versions from the newest to the oldest that the exporter
// reads.
const sliceGroup = "resource.k8s.io"

func sliceVersions() []string { return []string{"v1", "v1beta2", "v1beta1"} }

// rediscover is the time between two attempts to find out which version the API server serves.
const rediscover = 30 * time.Second

// Slices watches the ResourceSlices of a node until ctx is done. It needs list and watch on
// resourceslices.resource.k8s.io in the whole cluster.
func (c *Client) Slices(ctx context.Context, node string) *Slices {
	s := &Slices{client: c, node: node, listed: make(chan struct{})}
	go s.run(ctx)
	return s
}

func (s *Slices) run(ctx context.Context) {
	for {
		version, err := s.client.sliceVersion(ctx)
		if err == nil {
			c := &collection[slice]{
				client:   s.client,
				resource: schema.GroupVersionResource{Group: sliceGroup, Version: version, Resource: "resourceslices"},
				selector: fields.OneTermEqualSelector("spec.nodeName", s.node).String(),
				convert:  sliceOf,
				listed:   s.listed,
			}
			s.mu.Lock()
			s.watched = c
			s.mu.Unlock()
			c.run(ctx)
			return
		}
		s.client.report("resourceslices", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(rediscover):
		}
	}
}

// sliceVersion returns the newest version of the group of DRA that both sides know.
func (c *Client) sliceVersion(ctx context.Context) (string, error) {
	served, err := c.versions(ctx, sliceGroup)
	if err != nil {
		return "", err
	}
	for _, v := range sliceVersions() {
		if slices.Contains(served, v) {
			return v, nil
		}
	}
	return "", fmt.Errorf("the API server serves %s in the versions %v; expected one of %v (Kubernetes 1.32 or later with DRA)",
		sliceGroup, served, sliceVersions())
}

// Listed returns a channel that is closed once the API server has listed the slices.
func (s *Slices) Listed() <-chan struct{} { return s.listed }

// Get returns what the slices say of a device, if they say a UUID.
func (s *Slices) Get(driver, pool, device string) (Device, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watched == nil {
		return Device{}, false
	}
	if revision := s.watched.Revision(); s.index == nil || revision != s.at {
		s.index, s.at = devicesOf(s.watched.all()), revision
	}
	d, ok := s.index[deviceKey{driver, pool, device}]
	return d, ok && d.UUID != ""
}

// Revision changes whenever the content does.
func (s *Slices) Revision() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watched == nil {
		return 0
	}
	return s.watched.Revision()
}

// poolKey names a pool.
type poolKey struct{ driver, pool string }

// devicesOf joins the slices of each pool's latest generation.
func devicesOf(all []slice) map[deviceKey]Device {
	latest := map[poolKey]int64{}
	for _, s := range all {
		for k := range s.devices {
			p := poolKey{k.driver, k.pool}
			latest[p] = max(latest[p], s.generation)
		}
	}
	out := map[deviceKey]Device{}
	for _, s := range all {
		for k, d := range s.devices {
			if s.generation == latest[poolKey{k.driver, k.pool}] {
				out[k] = d
			}
		}
	}
	return out
}

// sliceOf reads a ResourceSlice of any version. v1beta1 has a device's attributes under "basic".
func sliceOf(u *unstructured.Unstructured) slice {
	// What is not there is "", 0 or nil: a slice without it says nothing.
	driver, _, _ := unstructured.NestedString(u.Object, "spec", "driver")
	pool, _, _ := unstructured.NestedString(u.Object, "spec", "pool", "name")
	generation, _, _ := unstructured.NestedInt64(u.Object, "spec", "pool", "generation")
	devices, _, _ := unstructured.NestedSlice(u.Object, "spec", "devices")
	s := slice{generation: generation, devices: make(map[deviceKey]Device, len(devices))}
	for _, each := range devices {
		device, ok := each.(map[string]any)
		if !ok {
			continue
		}
		name, _, _ := unstructured.NestedString(device, "name")
		if basic, ok := device["basic"].(map[string]any); ok {
			device = basic
		}
		text := func(attribute string) string {
			// A name without domain is one of the driver's own; written out in full it means the same.
			for _, key := range []string{attribute, driver + "/" + attribute} {
				if v, ok, _ := unstructured.NestedString(device, "attributes", key, "string"); ok {
					return v
				}
			}
			return ""
		}
		s.devices[deviceKey{driver, pool, name}] = Device{UUID: text("uuid"), Type: text("type"), Profile: text("profile")}
	}
	return s
}
