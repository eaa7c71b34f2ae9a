package podmapper_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/podmapper"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/kubelet"
)

// The recorded node has five GPUs; the fourth has two instances. The device files are numbered in the reverse order
// of NVML's indices.
const (
	gpu0 = "GPU-00000000-0000-4000-8000-000000000000"
	gpu1 = "GPU-10000000-0000-4000-8000-000000000001"
	gpu3 = "GPU-30000000-0000-4000-8000-000000000003"
	gpu4 = "GPU-40000000-0000-4000-8000-000000000004"
	migA = "MIG-a0000000-0000-5000-8000-000000000001"
	migB = "MIG-a0000000-0000-5000-8000-000000000002"
)

func node() *gpu.Topology {
	var devices []gpu.Device
	for i := range uint32(5) {
		devices = append(devices, gpu.Device{
			Entity: gpu.Entity{Kind: gpu.KindGPU, ID: i}, GPU: i, NVMLIndex: i, Minor: 4 - i,
			UUID: fmt.Sprintf("GPU-%d0000000-0000-4000-8000-00000000000%d", i, i),
		})
	}
	for i, uuid := range []string{migA, migB} {
		devices = append(devices, gpu.Device{
			Entity: gpu.Entity{Kind: gpu.KindGPUInstance, ID: 42 + uint32(i), ParentKind: gpu.KindGPU, Parent: 3},
			GPU:    3, NVMLIndex: 3, Minor: 1, UUID: gpu3, InstanceID: 7 + uint32(i), Profile: "1g.10gb", MIGUUID: uuid,
		})
	}
	return gpu.NewTopology(devices)
}

// claimed is the recorded ResourceSlice plus a device of a driver that shares devices by capacity.
func claimed(driver, pool, name string) (podmapper.ClaimDevice, bool) {
	d, ok := map[string]podmapper.ClaimDevice{
		"gpu.nvidia.com/gpu-0":                 {UUID: gpu0},
		"gpu.nvidia.com/gpu-1":                 {UUID: gpu1},
		"gpu.nvidia.com/gpu-3-mig-1g10gb-19-0": {UUID: migA, MIG: true, Profile: "1g.10gb"},
		"sliced.nvidia.com/gpu-4":              {UUID: gpu4},
	}[driver+"/"+name]
	return d, ok && pool == "e2e-node"
}

// holds returns a pod with devices of NVIDIA's plugin.
func holds(pod string, ids ...string) *v1.PodResources {
	return kubelet.Pod(pod, kubelet.Container("c", "nvidia.com/gpu", ids...))
}

// claims returns a pod with a device of NVIDIA's DRA driver.
func claims(pod, claim, device string) *v1.PodResources {
	return kubelet.Pod(pod, kubelet.Claiming("c", "ml", claim, "gpu.nvidia.com", "e2e-node", device, ""))
}

// Two pods that share GPU 4.
var (
	podA = holds("ml/a", gpu4+"::0")
	podB = holds("ml/b", gpu4+"::1")
)

// world is a mapper with its kubelet and metrics.
type world struct {
	*testing.T
	*kubelet.Server
	mapper   *podmapper.Mapper
	registry *prometheus.Registry
	topology *gpu.Topology
}

func newWorld(t *testing.T, opt podmapper.Options, script ...kubelet.Reply) *world {
	t.Helper()
	w := &world{T: t, Server: kubelet.Start(t, script...), registry: prometheus.NewRegistry(), topology: node()}
	opt.Socket, opt.Metrics = w.Socket(), podmapper.NewMetrics(w.registry)
	w.mapper = podmapper.New(opt)
	t.Cleanup(w.mapper.Close)
	return w
}

// worldWith returns a world whose kubelet lists these pods.
func worldWith(t *testing.T, opt podmapper.Options, listed ...*v1.PodResources) *world {
	t.Helper()
	return newWorld(t, opt, kubelet.Lists(listed...))
}

// patience bounds every call that is expected to succeed.
const patience = 30 * time.Second

func (w *world) try() (*gpu.Owners, error) {
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	return w.mapper.Attribute(ctx, w.topology)
}

func (w *world) attribute() *gpu.Owners {
	w.Helper()
	o, err := w.try()
	if err != nil {
		w.Fatalf("Attribute: %v", err)
	}
	return o
}

