package kubelet

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/material"
)

// Pod returns a pod as List reports it. Its name has the form namespace/name.
func Pod(name string, containers ...*v1.ContainerResources) *v1.PodResources {
	namespace, name, _ := strings.Cut(name, "/")
	return &v1.PodResources{Namespace: namespace, Name: name, Containers: containers}
}

// Container returns a container with devices of one resource. As in real lists, each device has its own entry.
func Container(name, resource string, devices ...string) *v1.ContainerResources {
	c := &v1.ContainerResources{Name: name}
	for _, d := range devices {
		c.Devices = append(c.Devices, Device(resource, d))
	}
	return c
}

// Device returns one entry of a container's devices.
func Device(resource, id string) *v1.ContainerDevices {
	return &v1.ContainerDevices{ResourceName: resource, DeviceIds: []string{id}}
}

// Claiming returns a container that has one device through a claim. namespace and claim name the claim. share is empty
// unless the device is shared by capacity.
func Claiming(name, namespace, claim, driver, pool, device, share string) *v1.ContainerResources {
	r := &v1.ClaimResource{DriverName: driver, PoolName: pool, DeviceName: device}
	if share != "" {
		r.ShareId = &share
	}
	return &v1.ContainerResources{Name: name, DynamicResources: []*v1.DynamicResource{{
		ClaimName: claim, ClaimNamespace: namespace, ClaimResources: []*v1.ClaimResource{r},
	}}}
}

// Crowd returns n pods in two namespaces. Pod i has one container with the device device(i).
func Crowd(n int, resource string, device func(i int) string) []*v1.PodResources {
	pods := make([]*v1.PodResources, n)
	for i := range pods {
		name := fmt.Sprintf("%s/worker-%d", [...]string{"research", "serving"}[i%2], i/2)
		pods[i] = Pod(name, Container("main", resource, device(i)))
	}
	return pods
}

// Captures returns the recorded replies to List by file name without suffix. It skips the test if the shared material
// is missing.
func Captures(t testing.TB) map[string]*v1.ListPodResourcesResponse {
	t.Helper()
	dir := material.Path(t, "data/podresources")
	files, err := filepath.Glob(filepath.Join(dir, "list-*.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatalf("no recorded PodResources replies in %s", dir)
	}
	captures := map[string]*v1.ListPodResourcesResponse{}
	for _, file := range append(files, filepath.Join(dir, "empty.json")) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		r := &v1.ListPodResourcesResponse{}
		if err := protojson.Unmarshal(text, r); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		captures[strings.TrimSuffix(filepath.Base(file), ".json")] = r
	}
	return captures
}
