package integration

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// An exporter with --gpu-operator-metrics says what the node offers, what it should offer, which
// operands are ready, and the MIG config's state; without it there is no such series.
func TestOperatorMetrics(t *testing.T) {
	t.Parallel()
	var denied atomic.Bool
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if denied.Load() || r.URL.Path != "/api/v1/nodes/n" || r.Method != http.MethodGet {
			w.WriteHeader(http.StatusForbidden)
			json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403})
			return
		}
		json.NewEncoder(w).Encode(map[string]any{
			"apiVersion": "v1", "kind": "Node",
			"metadata": map[string]any{"name": "n", "labels": map[string]any{
				"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", "nvidia.com/mig.strategy": "single",
				"nvidia.com/mig.config": "all-1g.10gb", "nvidia.com/mig.config.state": "success",
			}},
			"status": map[string]any{"allocatable": map[string]any{"nvidia.com/gpu": "8"}},
		})
	}))
	t.Cleanup(func() {
		api.CloseClientConnections()
		api.Close()
	})
	dir := t.TempDir()
	for _, name := range []string{"driver-ready", "toolkit-ready"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	env := map[string]string{"NODE_NAME": "n", "KUBECONFIG": kubeconfigOf(t, api.URL), "DCGM_EXPORTER_GPU_OPERATOR_VALIDATIONS_DIR": dir}
	e := startIn(t, env, sim(t, "mig8x7", "", "--gpu-operator-metrics")...)
	p := e.until("what is expected", func(p page) bool { return len(p.series("gpu_operator_resource_expected")) > 0 })
	for family, want := range map[string]map[string]float64{
		"gpu_operator_resource_allocatable resource":    {"nvidia.com/gpu": 8},
		"gpu_operator_resource_expected resource":       {"nvidia.com/gpu": 56},
		"gpu_operator_operand_ready operand":            {"driver": 1, "toolkit": 1, "cuda": 0, "plugin": 0},
		"gpu_operator_mig_config_state config state":    {"all-1g.10gb/success": 1},
		"dcgm_exporter_kubernetes_api_success resource": {"node": 1},
	} {
		words := strings.Fields(family)
		if diff := cmp.Diff(want, p.series(words[0], words[1:]...)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", words[0], diff)
		}
	}

	off := startIn(t, env, sim(t, "mig8x7", "")...)
	for name := range off.until("a page", inUse).families {
		if strings.HasPrefix(name, "gpu_operator_") {
			t.Errorf("%s without --gpu-operator-metrics", name)
		}
	}

	denied.Store(true)
	refused := startIn(t, env, sim(t, "mig8x7", "", "--gpu-operator-metrics")...)
	p = refused.until("the refusal", func(p page) bool {
		got, known := p.series("dcgm_exporter_kubernetes_api_success", "resource")["node"]
		return known && got == 0 && inUse(p)
	})
	if n := len(p.series("gpu_operator_resource_allocatable")) + len(p.series("gpu_operator_resource_expected")); n != 0 || p.series("gpu_operator_operand_ready", "operand")["driver"] != 1 {
		t.Errorf("%d series of a node that may not be read:\n%s", n, p.text)
	}
}
