//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	dra "k8s.io/kubelet/pkg/apis/dra/v1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// These are the names of NVIDIA's DRA driver, and of its sockets in the kubelet's folder.
const (
	driverName   = "gpu.nvidia.com"
	driverSocket = "plugins/" + driverName + "/dra.sock"
	driverReg    = "plugins_registry/" + driverName + "-reg.sock"
)

// driver prepares claimed devices like a DRA driver. It injects nothing into containers.
type driver struct {
	dra.UnimplementedDRAPluginServer
	registration.UnimplementedRegistrationServer
	node   *node
	slice  string // manifest of the ResourceSlice that publishes the devices
	report func(format string, args ...any)

	mu        sync.Mutex
	published bool // whether run publishes the slice; it does so again and again, because a starting kubelet deletes it
}

// run publishes the slice repeatedly while it should exist, as real drivers do, until ctx is done.
func (d *driver) run(ctx context.Context) {
	for ctx.Err() == nil {
		d.mu.Lock()
		if d.published {
			if out, err := d.node.kubectl(d.slice, "apply", "-f", "-"); err != nil {
				d.report("publish the slice: %v: %s", err, out)
			}
		}
		d.mu.Unlock()
		pause(ctx)
	}
}

// publish sets whether the slice should exist. With false, it waits until the slice is deleted.
func (d *driver) publish(t *testing.T, published bool) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.published = published
	if !published {
		d.node.must(t, d.slice, "delete", "--ignore-not-found", "-f", "-")
	}
}

func (d *driver) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.DRAPlugin, Name: driverName,
		Endpoint: "/var/lib/kubelet/" + driverSocket, SupportedVersions: []string{dra.DRAPluginService},
	}, nil
}

func (d *driver) NotifyRegistrationStatus(_ context.Context,
	s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if !s.PluginRegistered {
		d.report("the kubelet rejected the DRA driver: %s", s.Error)
	}
	return &registration.RegistrationStatusResponse{}, nil
}

func (d *driver) NodePrepareResources(_ context.Context,
	r *dra.NodePrepareResourcesRequest) (*dra.NodePrepareResourcesResponse, error) {
	out := &dra.NodePrepareResourcesResponse{Claims: map[string]*dra.NodePrepareResourceResponse{}}
	for _, c := range r.Claims {
		prepared, err := d.prepare(c)
		if err != nil {
			prepared = &dra.NodePrepareResourceResponse{Error: err.Error()}
		}
		out.Claims[c.Uid] = prepared
	}
	return out, nil
}

// prepare returns the devices that the scheduler allocated to a claim.
func (d *driver) prepare(c *dra.Claim) (*dra.NodePrepareResourceResponse, error) {
	text, err := d.node.kubectl("", "-n", c.Namespace, "get", "resourceclaim", c.Name, "-o",
		"jsonpath={.status.allocation.devices.results}")
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, text)
	}
	var results []struct {
		Request, Pool, Device string
		ShareID               *string
	}
	if err := json.Unmarshal([]byte(text), &results); err != nil {
		return nil, err
	}
	var out dra.NodePrepareResourceResponse
	for _, r := range results {
		out.Devices = append(out.Devices,
			&dra.Device{RequestNames: []string{r.Request}, PoolName: r.Pool, DeviceName: r.Device, ShareId: r.ShareID})
	}
	return &out, nil
}

func (d *driver) NodeUnprepareResources(_ context.Context,
	r *dra.NodeUnprepareResourcesRequest) (*dra.NodeUnprepareResourcesResponse, error) {
	out := &dra.NodeUnprepareResourcesResponse{Claims: map[string]*dra.NodeUnprepareResourceResponse{}}
	for _, c := range r.Claims {
		out.Claims[c.Uid] = &dra.NodeUnprepareResourceResponse{}
	}
	return out, nil
}

// classes returns the device classes of NVIDIA's driver, and the class "part" for a device that several claims share
// (consumable capacity).
func classes() string {
	all := ""
	for _, kind := range []string{"gpu", "mig", "part"} {
		all += fmt.Sprintf(`---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: %[1]s.nvidia.com}
spec:
  selectors:
    - cel:
        expression: device.driver == "gpu.nvidia.com" && device.attributes["gpu.nvidia.com"].type == "%[1]s"
`, kind)
	}
	return all
}

