package cli

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
)

func TestNode(t *testing.T) {
	t.Chdir(filepath.Join("..", "..", "docs"))
	code, out, errOut := call("", "node", "--root", "examples/node", "-o", "json")
	if code != exitFindings || errOut != "" {
		t.Fatalf("exit %d, standard error %q; want 1 and none", code, errOut)
	}
	var got struct {
		At       string
		Findings []struct{ ID, State, Subject string }
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	if first := got.Findings[0]; got.At == "" || first.ID != "first-broken-link" || !strings.HasSuffix(first.Subject, "99-nvidia.toml") {
		t.Errorf("first finding = %+v, time = %q; want first-broken-link for 99-nvidia.toml, and a time", first, got.At)
	}
	if code, _, _ := call("", "node", "--root", "examples/node", "--fail-on", "never"); code != exitClean {
		t.Errorf("--fail-on never: exit %d, want %d", code, exitClean)
	}
}

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

// FuzzPredict predicts with arbitrary configs. The exit code must be 1 if and only if a finding has the severity error.
func FuzzPredict(f *testing.F) {
	f.Add("version: v1\nsharing: {timeSlicing: {resources: [{name: gpu, replicas: 2}]}}", "infer")
	f.Add("kind: ConfigMap\ndata: {a: 'version: v1', b: '- x'}", "")
	f.Add("mig-configs: {a: [{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 7}}]}", "a")
	f.Fuzz(func(t *testing.T, file, config string) {
		for _, format := range []string{"text", "json"} {
			code, out, errOut := call(file, "node", "predict", "--gpu", "A100-40GB", "--gpus", "2", "-f", "-", "--config="+config, "-o", format)
			isError := strings.Contains(out, "error: ") || strings.Contains(out, `"severity": "error"`)
			if code == exitBadInput && (out != "" || errOut == "") || code != exitBadInput && isError != (code == exitFindings) {
				t.Fatalf("%s: exit %d, want 1 exactly if a finding is an error\n%s%s", format, code, out, errOut)
			}
		}
	})
}
