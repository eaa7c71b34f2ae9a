package app_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/apiserver"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/kubelet"
)

// cluster serves objects by path and returns a kubeconfig for it.
func cluster(t *testing.T, objects map[string]any) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") != "" {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		object, ok := objects[r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			object = map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
		}
		json.NewEncoder(w).Encode(object)
	}))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return apiserver.Kubeconfig(t, s.URL)
}

func list(items ...any) any {
	return map[string]any{"kind": "List", "apiVersion": "v1", "metadata": map[string]any{"resourceVersion": "1"}, "items": items}
}

func parse(t *testing.T, env map[string]string, args ...string) *config.Config {
	t.Helper()
	cfg, err := config.Parse(args, func(name string) (string, bool) { v, ok := env[name]; return v, ok }, os.ReadFile)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestPodDetailsFromAPIServer(t *testing.T) {
	const uuid = "GPU-00000000-0000-4000-8000-000000000000"
	topology := gpu.NewTopology([]gpu.Device{
		{Entity: gpu.Entity{Kind: gpu.KindGPU}, UUID: uuid},
		{Entity: gpu.Entity{Kind: gpu.KindGPU, ID: 1}, GPU: 1, Minor: 1, UUID: "GPU-1"},
	})
	kubeconfig := cluster(t, map[string]any{
		"/api/v1/pods": list(map[string]any{
			"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{
				"namespace": "ml", "name": "a", "uid": "u-1", "labels": map[string]any{"team": "vision", "tier": "gold"},
			},
		}),
		"/apis/resource.k8s.io": map[string]any{"kind": "APIGroup", "apiVersion": "v1", "name": "resource.k8s.io",
			"versions": []any{map[string]any{"groupVersion": "resource.k8s.io/v1", "version": "v1"}}},
		"/apis/resource.k8s.io/v1/resourceslices": list(map[string]any{
			"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": map[string]any{"name": "s"},
			"spec": map[string]any{"driver": "gpu.nvidia.com", "pool": map[string]any{"name": "n"}, "devices": []any{
				map[string]any{
					"name": "gpu-1", "attributes": map[string]any{"uuid": map[string]any{"string": "GPU-1"}},
					"capacity": map[string]any{"memory": map[string]any{"value": "80Gi"}}, "allowMultipleAllocations": true,
				},
			}},
		}),
		"/apis/resource.k8s.io/v1/namespaces/ml/resourceclaims/claim": map[string]any{
			"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": map[string]any{"namespace": "ml", "name": "claim"},
			"status": map[string]any{"allocation": map[string]any{"devices": map[string]any{"results": []any{map[string]any{
				"driver": "gpu.nvidia.com", "pool": "n", "device": "gpu-1", "shareID": "s", "consumedCapacity": map[string]any{"memory": "20Gi"},
			}}}}},
		},
		"/api/v1/nodes/n": map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": "n"}},
	})
	k := kubelet.Start(t, kubelet.Lists(kubelet.Pod("ml/a",
		kubelet.Container("c", "nvidia.com/gpu", uuid), kubelet.Claiming("d", "ml", "claim", "gpu.nvidia.com", "n", "gpu-1", "s"))))
	cfg := parse(t, map[string]string{"NODE_NAME": "n", "KUBECONFIG": kubeconfig},
		"--kubernetes", "--kubernetes-enable-pod-labels", "--kubernetes-enable-pod-uid", "--kubernetes-enable-dra",
		"--kubernetes-pod-label-allowlist-regex=^team$", "--pod-resources-kubelet-socket", k.Socket())
	mapper := app.Pods(t.Context(), cfg)
	defer mapper.Close()
	wants := []string{
		"container=c namespace=ml pod=a pod_uid=u-1 team=vision",
		"container=d dra_claim_name=claim dra_claim_namespace=ml dra_device_name=gpu-1 dra_driver_name=gpu.nvidia.com dra_pool_name=n namespace=ml pod=a pod_uid=u-1 team=vision",
	}
	deadline, tick := time.After(time.Minute), time.NewTicker(10*time.Millisecond)
	defer tick.Stop()
	for {
		owners, err := mapper.Attribute(t.Context(), topology)
		if err != nil {
			t.Fatal(err)
		}
		got := []string{labels(owners, 0), labels(owners, 1)}
		part := 0.0 // fraction of the GPU that the claim shares
		for _, o := range owners.UseOf(1).Owners {
			part = o.Part
		}
		if got[0] == wants[0] && got[1] == wants[1] && part == 0.25 {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("share = %v with labels:\n%s\nwant 0.25 with labels:\n%s", part, strings.Join(got, "\n"), strings.Join(wants, "\n"))
		}
	}
}

func labels(o *gpu.Owners, row int) string {
	var words []string
	for _, l := range o.Of(row) {
		words = append(words, l.Name+"="+l.Value)
	}
	return strings.Join(words, " ")
}

