package node

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/mig"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
)

// TestSeedDump parses the output of kubectl describe node as a user pasted it, without indentation. It has the
// operator's labels, and no GPU in the capacity. Check must report an error for the missing GPU resource and a warning
// for the missing labels. GPUs must fail, because the labels do not describe any GPU.
func TestSeedDump(t *testing.T) {
	n, err := Parse([]byte(folder.Read(t, "testdata", "describe.txt")))
	if err != nil {
		t.Fatal(err)
	}
	if n.Name != "infracloud01" || len(n.Labels) != 11 {
		t.Errorf("name = %q with %d labels, want infracloud01 with 11", n.Name, len(n.Labels))
	}
	var got []string
	for _, f := range Check(n) {
		got = append(got, f.Severity.String()+" "+f.Check.ID)
	}
	if diff := cmp.Diff([]string{"error node-no-gpu-resource", "warning node-no-gpu-labels"}, got); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	if _, err := GPUs(n); !errors.Is(err, ErrNoGPUs) {
		t.Errorf("GPUs: error = %v, want ErrNoGPUs", err)
	}
}

func nodeObject(labels, capacity string) string {
	return fmt.Sprintf(`{"kind": "Node", "metadata": {"name": "gpu-1", "labels": {%s}}, "status": {"capacity": {"cpu": "8", %s}, "allocatable": {%s}}}`, labels, capacity, capacity)
}

// GPUs inverts mig.Predict: predicting from the GPUs inferred from a node reproduces its labels and resources.
func TestGPUsPredictTheNodeTheyCameFrom(t *testing.T) {
	board, err := mig.FindBoard("A100-40GB")
	if err != nil {
		t.Fatal(err)
	}
	mixed := board.GPU("")
	mixed.Enabled, mixed.Instances = true, mig.Request{"3g.20gb": 1, "1g.5gb+me": 1}
	single := board.GPU("")
	single.Enabled, single.Instances = true, mig.Request{"1g.5gb": 7}
	whole := board.GPU("")
	for name, tc := range map[string]struct {
		gpus     []mig.GPU
		strategy string
	}{
		"whole": {[]mig.GPU{whole, whole}, "single"}, "single": {[]mig.GPU{single}, "single"},
		"mixed": {[]mig.GPU{mixed, whole}, "mixed"},
	} {
		for _, factor := range []int{1, 4} {
			replication := mig.Replication{Strategy: "time-slicing", ByResource: map[string]mig.Replica{"nvidia.com/gpu": {Factor: factor}}}
			before := mig.Predict(tc.gpus, tc.strategy, replication)
			var labels, capacity []string
			for k, v := range before.Labels {
				labels = append(labels, fmt.Sprintf("%q: %q", k, v))
			}
			for k, v := range before.Resources {
				capacity = append(capacity, fmt.Sprintf(`%q: "%d"`, k, v))
			}
			n, err := Parse([]byte(nodeObject(strings.Join(labels, ","), strings.Join(capacity, ","))))
			if err != nil {
				t.Fatal(err)
			}
			gpus, err := GPUs(n)
			if err != nil {
				t.Fatal(err)
			}
			after := mig.Predict(gpus, tc.strategy, replication)
			if diff := cmp.Diff(before.Labels, after.Labels); diff != "" {
				t.Errorf("%s with %d replicas: labels (-node +predicted):\n%s", name, factor, diff)
			}
			if diff := cmp.Diff(before.Resources, after.Resources); diff != "" {
				t.Errorf("%s with %d replicas: resources (-node +predicted):\n%s", name, factor, diff)
			}
		}
	}
}

func TestCheck(t *testing.T) {
	present := `"nvidia.com/gpu.present": "true", "nvidia.com/gpu.product": "NVIDIA-A30", `
	for name, tc := range map[string]struct {
		node string
		want []string
	}{
		"healthy": {nodeObject(present+`"nvidia.com/mig.config.state": "success"`, `"nvidia.com/gpu": "1"`), nil},
		"pending": {nodeObject(present+`"nvidia.com/mig.config.state": "pending", "nvidia.com/gpu.deploy.dcgm-exporter": "paused-for-mig-change"`, `"nvidia.com/gpu": "1"`),
			[]string{"warning node-mig-state", "warning node-operand-paused"}},
		"failed":  {nodeObject(present+`"nvidia.com/mig.config.state": "failed"`, `"nvidia.com/gpu": "1"`), []string{"error node-mig-state"}},
		"invalid": {nodeObject(`"nvidia.com/gpu.product": "NVIDIA-A30-MIG-INVALID"`, `"nvidia.com/gpu": "0"`), []string{"error node-mig-state"}},
		"unhealthy": {`{"kind": "Node", "metadata": {"labels": {"a": "b"}}, "status": {"capacity": {"nvidia.com/gpu": "8"}, "allocatable": {"nvidia.com/gpu": "7"}}}`,
			[]string{"warning node-capacity-differs"}},
	} {
		n, err := Parse([]byte(tc.node))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range Check(n) {
			got = append(got, f.Severity.String()+" "+f.Check.ID)
		}
		slices.Sort(got)
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: findings (-want +got):\n%s", name, diff)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, text := range []string{"", "a: b", "- 1", `{"kind": "Pod"}`, `{"kind": "List", "items": []}`, "Name: x\n"} {
		if n, err := Parse([]byte(text)); !errors.Is(err, ErrNode) {
			t.Errorf("Parse(%q) = %+v, error = %v, want ErrNode", text, n, err)
		}
	}
	n, err := Parse([]byte(`{"kind": "List", "items": [` + nodeObject(`"a": "b"`, `"nvidia.com/gpu": "2"`) + `]}`))
	if err != nil || Resources(n.Status.Capacity)["nvidia.com/gpu"] != 2 {
		t.Errorf("list with one node: node = %+v, error = %v, want a node with 2 GPUs", n, err)
	}
	if n, err := Parse([]byte("metadata: {labels: {a: b}}\n")); err != nil || n.Labels["a"] != "b" {
		t.Errorf("partial Node: node = %+v, error = %v, want the label a=b", n, err)
	}
}

// FuzzParse expects that all errors wrap ErrNode or ErrNoGPUs. If the first GPU is not in MIG mode, the predicted
// gpu.count must be the number of GPUs.
func FuzzParse(f *testing.F) {
	f.Add([]byte(folder.Read(f, "testdata", "describe.txt")))
	f.Add([]byte(nodeObject(`"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb-SHARED", "nvidia.com/gpu.count": "7"`, `"nvidia.com/gpu": "14"`)))
	f.Add([]byte(nodeObject(`"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB", "nvidia.com/gpu.count": "2", "nvidia.com/mig-1g.5gb.count": "7"`, `"nvidia.com/gpu": "1"`)))
	f.Fuzz(func(t *testing.T, data []byte) {
		n, err := Parse(data)
		if err != nil {
			if !errors.Is(err, ErrNode) {
				t.Fatalf("Parse: error = %v, want ErrNode", err)
			}
			return
		}
		Check(n)
		gpus, err := GPUs(n)
		if err != nil {
			if !errors.Is(err, ErrNoGPUs) {
				t.Fatalf("GPUs: error = %v, want ErrNoGPUs", err)
			}
			return
		}
		p := mig.Predict(gpus, mig.StrategyMixed, mig.Replication{})
		if got := p.Labels["nvidia.com/gpu.count"]; len(gpus) > 0 && !gpus[0].Enabled && got != fmt.Sprint(len(gpus)) {
			t.Fatalf("predicted gpu.count = %q, want %d", got, len(gpus))
		}
	})
}
