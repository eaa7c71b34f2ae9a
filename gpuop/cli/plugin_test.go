package cli

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
)

// If a resource is listed twice, node predict uses the larger number of replicas, like the device plugin. The MIG
// strategy comes from the node's label unless --strategy is set.
func TestPredictMatchesTheDevicePlugin(t *testing.T) {
	dir := folder.Of(t, map[string]string{
		"any.yaml": "version: v1\nsharing:\n  timeSlicing:\n    resources:\n      - {name: nvidia.com/gpu, replicas: 2}\n      - {name: nvidia.com/gpu, replicas: 7}\n",
		"node.json": `{"kind": "Node", "metadata": {"name": "n", "labels": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB", "nvidia.com/gpu.count": "1", "nvidia.com/gpu.memory": "40960",
			"nvidia.com/mig.strategy": "mixed", "nvidia.com/mig.capable": "true"}}, "status": {"capacity": {"nvidia.com/gpu": "1"}, "allocatable": {"nvidia.com/gpu": "1"}}}`,
	})
	config, node := filepath.Join(dir, "any.yaml"), filepath.Join(dir, "node.json")
	predict := func(args ...string) (resources map[string]change, labels map[string]string) {
		_, out, errOut := call("", append([]string{"node", "predict", "-f", config, "--config", "any", "-o", "json"}, args...)...)
		var got struct{ Result prediction }
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatalf("%v: %s%s", err, out, errOut)
		}
		return got.Result.Resources, got.Result.Labels
	}
	resources, labels := predict("--gpu", "T4")
	if resources["nvidia.com/gpu"].After != 7 || labels["nvidia.com/gpu.replicas"] != "7" {
		t.Errorf("resources = %v, label of the replicas = %s; want 7 GPUs and 7", resources, labels["nvidia.com/gpu.replicas"])
	}
	if _, labels = predict("--node", node); labels["nvidia.com/mig.strategy"] != "mixed" {
		t.Errorf("mig.strategy = %q, want mixed as on the node", labels["nvidia.com/mig.strategy"])
	}
	if _, labels = predict("--node", node, "--strategy", "single"); labels["nvidia.com/mig.strategy"] != "single" {
		t.Errorf("mig.strategy = %q, want single as set by --strategy", labels["nvidia.com/mig.strategy"])
	}
}

func TestVGPUNeedsADriverVersion(t *testing.T) {
	if code, _, errOut := call("", "values", "gen", "generic", "vgpu", "--registry", "registry.example.com/vgpu"); code != 2 || !strings.Contains(errOut, "vgpu=version") {
		t.Errorf("vgpu without a version: exit %d, standard error %q; want 2 and vgpu=version", code, errOut)
	}
	code, out, errOut := call("", "values", "gen", "generic", "vgpu=580.105.08", "--registry", "registry.example.com/vgpu", "--pull-secret", "key")
	if code != 0 || !strings.Contains(out, "version: 580.105.08") {
		t.Errorf("vgpu=580.105.08: exit %d, want 0 and this driver version\n%s%s", code, out, errOut)
	}
	if strings.Contains(out, "devicePlugin:") || !strings.Contains(out, "imagePullSecrets") {
		t.Errorf("values set devicePlugin or lack imagePullSecrets, want only the driver from the private registry:\n%s", out)
	}
}

func TestHelmHeadersAreIgnored(t *testing.T) {
	for _, text := range []string{"USER-SUPPLIED VALUES:\nmig: {strategy: mixed}\n", "COMPUTED VALUES:\ndriver: {enabled: yes}\n"} {
		if code, out, _ := call(text, "lint", "-"); code != 0 || !strings.Contains(out, "no findings") {
			t.Errorf("lint of %q: exit %d, want 0 and no findings\n%s", text, code, out)
		}
	}
}
