package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/kubelet"
)

// uuids returns the UUIDs of a simulated node's GPUs by the gpu label.
func uuids(t *testing.T, node string) map[string]string {
	t.Helper()
	e := start(t, sim(t, node, "")...)
	out := map[string]string{}
	for _, m := range e.collected().families["DCGM_FI_DEV_GPU_TEMP"].Metric {
		label := map[string]string{}
		for _, l := range m.Label {
			label[l.GetName()] = l.GetValue()
		}
		out[label["gpu"]] = label["UUID"]
	}
	if err := e.stop(); err != nil {
		t.Fatal(err)
	}
	return out
}

// owners returns the pods on the temperatures of a page, by GPU.
func owners(p page) map[string]bool {
	out := map[string]bool{}
	for key := range p.series("DCGM_FI_DEV_GPU_TEMP", "gpu", "namespace", "pod", "container") {
		if key[len(key)-3:] != "///" {
			out[key] = true
		}
	}
	return out
}

func TestPodsOfTheKubeletOnThePage(t *testing.T) {
	t.Parallel()
	id := uuids(t, "h100x8")
	k := kubelet.Start(t, kubelet.Lists(
		kubelet.Pod("ml/train-0", kubelet.Container("main", "nvidia.com/gpu", id["0"], id["1"])),
		kubelet.Pod("web/train-0", kubelet.Container("main", "nvidia.com/gpu.shared", id["2"]+"::0", id["3"]+"::0")),
		kubelet.Pod("web/train-1", kubelet.Container("main", "nvidia.com/gpu.shared", id["2"]+"::1")),
		kubelet.Pod("web/idle"),
	))
	e := start(t, sim(t, "h100x8", "", "--kubernetes", "--pod-resources-kubelet-socket", k.Socket())...)
	p := e.collected()
	want := map[string]bool{"0/ml/train-0/main": true, "1/ml/train-0/main": true, "3/web/train-0/main": true}
	if d := cmp.Diff(want, owners(p)); d != "" {
		t.Errorf("owners (-want +got):\n%s", d)
	}
	if n := len(p.series("DCGM_FI_DEV_GPU_TEMP", "gpu")); n != 8 {
		t.Errorf("device truth once: %d temperatures of 8 GPUs", n)
	}
	before := k.Lists()
	for range 50 {
		e.scrape()
	}
	cycles := e.until("a few cycles", func(page) bool { return k.Lists() > before+1 }).value("dcgm_exporter_collect_success")
	if cycles != 1 {
		t.Error("no data while the kubelet answers")
	}

	// A pod goes, another gets its GPU: the old one is on no page any more.
	k.Script(kubelet.Lists(kubelet.Pod("ml/train-1", kubelet.Container("main", "nvidia.com/gpu", id["0"]))))
	e.until("the next pod alone", func(p page) bool {
		return cmp.Equal(owners(p), map[string]bool{"0/ml/train-1/main": true})
	})
	if err := e.stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestKubeletThatFailsTakesLabelsOnly(t *testing.T) {
	t.Parallel()
	id := uuids(t, "single")
	pod := kubelet.Lists(kubelet.Pod("ml/a", kubelet.Container("c", "nvidia.com/gpu", id["0"])))
	for _, tt := range []struct {
		name, reason string
		fault        kubelet.Reply
	}{
		{"refuses", "unavailable", kubelet.Refuses(codes.Unavailable)},
		{"hangs", "timeout", kubelet.Hangs()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			k := kubelet.Start(t, pod)
			e := start(t, sim(t, "single", "", "--kubernetes", "--pod-resources-kubelet-socket", k.Socket())...)
			e.until("the pod", func(p page) bool { return owners(p)["0/ml/a/c"] })
			k.Script(tt.fault)
			p := e.until("no pod, but data", func(p page) bool {
				return len(owners(p)) == 0 && len(p.series("DCGM_FI_DEV_GPU_TEMP", "gpu")) == 1
			})
			if got := p.series("dcgm_exporter_attribution_success", "attributor"); got["kubernetes"] != 0 {
				t.Errorf("attribution_success: %v", got)
			}
			if got := p.series("dcgm_exporter_collect_failures_total", "stage", "reason"); got["attribute/"+tt.reason] == 0 {
				t.Errorf("failures: %v", got)
			}
			k.Script(pod)
			e.until("the pod again", func(p page) bool { return owners(p)["0/ml/a/c"] })
		})
	}
}

// The labels and UIDs of pods are on the first page with data, although the API server takes a
// moment to list the pods.
func TestPodLabelsAreOnTheFirstPage(t *testing.T) {
	t.Parallel()
	id := uuids(t, "h100x8")
	k := kubelet.Start(t, kubelet.Lists(kubelet.Pod("ml/train", kubelet.Container("main", "nvidia.com/gpu", id["0"]))))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path != "/api/v1/pods" || r.URL.Query().Get("watch") != "" {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		slow := time.NewTimer(300 * time.Millisecond)
		defer slow.Stop()
		select {
		case <-slow.C:
		case <-r.Context().Done():
			return
		}
		json.NewEncoder(w).Encode(map[string]any{"kind": "PodList", "apiVersion": "v1", "metadata": map[string]any{"resourceVersion": "1"},
			"items": []any{map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{
				"namespace": "ml", "name": "train", "uid": "u-1", "labels": map[string]any{"team": "vision"},
			}}}})
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	e := startIn(t, map[string]string{"NODE_NAME": "n", "KUBECONFIG": kubeconfigOf(t, server.URL)}, sim(t, "h100x8", "", "--kubernetes", "--kubernetes-enable-pod-labels", "--kubernetes-enable-pod-uid",
		"--pod-resources-kubelet-socket", k.Socket())...)
	p := e.collected()
	if got := p.series("DCGM_FI_DEV_GPU_TEMP", "gpu", "pod", "team", "pod_uid"); got["0/train/vision/u-1"] == 0 {
		t.Errorf("the first page: %v", got)
	}
}

// kubeconfigOf writes a kubeconfig for an API server and returns its path.
func kubeconfigOf(t *testing.T, url string) string {
	t.Helper()
	return write(t, "config", fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
"contexts": [{"name": "c", "context": {"cluster": "c"}}], "clusters": [{"name": "c", "cluster": {"server": %q}}]}`, url))
}