// Without a node name or a cluster, pods have no labels and UIDs.
func TestPodsWithoutCluster(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	k := kubelet.Start(t, kubelet.Lists(kubelet.Pod("ml/a", kubelet.Container("c", "nvidia.com/gpu", "GPU-1"))))
	topology := gpu.NewTopology([]gpu.Device{{Entity: gpu.Entity{Kind: gpu.KindGPU}, UUID: "GPU-1"}})
	for _, env := range []map[string]string{nil, {"NODE_NAME": "n"}} {
		mapper := app.Pods(t.Context(), parse(t, env, "--kubernetes", "--kubernetes-enable-pod-labels", "--pod-resources-kubelet-socket", k.Socket()))
		owners, err := mapper.Attribute(t.Context(), topology)
		if err != nil || labels(owners, 0) != "container=c namespace=ml pod=a" {
			t.Errorf("%v: labels = %q, error = %v; want the labels of container c and no error", env, labels(owners, 0), err)
		}
		mapper.Close()
	}
}

func TestCountersOfAConfigMap(t *testing.T) {
	kubeconfig := cluster(t, map[string]any{
		"/api/v1/namespaces/monitoring/configmaps/counters": map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "counters"},
			"data": map[string]any{"metrics": "DCGM_FI_DEV_GPU_TEMP, gauge, x\nDCGM_FI_NONE, gauge, x"},
		},
	})
	env := map[string]string{"KUBECONFIG": kubeconfig}
	set, err := app.LoadCounters(t.Context(), parse(t, env, "-m", "monitoring:counters"), os.ReadFile)
	if err != nil || len(set.Requests) != 1 || len(set.Problems) != 1 {
		t.Fatalf("counters = %+v, error = %v; want one request and one problem", set, err)
	}
	if p := set.Problems[0]; p.File != "ConfigMap monitoring:counters" || p.Line != 2 {
		t.Errorf("problem = %v, want one in line 2 of ConfigMap monitoring:counters", p)
	}
	_, err = app.LoadCounters(t.Context(), parse(t, env, "-m", "monitoring:others"), os.ReadFile)
	if err == nil || err.Error() != "ConfigMap monitoring/others not found" {
		t.Errorf("error = %v, want: ConfigMap monitoring/others not found", err)
	}
}

// The API server is asked again after an interval of one second at most, so that pods have their labels within three
// intervals after it is back. With the default interval, the seventh request comes after a minute.
func TestRetriesOfAPIServerFollowInterval(t *testing.T) {
	t.Parallel()
	requests := make(chan struct{}, 100)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/pods" {
			requests <- struct{}{}
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	t.Cleanup(s.Close)
	k := kubelet.Start(t, kubelet.Lists())
	cfg := parse(t, map[string]string{"NODE_NAME": "n", "KUBECONFIG": apiserver.Kubeconfig(t, s.URL)},
		"--kubernetes", "--kubernetes-enable-pod-labels", "--pod-resources-kubelet-socket", k.Socket(), "--collect-interval=1000")
	mapper := app.Pods(t.Context(), cfg)
	defer mapper.Close()
	deadline := time.After(50 * time.Second)
	for i := range 7 {
		select {
		case <-requests:
		case <-deadline:
			t.Fatalf("requests to the API server in 50 s = %d, want 7", i)
		}
	}
}

// If the API server is down at the start, only the counters of the ConfigMap are missing. The built-in counters are
// served until the ConfigMap can be read.
func TestStartWithoutAPIServer(t *testing.T) {
	var away atomic.Bool
	away.Store(true)
	content := `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "counters"}, "data": {"metrics": "DCGM_FI_DEV_GPU_TEMP, gauge, x"}}`
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if away.Load() {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, content)
	}))
	t.Cleanup(s.Close)
	kubeconfig := apiserver.Kubeconfig(t, s.URL)
	addresses := make(chan net.Addr, 1)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- app.Run(ctx, app.Process{
			Args: []string{"--source=sim", "--sim-node=single", "-m", "monitoring:counters", "-a", "127.0.0.1:0", "-c", "100"},
			Env: func(name string) (string, bool) {
				if name == "KUBECONFIG" {
					return kubeconfig, true
				}
				return "", false
			},
			Err: io.Discard, Start: time.Now(), Listening: func(a net.Addr) { addresses <- a },
		})
	}()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
	}()
	var address net.Addr
	select {
	case address = <-addresses:
	case err := <-done:
		done <- err
		t.Fatalf("Run returned %v before it listened", err)
	}
	page := func(want, unwanted string) bool {
		res, err := http.Get("http://" + address.String() + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, _ := io.ReadAll(res.Body)
		return strings.Contains(string(body), want) && !strings.Contains(string(body), unwanted)
	}
	until := func(what string, holds func() bool) {
		t.Helper()
		deadline, tick := time.After(time.Minute), time.NewTicker(20*time.Millisecond)
		defer tick.Stop()
		for !holds() {
			select {
			case <-tick.C:
			case <-deadline:
				t.Fatalf("the page does not have %s after a minute", what)
			}
		}
	}
	until("only the built-in counters", func() bool { return page("DCGM_FI_DEV_POWER_USAGE{", "no such series") })
	away.Store(false)
	until("only the counters of the ConfigMap", func() bool { return page("DCGM_FI_DEV_GPU_TEMP{", "DCGM_FI_DEV_POWER_USAGE{") })
}
