package process

import (
	"encoding/json"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/apiserver"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/kubelet"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
)

// owned returns the values of labels on memory series, by device.
func owned(p page, labels ...string) map[string]string {
	return p.Owned("DCGM_FI_DEV_FB_USED", labels...)
}

// untilOwned waits for a page on which the owned devices and the values of their labels are exactly those in want.
func (r *running) untilOwned(want map[string]string, labels ...string) page {
	r.t.Helper()
	return r.sees(fmt.Sprintf("%v of %v", labels, want), func(p page) bool {
		return cmp.Equal(want, owned(p, labels...))
	})
}

// uuids returns the UUIDs of a simulated node's GPUs, by gpu label.
func uuids(t *testing.T, node string) map[string]string {
	t.Helper()
	id := map[string]string{}
	for key := range prom.Parse(t, once(t, node)).By("DCGM_FI_DEV_GPU_TEMP", "gpu", "UUID") {
		gpu, uuid, _ := strings.Cut(key, "/")
		id[gpu] = uuid
	}
	return id
}

// The page follows the kubelet when pods come and go. If the kubelet does not answer, all GPUs are served without
// owners, and the failure is reported.
func TestPodsFollowKubelet(t *testing.T) {
	t.Parallel()
	type m = map[string]string
	pod := []string{"namespace", "pod", "container"}
	id := uuids(t, "h100x8")
	k := kubelet.Start(t, kubelet.Lists(
		kubelet.Pod("ml/train-0", kubelet.Container("main", "nvidia.com/gpu", id["0"], id["1"])),
		kubelet.Pod("web/train-0", kubelet.Container("main", "nvidia.com/gpu.shared", id["2"]+"::0", id["3"]+"::0")),
		kubelet.Pod("web/train-1", kubelet.Container("main", "nvidia.com/gpu.shared", id["2"]+"::1")),
		kubelet.Pod("web/idle"),
	))
	r := simulate(t, "h100x8", nil, "--kubernetes", "--pod-resources-kubelet-socket", k.Socket())
	p := r.collected()
	want := m{"0": "ml/train-0/main", "1": "ml/train-0/main", "3": "web/train-0/main"}
	if d := cmp.Diff(want, owned(p, pod...)); d != "" {
		t.Errorf("owners (-want +got):\n%s", d)
	}
	if n := len(p["DCGM_FI_DEV_GPU_TEMP"]); n != 8 {
		t.Errorf("temperature series = %d, want 8", n)
	}
	next := kubelet.Lists(kubelet.Pod("ml/train-1", kubelet.Container("main", "nvidia.com/gpu", id["0"])))
	k.Script(next)
	r.untilOwned(m{"0": "ml/train-1/main"}, pod...)
	k.Script(kubelet.Hangs())
	p = r.untilOwned(m{}, pod...)
	success := p.By("dcgm_exporter_attribution_success", "attributor")["kubernetes"]
	if n := len(p["DCGM_FI_DEV_GPU_TEMP"]); n != 8 || success != 0 {
		t.Errorf("while the kubelet hangs: temperature series = %d, attribution success = %v; want 8 and 0", n, success)
	}
	if got := p.By("dcgm_exporter_collect_failures_total", "stage", "reason"); got["attribute/timeout"] == 0 {
		t.Errorf("failures by stage and reason = %v, want attribute/timeout", got)
	}
	k.Script(next)
	r.untilOwned(m{"0": "ml/train-1/main"}, pod...)
}

type object = map[string]any

