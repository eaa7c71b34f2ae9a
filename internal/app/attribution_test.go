package app_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/apiserver"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/exporter"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/kubelet"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/wait"
)

func parse(t *testing.T, env map[string]string, args ...string) *config.Config {
	t.Helper()
	cfg, err := config.Parse(args, func(name string) (string, bool) { v, ok := env[name]; return v, ok }, os.ReadFile)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func labels(o *gpu.Owners, row int) string {
	var words []string
	for _, l := range o.Of(row) {
		words = append(words, l.Name+"="+l.Value)
	}
	return strings.Join(words, " ")
}

// Pods have no labels and UIDs if there is no node name or no cluster.
func TestPodsWithoutCluster(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	k := kubelet.Start(t, kubelet.Lists(kubelet.Pod("ml/a", kubelet.Container("c", "nvidia.com/gpu", "GPU-1"))))
	topology := gpu.NewTopology([]gpu.Device{{Entity: gpu.Entity{Kind: gpu.KindGPU}, UUID: "GPU-1"}})
	for _, env := range []map[string]string{nil, {"NODE_NAME": "n"}} {
		cfg := parse(t, env,
			"--kubernetes", "--kubernetes-enable-pod-labels", "--pod-resources-kubelet-socket", k.Socket())
		mapper := app.Pods(t.Context(), cfg)
		owners, err := mapper.Attribute(t.Context(), topology)
		if err != nil || labels(owners, 0) != "container=c namespace=ml pod=a" {
			t.Errorf("%v: labels = %q, error = %v; want those of container c and no error", env, labels(owners, 0), err)
		}
		mapper.Close()
	}
}

// withConfigMap returns the kubeconfig of an API server with the ConfigMap monitoring/counters. While it is away, it
// answers no request.
func withConfigMap(t *testing.T, away *atomic.Bool) string {
	t.Helper()
	server := &apiserver.Server{Before: func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case away.Load():
			panic(http.ErrAbortHandler)
		case r.URL.Path != "/api/v1/namespaces/monitoring/configmaps/counters":
			apiserver.Status(w, http.StatusNotFound, "NotFound", "no such ConfigMap")
			return true
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "counters"}, `+
			`"data": {"metrics": "DCGM_FI_DEV_GPU_TEMP, gauge, x\nDCGM_FI_NONE, gauge, x"}}`)
		return true
	}}
	return server.Start(t).Kubeconfig(t)
}

func TestCountersOfAConfigMap(t *testing.T) {
	env := map[string]string{"KUBECONFIG": withConfigMap(t, new(atomic.Bool))}
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
	s := &apiserver.Server{Before: func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/api/v1/pods" {
			requests <- struct{}{}
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	}}
	k := kubelet.Start(t, kubelet.Lists())
	cfg := parse(t, map[string]string{"NODE_NAME": "n", "KUBECONFIG": s.Start(t).Kubeconfig(t)},
		"--kubernetes", "--kubernetes-enable-pod-labels", "--collect-interval=1000",
		"--pod-resources-kubelet-socket", k.Socket())
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
	kubeconfig := withConfigMap(t, &away)
	e := exporter.Start(t, time.Minute, app.Process{
		Args: []string{"--source=sim", "--sim-node=single", "-m", "monitoring:counters", "-c", "100"},
		Env:  func(name string) (string, bool) { return kubeconfig, name == "KUBECONFIG" },
	})
	const power = "DCGM_FI_DEV_POWER_USAGE{"
	url := "http://" + e.Address + "/metrics"
	prom.Await(t, time.Minute, url, power)
	away.Store(false)
	err := wait.Until(time.Minute, func() error {
		page, err := prom.Scrape(url)
		if err != nil || !strings.Contains(page, "DCGM_FI_DEV_GPU_TEMP{") || strings.Contains(page, power) {
			return fmt.Errorf("want only the counters of the ConfigMap (%w):\n%s", err, page)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	e.Cancel()
	if err := <-e.Result; err != nil {
		t.Errorf("Run = %v, want nil", err)
	}
}