// claimable starts the DRA driver with GPU 4, the memory of GPU 5 and the first instance of GPU 3. The driver runs
// until the test ends.
func claimable(t *testing.T, n *node) *driver {
	t.Helper()
	slice := fmt.Sprintf(`
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: e2e-gpu.nvidia.com}
spec:
  driver: gpu.nvidia.com
  nodeName: %[1]s
  pool: {name: %[1]s, generation: 1, resourceSliceCount: 1}
  devices:
`, nodeName)
	for _, d := range devices(t) {
		text := func(value string) string { return "{string: " + value + "}" }
		switch {
		case d.Entity.Kind == gpu.KindGPU && d.GPU == 5:
			slice += "    - name: gpu-5\n      allowMultipleAllocations: true\n" +
				"      attributes: {type: {string: part}, uuid: " + text(d.UUID) + "}\n" +
				"      capacity: {memory: {value: 80Gi, requestPolicy: {default: 20Gi, validRange: {min: 10Gi}}}}\n"
		case d.Entity.Kind == gpu.KindGPU && d.GPU == 4:
			slice += "    - {name: gpu-4, attributes: {type: {string: gpu}, uuid: " + text(d.UUID) + "}}\n"
		case d.Entity.Kind == gpu.KindGPUInstance && d.InstanceID == 1:
			slice += fmt.Sprintf("    - name: gpu-%d-mig-3g40gb-9-0\n", d.GPU) +
				"      attributes: {type: {string: mig}, uuid: " + text(d.MIGUUID) + ", parentUUID: " + text(d.UUID) +
				", profile: " + text(d.Profile) + "}\n"
		}
	}
	n.run(t, classes())
	d := &driver{node: n, slice: slice, report: t.Logf}
	for socket, register := range map[string]func(*grpc.Server){
		driverSocket: func(s *grpc.Server) { dra.RegisterDRAPluginServer(s, d) },
		driverReg:    func(s *grpc.Server) { registration.RegisterRegistrationServer(s, d) },
	} {
		path := n.kubelet(socket)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		server, err := serve(path, register)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(server.Stop)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	d.publish(t, true)
	wg.Go(func() { d.run(ctx) })
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		d.publish(t, false)
	})
	return d
}

// claimant returns the manifest of a pod whose container "main" has a claim.
func claimant(namespace, name, claim string) string {
	return podOf(namespace+"/"+name, "  resourceClaims: [{name: device, resourceClaimName: "+claim+"}]\n",
		hold("main", "claims: [{name: device}]"))
}

// claim returns the manifest of a claim for one device of a class.
func claim(namespace, name, class string) string {
	return fmt.Sprintf(`---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {namespace: %s, name: %s}
spec: {devices: {requests: [{name: device, exactly: {deviceClassName: %s}}]}}
`, namespace, name, class)
}

func TestOwnersOfClaimedDevices(t *testing.T) {
	n := theNode(t)
	d := claimable(t, n)
	e := n.export(t, account(t, n), "--kubernetes-enable-dra")
	manifest := claim("lab", "instance", "mig.nvidia.com") + claim("lab", "both", "gpu.nvidia.com") +
		claim("lab", "half", "part.nvidia.com") + claim("lab", "rest", "part.nvidia.com") +
		claimant("lab", "alone", "instance") + claimant("lab", "one", "both") + claimant("lab", "two", "both") +
		claimant("lab", "three", "half") + claimant("lab", "four", "rest")
	n.run(t, manifest, "lab/alone", "lab/one", "lab/two", "lab/three", "lab/four")

	// One pod owns the instance. Two pods share the claim of GPU 4, and two claims share GPU 5, so the series of these
	// GPUs have no owner. The info series have all owners.
	want := map[string]string{"3/1": "lab/alone/main"}
	p := e.showing(want)
	claimed := p.Owned(memory, "dra_claim_namespace", "dra_claim_name", "dra_driver_name", "dra_pool_name",
		"dra_device_name", "dra_mig_profile")["3/1"]
	if claimed != "lab/instance/gpu.nvidia.com/e2e-node/gpu-3-mig-3g40gb-9-0/3g.40gb" {
		t.Errorf("claim labels of the MIG instance = %q, want those of the claim lab/instance", claimed)
	}
	sharing := func(p page) []string {
		return slices.DeleteFunc(sharers(p), func(s string) bool { return !strings.HasSuffix(s, " dra") })
	}
	shared := []string{
		"4 lab/one/main gpu.nvidia.com dra", "4 lab/two/main gpu.nvidia.com dra",
		"5 lab/four/main gpu.nvidia.com dra", "5 lab/three/main gpu.nvidia.com dra",
	}
	e.until("the owners of the shared devices", func(p page) bool { return slices.Equal(sharing(p), shared) })

	// Claims cannot be matched without the slice, and no owner is guessed. The owners return when the slice is
	// published again.
	d.publish(t, false)
	unmatched := e.until("the owners to disappear without the ResourceSlice",
		func(p page) bool { return len(owners(p)) == 0 })
	if len(unmatched["dcgm_exporter_unmatched_devices"]) == 0 {
		t.Error("no ResourceSlice: dcgm_exporter_unmatched_devices has no series, want at least one")
	}
	d.publish(t, true)
	e.showing(want)

	// A starting kubelet deletes the slices of its node. The driver publishes them again.
	start := n.stop(t, "kubelet")
	e.until("the owners to disappear while the kubelet is stopped", func(p page) bool { return len(owners(p)) == 0 })
	start()
	e.showing(want)
}
