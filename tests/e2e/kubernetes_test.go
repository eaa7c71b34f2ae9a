//go:build e2e

package e2e

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
)

// offering returns the node after starting device plugins that offer GPUs 0 and 1, four replicas of GPU 2, and the
// instances of GPU 3. It waits until the node can allocate them.
func offering(t *testing.T) *node {
	t.Helper()
	n := theNode(t)
	resources := map[string][]string{}
	add := func(resource string, ids ...string) { resources[resource] = append(resources[resource], ids...) }
	for _, d := range devices(t) {
		switch {
		case d.Entity.Kind == gpu.KindGPUInstance:
			add("nvidia.com/mig-"+d.Profile, d.MIGUUID)
		case d.GPU < 2:
			add("nvidia.com/gpu", d.UUID)
		case d.GPU == 2:
			for i := range 4 {
				add("nvidia.com/gpu.shared", fmt.Sprint(d.UUID, "::", i))
			}
		}
	}
	servePlugins(t, n, resources)
	for resource, ids := range resources {
		path := strings.ReplaceAll(resource, ".", `\.`)
		n.must(t, "", "wait", "node/"+nodeName, "--timeout="+patience.String(),
			fmt.Sprintf("--for=jsonpath={.status.allocatable.%s}=%d", path, len(ids)))
	}
	return n
}

// podOf returns the manifest of the pod "NAMESPACE/NAME". spec has further lines.
func podOf(name, spec string, containers ...string) string {
	namespace, name, _ := strings.Cut(name, "/")
	return fmt.Sprintf(`---
apiVersion: v1
kind: Pod
metadata: {namespace: %s, name: %s, labels: {team: %[2]s-team, app.kubernetes.io/name: %[2]s}}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 5
%s  containers: [%s]
`, namespace, name, spec, strings.Join(containers, ", "))
}

// hold returns a container that runs until it is stopped. resources is YAML, and may be empty.
func hold(name, resources string) string {
	return fmt.Sprintf(`{name: %s, image: "e2e.local/hold:1", resources: {%s}}`, name, resources)
}

// pod returns the manifest of the pod "NAMESPACE/NAME" with two containers. The container "main" requests n of the
// resource. The container "beside" requests no device.
func pod(name, resource string, n int) string {
	return podOf(name, "", hold("main", fmt.Sprintf("limits: {%s: %d}", resource, n)), hold("beside", ""))
}

func sorted(m map[string]string) []string {
	var out []string
	for k, v := range m {
		out = append(out, k+"="+v)
	}
	return slices.Sorted(slices.Values(out))
}

// sharers returns "device namespace/pod/container resource sharing replicas" for each dcgm_pod_gpu_info series.
func sharers(p page) []string {
	var out []string
	for _, s := range p["dcgm_pod_gpu_info"] {
		l := s.Labels.Get
		device := strings.TrimSuffix(l("gpu")+"/"+l("GPU_I_ID"), "/")
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s/%s/%s %s %s %s",
			device, l("namespace"), l("pod"), l("container"), l("resource"), l("sharing"), l("replicas"))))
	}
	slices.Sort(out)
	return out
}