// cluster returns the kubeconfig of an API server that serves objects by path, after a delay. Watches and requests for
// other paths get no answer.
func cluster(t *testing.T, delay time.Duration, objects object) string {
	t.Helper()
	server := &apiserver.Server{Before: func(w http.ResponseWriter, r *http.Request) bool {
		found := objects[r.URL.Path]
		if found == nil || r.URL.Query().Get("watch") != "" {
			<-r.Context().Done()
			return true
		}
		select {
		case <-time.After(delay):
		case <-r.Context().Done():
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(found)
		return true
	}}
	return server.Start(t).Kubeconfig(t)
}

// resources returns lists of pods and ResourceSlices, and the claim ml/claim, by path. The slice has one device of
// NVIDIA's driver, which is allocated to the claim.
func resources(pod, device, allocated object) object {
	list := func(version, kind string, item object) object {
		item["apiVersion"], item["kind"] = version, kind
		about := object{"resourceVersion": "1"}
		return object{"kind": "List", "apiVersion": "v1", "metadata": about, "items": []any{item}}
	}
	allocated["driver"], allocated["pool"], allocated["device"] = "gpu.nvidia.com", "n", device["name"]
	return object{
		"/api/v1/pods": list("v1", "Pod", object{"metadata": pod}),
		"/apis/resource.k8s.io/v1/resourceslices": list("resource.k8s.io/v1", "ResourceSlice", object{
			"metadata": object{"name": "s"},
			"spec":     object{"driver": "gpu.nvidia.com", "pool": object{"name": "n"}, "devices": []any{device}},
		}),
		"/apis/resource.k8s.io/v1/namespaces/ml/resourceclaims/claim": object{
			"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
			"metadata": object{"namespace": "ml", "name": "claim"},
			"status":   object{"allocation": object{"devices": object{"results": []any{allocated}}}},
		},
	}
}

// The first page with data has labels and UIDs of pods, and the claims of devices, even if the API server is slow. A
// pod that claims a quarter of a GPU is charged a quarter of the time.
func TestPodDetailsAreOnTheFirstPage(t *testing.T) {
	t.Parallel()
	type m = map[string]string
	id := uuids(t, "h100x8")
	config := cluster(t, 200*time.Millisecond, resources(
		object{"namespace": "ml", "name": "a", "uid": "u-1", "labels": object{"team": "vision", "tier": "gold"}},
		object{
			"name": "gpu-1", "attributes": object{"uuid": object{"string": id["1"]}},
			"capacity": object{"memory": object{"value": "80Gi"}}, "allowMultipleAllocations": true,
		},
		object{"shareID": "s", "consumedCapacity": object{"memory": "20Gi"}}))
	k := kubelet.Start(t, kubelet.Lists(kubelet.Pod("ml/a", kubelet.Container("c", "nvidia.com/gpu", id["0"]),
		kubelet.Claiming("d", "ml", "claim", "gpu.nvidia.com", "n", "gpu-1", "s"))))
	r := start(t, []string{"NODE_NAME=n", "KUBECONFIG=" + config}, "--source=sim", "--sim-node=h100x8",
		"--kubernetes", "--kubernetes-enable-pod-labels", "--kubernetes-enable-pod-uid", "--kubernetes-enable-dra",
		"--kubernetes-pod-label-allowlist-regex=^team$", "--pod-resources-kubelet-socket", k.Socket())
	p := r.collected()
	got := []m{
		owned(p, "container", "namespace", "pod", "team", "pod_uid"), owned(p, "tier"),
		owned(p, "dra_claim_namespace", "dra_claim_name", "dra_driver_name", "dra_pool_name", "dra_device_name"),
	}
	want := []m{
		{"0": "c/ml/a/vision/u-1", "1": "d/ml/a/vision/u-1"}, {}, {"1": "ml/claim/gpu.nvidia.com/n/gpu-1"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("first page: pods, labels outside the allowlist, and claims (-want +got):\n%s", d)
	}
	r.sees("a quarter of the time for the claim", func(p page) bool {
		seconds := p.By("dcgm_pod_gpu_allocated_seconds_total", "gpu")
		return seconds["1"] > 0 && math.Abs(seconds["0"]-4*seconds["1"]) < 1e-6
	})
}

// Device series name no owners if --owner-labels=info is set. The owners of devices and XIDs are in separate series.
func TestOwnerLabelsInfo(t *testing.T) {
	t.Parallel()
	const job = "hpc_job"
	dir := t.TempDir()
	replace(t, filepath.Join(dir, "2"), "4711\n")
	xid := []string{`fault: xid, at: 3s, devices: ["2"], xids: [31]`}
	r := simulate(t, "a100-mig", xid, "--hpc-job-mapping-dir="+dir, "--owner-labels=info")
	p := r.sees("the XID's job", func(p page) bool {
		return p.By("dcgm_pod_gpu_xid_last_seen_timestamp_seconds", "gpu", "xid", job)["2/31/4711"] > 0
	})
	if p.By("dcgm_pod_gpu_info", "gpu", job)["2/4711"] != 1 {
		t.Errorf("dcgm_pod_gpu_info = %v, want a series for GPU 2 and job 4711", p["dcgm_pod_gpu_info"])
	}
	if named := owned(p, job, "pod", "namespace", "container"); len(named) != 0 {
		t.Errorf("device series name owners %v, want none", named)
	}
	for line := range strings.Lines(once(t, "demo", "--owner-labels=info", "-f", root+"/etc/fleet-counters.csv")) {
		if strings.HasPrefix(line, "DCGM_") && regexp.MustCompile(`[{,](pod|hpc_job)="`).MatchString(line) {
			t.Fatalf("device series has an owner label, want none: %s", line)
		}
	}
}

// The DRA driver can create a MIG device when a pod starts. Such a device is matched by its placement. DCGM does not
// report the placement, so it is read from NVML.
func TestMIGMadeForAPod(t *testing.T) {
	t.Parallel()
	const device = "gpu-7-mig-1g10gb-19-2"
	text := func(s string) object { return object{"string": s} }
	attributes := object{"parentUUID": text("GPU-00000007"), "type": text("mig"), "profile": text("1g.10gb")}
	config := cluster(t, 0, resources(object{"namespace": "ml", "name": "a"},
		object{"name": device, "attributes": attributes}, object{}))
	claiming := kubelet.Claiming("c", "ml", "claim", "gpu.nvidia.com", "n", device, "")
	k := kubelet.Start(t, kubelet.Lists(kubelet.Pod("ml/a", claiming)))
	engine, env := both(t, "gpu 7 set uuid GPU-00000007", "gpu 7 instance 9 0 1g.10gb 9984", "gpu 7 set start-9 2")
	r := start(t, append(env, "NODE_NAME=n", "KUBECONFIG="+config),
		"--kubernetes", "--kubernetes-enable-dra", "--pod-resources-kubelet-socket", k.Socket())
	r.sees("the pod", func(p page) bool {
		return p.By("DCGM_FI_DEV_FB_USED", "GPU_I_ID", "pod", "dra_mig_profile")["9/a/1g.10gb"] > 0
	})
	r.stops()
	nothingOpen(t, engine)
}

// TestJobs follows job files from the start of a job to its end. The folder appears late, disappears and returns, and
// the exporter reloads.
func TestJobs(t *testing.T) {
	t.Parallel()
	type m = map[string]string
	const job, whole, part, odd = "hpc_job", "2", "0/11", `job "x" \ 7` // no pod holds GPU 2, or instance 11 of GPU 0
	dir := filepath.Join(t.TempDir(), "jobs")
	r := simulate(t, "a100-mig", nil, "--hpc-job-mapping-dir="+dir)
	missing := func(p page) bool { return p.By("dcgm_exporter_attribution_success", "attributor")["hpc"] == 0 }
	p := r.sees("the missing folder", func(p page) bool {
		return p.Value("dcgm_exporter_collect_success") == 1 && missing(p)
	})
	if n := len(p["DCGM_FI_DEV_FB_USED"]); n == 0 || len(owned(p, job)) != 0 {
		t.Fatalf("without the job folder: memory series = %d, owners = %v; want series and no owners", n, owned(p, job))
	}
	samples := len(p["DCGM_FI_DEV_POWER_USAGE"])

	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	writes := func(device, jobs string) {
		replace(t, filepath.Join(dir, strings.ReplaceAll(device, "/", ".")), jobs)
	}
	writes(whole, "4711\r\n4711\n")
	writes(part, odd)
	r.untilOwned(m{whole: "4711", part: odd}, job)

	// if several jobs share a device, its own series are not repeated, and each job has an allocation series
	writes(whole, "4712\n4713\n")
	p = r.sees("two jobs", func(p page) bool {
		jobs := p.By("dcgm_pod_gpu_allocated_seconds_total", "gpu", job)
		_, a := jobs[whole+"/4712"]
		_, b := jobs[whole+"/4713"]
		return a && b && cmp.Equal(m{part: odd}, owned(p, job))
	})
	if n := len(p["DCGM_FI_DEV_POWER_USAGE"]); n != samples {
		t.Errorf("power series = %d with two jobs on a GPU, want %d as with one job", n, samples)
	}

	// the owners from a removed folder expire
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	r.untilOwned(m{}, job)
	r.sees("the folder gone", missing)
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	r.untilOwned(m{part: odd}, job)
	r.signal(syscall.SIGHUP)
	r.untilOwned(m{part: odd}, job)
	writes(part, "")
	r.untilOwned(m{}, job)
}

// TestSlurmScripts runs the scripts of the documentation as Slurm would.
func TestSlurmScripts(t *testing.T) {
	t.Parallel()
	type m = map[string]string
	text, err := os.ReadFile(root + "/docs/attribution.md")
	if err != nil {
		t.Fatal(err)
	}
	scripts := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllSubmatch(text, -1)
	if len(scripts) != 2 {
		t.Fatalf("found %d scripts, want a prolog and an epilog", len(scripts))
	}
	dir := filepath.Join(t.TempDir(), "jobs")
	run := func(script int, job, gpus string) {
		t.Helper()
		cmd := exec.Command("sh", "-c", string(scripts[script][1]))
		cmd.Env = append(os.Environ(), "GPU_JOBS_DIR="+dir, "SLURM_JOB_ID="+job, "SLURM_JOB_GPUS="+gpus)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	const prolog, epilog = 0, 1
	r := simulate(t, "h100x8", nil, "--hpc-job-mapping-dir="+dir)
	run(prolog, "71", "0,2")
	r.untilOwned(m{"0": "71", "2": "71"}, "hpc_job")
	run(prolog, "7", "0,1")
	r.untilOwned(m{"1": "7", "2": "71"}, "hpc_job")
	run(epilog, "7", "0,1")
	r.untilOwned(m{"0": "71", "2": "71"}, "hpc_job")
	run(epilog, "71", "0,2")
	r.untilOwned(m{}, "hpc_job")
}

// TestContainers checks that a container appears on the page as soon as the runtime answers. Labels outside the
// allowlist must not be served.
func TestContainers(t *testing.T) {
	t.Parallel()
	id := strings.Repeat("a", 64)
	const labels = `{"com.docker.compose.service":"train","secret":"x"}`
	const devices = `[{"Driver":"","Count":0,"DeviceIDs":["2"],"Capabilities":[["gpu"]]}]`
	answers := map[string]string{
		"/v1.47/containers/json": fmt.Sprintf(`[{"Id":%q,"Names":["/trainer"],"Labels":%s}]`, id, labels),
		"/v1.47/containers/" + id + "/json": `{"Config":{"Env":[]},"HostConfig":{"Runtime":"runc","DeviceRequests":` +
			devices + `}}`,
	}
	socket := filepath.Join(t.TempDir(), "docker.sock")
	r := simulate(t, "a100-mig", nil,
		"--container-labels", "--container-runtime-socket="+socket, "--container-label-allowlist-regex=compose")
	p := r.collected()
	if n := p.By("dcgm_exporter_attribution_success", "attributor")["containers"]; n != 0 {
		t.Errorf("attribution success without a container runtime = %v, want 0", n)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Api-Version", "1.47")
		fmt.Fprint(w, answers[r.URL.Path])
	}))
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)
	p = r.untilOwned(map[string]string{"2": "train"}, "com_docker_compose_service") // no pod holds GPU 2
	leaked := strings.Contains(r.last, "secret")
	if got := owned(p, "container")["2"]; got != "trainer" || leaked {
		t.Errorf("container = %q, label outside the allowlist: %t; want trainer and false", got, leaked)
	}
}