func (w *world) fails(want error) {
	w.Helper()
	if o, err := w.try(); !errors.Is(err, want) {
		w.Errorf("Attribute = %v, %v; want an error that wraps %q", o, err, want)
	}
}

// metric returns the values of a family by label values.
func (w *world) metric(name string) map[string]float64 {
	w.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		w.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.Metric {
			key := ""
			for _, l := range m.Label {
				key += l.GetValue() + " "
			}
			out[key] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return out
}

// unmatched returns the number of unmatched devices by form and resource.
func (w *world) unmatched() map[string]float64 { return w.metric("dcgm_exporter_unmatched_devices") }

// pods returns the pod label of each row.
func pods(o *gpu.Owners) map[int]string {
	out := map[int]string{}
	for row := range o.Labels {
		name := map[string]string{}
		for _, l := range o.Labels[row] {
			name[l.Name] = l.Value
		}
		if name["pod"] != "" {
			out[row] = name["namespace"] + "/" + name["pod"] + "/" + name["container"]
		}
	}
	return out
}

func want[T any](t testing.TB, what string, got, expected T) {
	t.Helper()
	if d := cmp.Diff(expected, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func TestEveryFormOfID(t *testing.T) {
	const row0, rowA, rowB = 0, 5, 6
	for _, tt := range []struct {
		id, resource string
		row          int
		replica      string
	}{
		{gpu0, "nvidia.com/gpu", row0, ""},
		{gpu0, "nvidia.com/a100", row0, ""},
		{gpu0, "example.com/accelerator", row0, ""},
		{gpu0 + "::2", "nvidia.com/gpu.shared", row0, "2"},
		{gpu0 + "::0", "nvidia.com/gpu", row0, "0"},
		{migA, "nvidia.com/mig-1g.10gb", rowA, ""},
		{migB, "nvidia.com/gpu", rowB, ""},
		{migB + "::1", "nvidia.com/mig-1g.10gb.shared", rowB, "1"},
		{"MIG-" + gpu3 + "/8/0", "nvidia.com/mig-1g.5gb", rowB, ""},
		{"nvidia4", "nvidia.com/gpu", row0, ""},
		{"nvidia1/gi7", "nvidia.com/gpu", rowA, ""},
		{"nvidia4/vgpu1", "nvidia.com/gpu", row0, "1"},
		{"nvidia1/gi8/vgpu3", "nvidia.com/gpu", rowB, "3"},
		{gpu0[len("GPU-"):], "nvidia.com/gpu", row0, ""},
		{migB[len("MIG-"):], "acme.com/slice", rowB, ""},
	} {
		t.Run(tt.id, func(t *testing.T) {
			train := kubelet.Pod("ml/train-0", kubelet.Container("main", tt.resource, tt.id))
			w := worldWith(t, podmapper.Options{}, train)
			o := w.attribute()
			want(t, "labels", pods(o), map[int]string{tt.row: "ml/train-0/main"})
			want(t, "owners", o.UseOf(tt.row).Owners, []gpu.Owner{{
				Namespace: "ml", Pod: "train-0", Container: "main", Resource: tt.resource, Replica: tt.replica,
			}})
			sharing := gpu.SharingNone
			if tt.replica != "" {
				sharing = gpu.SharingTimeSlicing
			}
			want(t, "sharing", o.UseOf(tt.row).Sharing, sharing)
			want(t, "unmatched", w.unmatched(), map[string]float64{})
		})
	}
}

func TestUnmatchedDevicesAreCounted(t *testing.T) {
	const x, y = "GPU-99999999-0000-4000-8000-000000000000", "GPU-99999999-0000-4000-8000-000000000001"
	w := newWorld(t, podmapper.Options{Resources: []string{"acme.com/gpu"}, Device: claimed}, kubelet.Lists(
		kubelet.Pod("ml/a",
			kubelet.Container("c", "nvidia.com/gpu", x, y, "nvidia9", "garbage"),
			kubelet.Container("d", "acme.com/gpu", "unit-7"),
			// Nothing identifies these as GPUs.
			kubelet.Container("e", "acme.com/fpga", "unit-8", "11111111-0000-4000-8000-000000000000"),
			kubelet.Claiming("f", "ml", "claim", "gpu.nvidia.com", "e2e-node", "gpu-77", ""),
			kubelet.Claiming("g", "ml", "channel", "compute-domain.nvidia.com", "e2e-node", "channel-0", ""),
		)))
	o := w.attribute()
	want(t, "labels", pods(o), map[int]string{})
	want(t, "unmatched", w.unmatched(), map[string]float64{
		"gpu_uuid nvidia.com/gpu ": 2, "index nvidia.com/gpu ": 1, "unknown nvidia.com/gpu ": 1,
		"unknown acme.com/gpu ": 1, "claim_device gpu.nvidia.com ": 1,
	})
	unmatched, err := w.mapper.Unmatched(t.Context(), w.topology)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, u := range unmatched {
		got[u.Device], _, _ = strings.Cut(u.Why, " ")
	}
	want(t, "first words of the reasons", got, map[string]string{
		x: "The", y: "The", "nvidia9": "The", "garbage": "Unknown", "unit-7": "Unknown", "gpu-77": "No",
	})
}

func TestOneConnectionAndOneListPerCall(t *testing.T) {
	a := holds("ml/a", gpu0)
	b := holds("ml/b", gpu1)
	w := newWorld(t, podmapper.Options{}, kubelet.Lists(a, b), kubelet.Lists(b, a), kubelet.Lists(b))
	first, second, third := w.attribute(), w.attribute(), w.attribute()
	if first != second {
		t.Error("same pods in another order: Attribute returned new owners, want the previous ones")
	}
	if third == second {
		t.Error("pod ended: Attribute returned the previous owners, want new ones")
	}
	want(t, "lists", w.Lists(), 3)
	want(t, "requests", w.metric("dcgm_exporter_kubelet_requests_total"), map[string]float64{"OK ": 3})
	if age := w.metric("dcgm_exporter_attribution_map_age_seconds"); age[""] < 0 || len(age) != 1 {
		t.Errorf("age of the map = %v, want one value of at least 0", age)
	}
}

func TestKubeletErrors(t *testing.T) {
	pod := kubelet.Lists(holds("ml/a", gpu0))
	labels := map[int]string{0: "ml/a/c"}
	replica := func(i int) string { return fmt.Sprintf("GPU-%036d::%d", i, i) }
	big := kubelet.Lists(kubelet.Crowd(200_000, "nvidia.com/gpu", replica)...)

	t.Run("kubelet rejects a call, closes the connection, sends too much, and recovers", func(t *testing.T) {
		w := newWorld(t, podmapper.Options{}, pod, kubelet.Refuses(codes.ResourceExhausted), pod,
			kubelet.Dies(holds("ml/b", gpu0)), pod, big, pod)
		for range 3 {
			want(t, "labels", pods(w.attribute()), labels)
			if _, err := w.try(); err == nil {
				t.Error("Attribute succeeded, want an error")
			}
		}
		want(t, "labels", pods(w.attribute()), labels)
	})
	t.Run("kubelet hangs, and stalls in a response", func(t *testing.T) {
		release := make(chan struct{})
		w := newWorld(t, podmapper.Options{}, pod, kubelet.Hangs(), pod, kubelet.Stalls(release, holds("ml/a", gpu0)),
			kubelet.Refuses(codes.ResourceExhausted), pod)
		before := w.attribute()
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if _, err := w.mapper.Attribute(ctx, w.topology); !errors.Is(err, gpu.ErrTimeout) {
				t.Errorf("Attribute: error %v, want gpu.ErrTimeout", err)
			}
			if w.Lists() == 4 { // a response that stalls fails only its own call
				close(release)
				if _, err := w.try(); err == nil {
					t.Error("Attribute above the rate limit succeeded, want an error")
				}
			}
			if w.attribute() != before {
				t.Error("owners changed after a timeout, want no change")
			}
		}
	})
	t.Run("kubelet is missing, appears, and is replaced", func(t *testing.T) {
		w := newWorld(t, podmapper.Options{}, pod)
		w.Stop()
		w.fails(gpu.ErrUnavailable)
		for range 3 {
			w.Start()
			want(t, "labels", pods(w.attribute()), labels)
			w.Stop()
			w.fails(gpu.ErrUnavailable)
		}
	})
	t.Run("kubelet sends more than gRPC's default limit", func(t *testing.T) {
		crowd := kubelet.Crowd(60_000, "nvidia.com/gpu", replica)
		w := worldWith(t, podmapper.Options{}, append(crowd, holds("ml/a", gpu0))...)
		want(t, "labels", pods(w.attribute()), labels)
	})
}

func TestSharing(t *testing.T) {
	mps := false
	w := newWorld(t, podmapper.Options{MPS: func() bool { return mps }}, kubelet.Lists(
		kubelet.Pod("ml/a", kubelet.Container("c", "nvidia.com/gpu.shared", gpu4+"::0", gpu4+"::3")),
		kubelet.Pod("ml/b", kubelet.Container("c", "nvidia.com/gpu.shared", gpu4+"::1")),
		kubelet.Pod("ml/c", kubelet.Container("c", "nvidia.com/gpu.shared", gpu1+"::1", gpu1+"::0")),
		holds("ml/d", gpu0),
	))
	allocatable := []*v1.ContainerDevices{kubelet.Device("nvidia.com/gpu", gpu0)}
	for i := range 4 {
		allocatable = append(allocatable, kubelet.Device("nvidia.com/gpu.shared", fmt.Sprintf("%s::%d", gpu4, i)))
	}
	w.Allocatable(allocatable...)
	owner := func(pod, replica string) gpu.Owner {
		return gpu.Owner{Namespace: "ml", Pod: pod, Container: "c", Resource: "nvidia.com/gpu.shared", Replica: replica}
	}
	o := w.attribute()
	want(t, "GPU 4", o.UseOf(4), gpu.Use{
		Sharing: gpu.SharingTimeSlicing, Replicas: 4,
		Owners: []gpu.Owner{owner("a", "0"), owner("a", "3"), owner("b", "1")},
	})
	want(t, "GPU 1", o.UseOf(1), gpu.Use{
		Sharing: gpu.SharingTimeSlicing, Owners: []gpu.Owner{owner("c", "0"), owner("c", "1")},
	})
	want(t, "replicas of a whole device", o.UseOf(0).Replicas, 0)
	want(t, "labels of exclusive devices", pods(o), map[int]string{0: "ml/d/c", 1: "ml/c/c"})

	mps = true
	want(t, "sharing once the node reports MPS", w.attribute().UseOf(4).Sharing, gpu.SharingMPS)
}

// An empty list is accepted from a kubelet that has been up for a while: the last pod of the node has ended.
func TestLastPodEnds(t *testing.T) {
	w := newWorld(t, podmapper.Options{}, kubelet.Lists(holds("ml/a", gpu0)), kubelet.Lists())
	w.attribute()
	podmapper.Clock(w.mapper, func() time.Time { return time.Now().Add(podmapper.Settled) })
	want(t, "labels after the last pod ended", pods(w.attribute()), map[int]string{})
}

// The same answer of the kubelet refers to other entities after a MIG repartition.
func TestTopologyChange(t *testing.T) {
	w := newWorld(t, podmapper.Options{}, kubelet.Lists(kubelet.Pod("ml/a",
		kubelet.Container("c", "nvidia.com/gpu", gpu0), kubelet.Container("d", "nvidia.com/mig-1g.10gb", migA))))
	first := w.attribute()
	want(t, "labels", pods(first), map[int]string{0: "ml/a/c", 5: "ml/a/d"})
	devices := node().Devices
	w.topology = gpu.NewTopology(append([]gpu.Device{devices[1], devices[0]}, devices[6:]...))
	second := w.attribute()
	want(t, "labels after the change", pods(second), map[int]string{1: "ml/a/c"})
	want(t, "unmatched after the change", w.unmatched(), map[string]float64{"mig_uuid nvidia.com/mig-1g.10gb ": 1})
}

func TestKubeletListsDeviceTwice(t *testing.T) {
	pod := holds("ml/a", gpu0, gpu0)
	w := worldWith(t, podmapper.Options{}, pod, pod)
	want(t, "owners", len(w.attribute().UseOf(0).Owners), 1)
}

func TestKubeletWithoutPodResources(t *testing.T) {
	w := newWorld(t, podmapper.Options{}, kubelet.Refuses(codes.Unimplemented))
	w.fails(gpu.ErrVersion)
}

// A device of a shared resource is shared even if only one pod holds a replica.
func TestSharedDeviceWithOneOwner(t *testing.T) {
	w := newWorld(t, podmapper.Options{Device: claimed}, kubelet.Lists(
		kubelet.Pod("ml/a", kubelet.Claiming("c", "ml", "part", "sliced.nvidia.com", "e2e-node", "gpu-4", "3336a525")),
		kubelet.Pod("ml/b", kubelet.Container("c", "nvidia.com/gpu.shared", gpu0)),
	))
	o := w.attribute()
	want(t, "labels", pods(o), map[int]string{0: "ml/b/c", 4: "ml/a/c"})
	want(t, "sharing of a claim's share", o.UseOf(4).Sharing, gpu.SharingDRA)
	want(t, "sharing of a device of a shared resource", o.UseOf(0).Sharing, gpu.SharingTimeSlicing)
}

func TestUnmatchedDevicesAreBounded(t *testing.T) {
	var pods []*v1.PodResources
	for i := range 100 {
		device := kubelet.Container("c", fmt.Sprint("nvidia.com/kind-", i), "garbage")
		pods = append(pods, kubelet.Pod(fmt.Sprint("ml/", i), device))
	}
	w := worldWith(t, podmapper.Options{}, pods...)
	w.attribute()
	unmatched, sum := w.unmatched(), 0.0
	for _, n := range unmatched {
		sum += n
	}
	want(t, "series", len(unmatched), 65)
	want(t, "devices", sum, 100)
}

// Two containers of one pod on a device are one owner.
func TestContainersOfOnePod(t *testing.T) {
	w := newWorld(t, podmapper.Options{Device: claimed}, kubelet.Lists(
		kubelet.Pod("ml/a",
			kubelet.Container("c", "nvidia.com/gpu", gpu4+"::0"), kubelet.Container("d", "nvidia.com/gpu", gpu4+"::1"),
			kubelet.Claiming("c", "ml", "ours", "gpu.nvidia.com", "e2e-node", "gpu-1", ""),
			kubelet.Claiming("d", "ml", "ours", "gpu.nvidia.com", "e2e-node", "gpu-1", ""))))
	o := w.attribute()
	want(t, "labels", pods(o), map[int]string{1: "ml/a/", 4: "ml/a/"})
	want(t, "labels of the replicas", o.Of(4), []gpu.Label{{Name: "namespace", Value: "ml"}, {Name: "pod", Value: "a"}})
	want(t, "claim name of both containers", o.Of(1)[0], gpu.Label{Name: "dra_claim_name", Value: "ours"})
	want(t, "owners, by container", len(o.UseOf(4).Owners), 2)
}

// The number of replicas is what the plugin offers now, not what pods hold.
func TestReplicasFollowPlugin(t *testing.T) {
	offer := func(n int) (all []*v1.ContainerDevices) {
		for i := range n {
			all = append(all, kubelet.Device("nvidia.com/gpu", fmt.Sprintf("%s::%d", gpu4, i)))
		}
		return all
	}
	w := worldWith(t, podmapper.Options{}, holds("ml/a", gpu4+"::0"))
	now := time.Now()
	podmapper.Clock(w.mapper, func() time.Time { return now })
	for _, tt := range []struct {
		what     string
		offered  int
		later    time.Duration
		replicas int
	}{
		{"at first", 4, 0, 4},
		{"just after the plugin was reconfigured", 8, 10 * time.Second, 4},
		{"a minute later", 8, time.Minute, 8},
		{"with fewer", 2, time.Minute, 2},
		{"while the plugin is unreachable", 0, time.Minute, 2},
		{"once it is back", 4, time.Minute, 4},
	} {
		now = now.Add(tt.later)
		w.Allocatable(offer(tt.offered)...)
		want(t, "replicas "+tt.what, w.attribute().UseOf(4).Replicas, tt.replicas)
	}

	// A new replica triggers a request at once.
	w.Script(kubelet.Lists(holds("ml/a", gpu4+"::11")))
	w.Allocatable(offer(12)...)
	now = now.Add(15 * time.Second)
	want(t, "replicas including a new one", w.attribute().UseOf(4).Replicas, 12)

	// The request follows even if the last one was just before and nothing changes afterwards.
	now = now.Add(20 * time.Second)
	w.attribute() // the first replica is not listed yet
	now = now.Add(45 * time.Second)
	w.attribute() // this makes the new request
	w.Script(kubelet.Lists(holds("ml/a", gpu4+"::11", gpu4+"::13")))
	w.Allocatable(offer(16)...)
	now = now.Add(time.Second)
	want(t, "replicas just after the last request", w.attribute().UseOf(4).Replicas, 12)
	now = now.Add(10 * time.Second)
	want(t, "replicas ten seconds later", w.attribute().UseOf(4).Replicas, 16)

	// If the kubelet does not answer this request, only the number of replicas is unknown.
	w = worldWith(t, podmapper.Options{}, holds("ml/a", gpu4+"::0"))
	w.Silence()
	begin := time.Now()
	o, err := w.try()
	if err != nil || len(o.UseOf(4).Owners) != 1 || o.UseOf(4).Replicas != 0 {
		t.Errorf("Attribute = %v, %v; want one owner and an unknown number of replicas", o.UseOf(4), err)
	}
	if took := time.Since(begin); took > patience/2 {
		t.Errorf("Attribute took %v, want at most %v", took, patience/2)
	}
}

// Names longer than Kubernetes allows are truncated so that they do not inflate the page.
func TestLongNamesAreTruncated(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	w := worldWith(t, podmapper.Options{}, kubelet.Pod("ml/"+long, kubelet.Container(long, "nvidia.com/gpu", gpu0)))
	labels := w.attribute().Of(0)
	if len(labels) != 3 {
		t.Fatalf("%d labels, want 3", len(labels))
	}
	for _, l := range labels {
		if len(l.Value) > 253 {
			t.Errorf("%s has %d bytes, want at most 253", l.Name, len(l.Value))
		}
	}
}

// BenchmarkAttribute measures one Attribute with 110 pods on 56 time-sliced MIG instances, over a real connection to
// a kubelet. It also reports the number of calls to the kubelet. The exporter calls Attribute once per collection
// interval.
func BenchmarkAttribute(b *testing.B) {
	var devices []gpu.Device
	for g := range uint32(8) {
		uuid := fmt.Sprintf("GPU-%08d-2078-5444-8c9c-4f8e98ae4dcc", g)
		entity := gpu.Entity{Kind: gpu.KindGPU, ID: g}
		devices = append(devices, gpu.Device{Entity: entity, GPU: g, NVMLIndex: g, UUID: uuid})
		for i := range uint32(7) {
			devices = append(devices, gpu.Device{
				Entity: gpu.Entity{Kind: gpu.KindGPUInstance, ID: 7*g + i, ParentKind: gpu.KindGPU, Parent: g},
				GPU:    g, NVMLIndex: g, UUID: uuid,
				InstanceID: 7 + i, Profile: "1g.10gb", MIGUUID: migUUID(int(7*g + i)),
			})
		}
	}
	topology := gpu.NewTopology(devices)
	s := kubelet.Start(b, kubelet.Lists(kubelet.Crowd(110, "nvidia.com/mig-1g.10gb", func(i int) string {
		return fmt.Sprintf("%s::%d", migUUID(i%56), i/56)
	})...))
	metrics := podmapper.NewMetrics(prometheus.NewRegistry())
	mapper := podmapper.New(podmapper.Options{Socket: s.Socket(), Metrics: metrics})
	defer mapper.Close()
	owned := 0
	b.ReportAllocs()
	for b.Loop() {
		owners, err := mapper.Attribute(b.Context(), topology)
		if err != nil {
			b.Fatal(err)
		}
		owned = 0
		for row := range devices {
			owned += len(owners.UseOf(row).Owners)
		}
	}
	if owned != 110 {
		b.Fatalf("owners of 110 pods = %d, want 110", owned)
	}
	b.ReportMetric(float64(s.Lists())/float64(b.N), "kubelet-lists/op")
}

func migUUID(i int) string { return fmt.Sprintf("MIG-%08d-8203-50a3-a2ba-a9d2f1a9a0a4", i) }