// listed returns the pods that have devices in the kubelet's list.
func listed(t *testing.T, n *node) []string {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+n.kubelet("pod-resources/kubelet.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	list, err := podresources.NewPodResourcesListerClient(conn).List(t.Context(),
		&podresources.ListPodResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, p := range list.PodResources {
		if slices.ContainsFunc(p.Containers,
			func(c *podresources.ContainerResources) bool { return len(c.Devices) > 0 }) {
			out = append(out, p.Namespace+"/"+p.Name)
		}
	}
	return out
}

const shares = "nvidia.com/gpu.shared"

// manyPods returns the pods that most tests use, and the owners that the page must have. One pod has both GPU 0 and GPU
// 1, so the order in which the kubelet allocates them does not matter.
func manyPods() (manifest string, names []string, want map[string]string) {
	manifest = pod("ml/train", "nvidia.com/gpu", 2) + pod("web/a", shares, 1) + pod("web/b", shares, 1) +
		pod("web/train", "nvidia.com/mig-3g.40gb", 2)
	return manifest, []string{"ml/train", "web/a", "web/b", "web/train"}, map[string]string{
		"0": "ml/train/main", "1": "ml/train/main", "3/1": "web/train/main", "3/2": "web/train/main",
	}
}

func TestOwnersOfDevices(t *testing.T) {
	n := offering(t)
	e := n.export(t, "")
	e.until("a page without owners",
		func(p page) bool { return len(p[memory]) == 7 && len(owners(p)) == 0 })
	manifest, names, want := manyPods()
	n.run(t, manifest, names...)

	// The series of a GPU or instance with one owner name the owner. GPU 2 is time-sliced between two pods, so its
	// series have no owner. The info series have all owners.
	p := e.showing(want)
	infos := []string{
		"0 ml/train/main nvidia.com/gpu none",
		"1 ml/train/main nvidia.com/gpu none",
		"2 web/a/main nvidia.com/gpu.shared time-slicing 4",
		"2 web/b/main nvidia.com/gpu.shared time-slicing 4",
		"3/1 web/train/main nvidia.com/mig-3g.40gb mig",
		"3/2 web/train/main nvidia.com/mig-3g.40gb mig",
	}
	if d := cmp.Diff(infos, sharers(p)); d != "" {
		t.Errorf("dcgm_pod_gpu_info (-want +got):\n%s", d)
	}

	// the labels of a deleted pod are removed in the first cycle after the kubelet has forgotten it
	n.must(t, "", "-n", "ml", "delete", "pod", "train", "--wait")
	e.until("the kubelet to forget the pod", func(page) bool { return !slices.Contains(listed(t, n), "ml/train") })
	started := func(p page) float64 { // start of the latest successful cycle
		return p.Value("dcgm_exporter_collect_last_success_timestamp_seconds")
	}
	first := started(e.scrape())
	var readings []float64
	after := e.until("two more successful cycles", func(p page) bool {
		if at := started(p); at > first && !slices.Contains(readings, at) {
			readings = append(readings, at)
		}
		return len(readings) == 2
	})
	maps.DeleteFunc(want, func(_, owner string) bool { return owner == "ml/train/main" })
	if d := cmp.Diff(want, owners(after)); d != "" {
		t.Errorf("owners after the pod is gone (-want +got):\n%s", d)
	}

	// two new pods get the GPUs of the deleted pod, and one of them has its name
	n.run(t, pod("web/next", "nvidia.com/gpu", 1)+pod("ml/train", "nvidia.com/gpu", 1), "web/next", "ml/train")
	e.until("one GPU for each new pod", func(p page) bool {
		owners := []string{owners(p)["0"], owners(p)["1"]}
		slices.Sort(owners)
		return slices.Equal(owners, []string{"ml/train/main", "web/next/main"})
	})
}

func TestKubeletRestarts(t *testing.T) {
	n := offering(t)
	e := n.export(t, "")
	manifest, names, want := manyPods()
	n.run(t, manifest, names...)
	e.showing(want)
	truthful := func(p page) {
		checkOwners(t, p, want)
		if len(p[memory]) != 7 {
			t.Errorf("devices on the page = %d, want 7", len(p[memory]))
		}
	}

	// Owners are kept for 30 s while the kubelet restarts.
	const remembered = 31 * time.Second
	start, stopped := n.stop(t, "kubelet"), time.Now()
	p := e.until("the owners to disappear while the kubelet is stopped",
		func(p page) bool { return len(owners(p)) == 0 && time.Since(stopped) > remembered }, truthful)
	if v := p.Value("dcgm_exporter_attribution_success"); v != 0 {
		t.Errorf("kubelet stopped: dcgm_exporter_attribution_success = %v, want 0", v)
	}
	// A pod that is deleted while the kubelet is down must not return to the page. Its containers still run, and the
	// kubelet's checkpoint names it.
	n.must(t, "", "-n", "ml", "delete", "pod", "train", "--force", "--grace-period=0")
	maps.DeleteFunc(want, func(_, owner string) bool { return owner == "ml/train/main" })
	start()
	e.showing(want, truthful)

	// the plugin has registered again, so the node allocates devices again
	n.run(t, pod("web/c", shares, 1), "web/c")
	e.until("a third pod on the shared GPU", func(p page) bool {
		return slices.Contains(sharers(p), "2 web/c/main nvidia.com/gpu.shared time-slicing 4")
	}, truthful)
}

// checkOwners checks that each device on a page has the wanted owner or none.
func checkOwners(t *testing.T, p page, want map[string]string) {
	t.Helper()
	for device, owner := range owners(p) {
		if want[device] != owner {
			t.Errorf("device %s has owner %q, want %q", device, owner, want[device])
		}
	}
}

// TestKubeletRestartsOften restarts the kubelet of a node with many pods nine times. Each page must have the correct
// owners or none. It must list all four pods that share GPU 2, or none of them.
func TestKubeletRestartsOften(t *testing.T) {
	n := offering(t)
	e := n.export(t, "", "-c=100") // short cycles, because the kubelet's list is incomplete for less than a second
	manifest, names, want := manyPods()
	for _, name := range []string{"web/c", "web/d"} {
		manifest, names = manifest+pod(name, shares, 1), append(names, name)
	}
	for i := range 12 { // pods without devices make the list longer, so that it takes longer to complete
		name := fmt.Sprint("lab/filler-", i)
		manifest, names = manifest+podOf(name, "", hold("main", "")), append(names, name)
	}
	n.run(t, manifest, names...)
	e.showing(want)
	all := []string{"a", "b", "c", "d"}
	sharing := func(p page) []string {
		var pods []string
		for _, s := range p["dcgm_pod_gpu_info"] {
			if s.Labels.Get("gpu") == "2" {
				pods = append(pods, s.Labels.Get("pod"))
			}
		}
		slices.Sort(pods)
		return pods
	}
	e.until("the four pods that share a GPU", func(p page) bool { return slices.Equal(sharing(p), all) })
	truthful := func(p page) {
		checkOwners(t, p, want)
		if got := sharing(p); len(got) > 0 && !slices.Equal(got, all) {
			t.Errorf("pods that share GPU 2 on the page = %q, want %q or none", got, all)
		}
	}
	answered := func(p page) bool {
		return p.Value("dcgm_exporter_attribution_success") == 1
	}
	for range 9 {
		start := n.stop(t, "kubelet")
		e.until("kubelet unreachable", func(p page) bool { return !answered(p) }, truthful)
		start()
		e.until("kubelet reachable", func(p page) bool { return answered(p) && maps.Equal(owners(p), want) }, truthful)
		until := time.Now().Add(3 * time.Second) // the kubelet completes its list in this time
		e.until("pages for three more seconds", func(page) bool { return time.Now().After(until) }, truthful)
	}
}

// TestPodUIDsFromLogFolders checks the label pod_uid. The exporter reads the UIDs from the names of pod log folders,
// and they must match those in the API server.
func TestPodUIDsFromLogFolders(t *testing.T) {
	n := offering(t)
	manifest, names, _ := manyPods()
	n.run(t, manifest, names...)
	want := map[string]string{}
	for _, name := range names {
		namespace, pod, _ := strings.Cut(name, "/")
		want[name] = n.must(t, "", "-n", namespace, "get", "pod", pod, "-o", "jsonpath={.metadata.uid}")
	}
	e := n.export(t, "", "--kubernetes-pod-log-directory="+filepath.Join(n.state, "host/log/pods"))
	shown := func(p page) map[string]string {
		uids := map[string]string{}
		for _, s := range p["dcgm_pod_gpu_info"] {
			uids[s.Labels.Get("namespace")+"/"+s.Labels.Get("pod")] = s.Labels.Get("pod_uid")
		}
		return uids
	}
	p := e.until("all pods", func(p page) bool { return len(shown(p)) == len(want) })
	if d := cmp.Diff(want, shown(p)); d != "" {
		t.Errorf("UIDs (-want +got):\n%s", d)
	}
}

// manual returns the manifest in docs/install/kubernetes.md that grants permissions.
func manual(t *testing.T) string {
	t.Helper()
	text := folder.Read(t, "../../docs/install/kubernetes.md")
	for part := range strings.SplitSeq(text, "```yaml\n") {
		block, _, _ := strings.Cut(part, "```")
		if strings.Contains(block, "kind: ClusterRole\n") {
			return block
		}
	}
	t.Fatal("docs/install/kubernetes.md has no ClusterRole")
	return ""
}

// account creates the service account from docs/install/kubernetes.md, and returns a kubeconfig with its permissions.
func account(t *testing.T, n *node) string {
	t.Helper()
	const namespace = "gpu-monitoring"
	n.run(t, manual(t))
	token := strings.TrimSpace(n.must(t, "", "-n", namespace, "create", "token", "dcgm-exporter"))
	head, _, _ := strings.Cut(folder.Read(t, n.state, "admin.kubeconfig"), "users:")
	path := filepath.Join(t.TempDir(), "kubeconfig")
	folder.Write(t, path, head+fmt.Sprintf("users: [{name: admin, user: {token: %q}}]\n", token)+
		"contexts: [{name: e2e, context: {cluster: e2e, user: admin}}]\n")
	return path
}

func TestMissingPermissionsAreReported(t *testing.T) {
	n := offering(t)
	config := account(t, n)
	n.must(t, "", "delete", "clusterrole", "dcgm-exporter")
	e := n.export(t, config, "--kubernetes-enable-pod-labels")
	n.run(t, pod("ml/train", "nvidia.com/gpu", 2), "ml/train")
	p := e.showing(map[string]string{"0": "ml/train/main", "1": "ml/train/main"}) // these owners need only the kubelet
	succeeds := p["dcgm_exporter_kubernetes_api_success"]
	if len(succeeds) == 0 {
		t.Error("missing permissions: dcgm_exporter_kubernetes_api_success is absent, want it to be 0")
	}
	for _, s := range succeeds {
		if s.Value != 0 {
			t.Errorf("missing permissions: dcgm_exporter_kubernetes_api_success = %v, want 0", s.Value)
		}
	}
}
