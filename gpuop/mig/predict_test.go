package mig

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/material"
)

// node returns a GPU of the board for each element of instances. "" disables MIG, and "-" enables MIG without
// instances.
func node(t *testing.T, name string, instances ...string) []GPU {
	t.Helper()
	b := board(t, name)
	var gpus []GPU
	for _, words := range instances {
		g := b.GPU("")
		switch words {
		case "":
		case "-":
			g.Enabled = true
		default:
			g.Enabled, g.Instances = true, request(t, words)
		}
		gpus = append(gpus, g)
	}
	return gpus
}

func lines(p Prediction) []string {
	var out []string
	for name, n := range p.Resources {
		out = append(out, fmt.Sprintf("%s: %d", strings.TrimPrefix(name, "nvidia.com/"), n))
	}
	for name, v := range p.Labels {
		for _, end := range []string{".product", ".count", ".replicas", ".sharing-strategy", "mig.strategy", "mps.capable", ".multiprocessors", ".slices.gi"} {
			if strings.HasSuffix(name, end) {
				out = append(out, strings.TrimPrefix(name, "nvidia.com/")+"="+v)
			}
		}
	}
	for _, f := range p.Findings {
		out = append(out, f.Severity.String()+" "+f.Check.ID)
	}
	slices.Sort(out)
	return out
}

func TestPredict(t *testing.T) {
	shared := func(strategy, resource string, factor int, rename string) Replication {
		return Replication{Strategy: strategy, ByResource: map[string]Replica{resource: {Factor: factor, Rename: rename}}}
	}
	for _, tc := range []struct {
		name        string
		gpus        []GPU
		strategy    string
		replication Replication
		want        []string
	}{
		{"eight GPUs with five replicas", node(t, "A100-80GB", slices.Repeat([]string{""}, 8)...), "none", shared("time-slicing", WholeGPU, 5, ""), []string{
			"gpu.count=8", "gpu.product=NVIDIA-A100-SXM4-80GB-SHARED", "gpu.replicas=5", "gpu.sharing-strategy=time-slicing", "gpu: 40", "mps.capable=false",
		}},
		{"eight GPUs with five renamed replicas", node(t, "A100-80GB", slices.Repeat([]string{""}, 8)...), "single", shared("time-slicing", WholeGPU, 5, WholeGPU+".shared"), []string{
			"gpu.count=8", "gpu.product=NVIDIA-A100-SXM4-80GB", "gpu.replicas=5", "gpu.shared: 40", "gpu.sharing-strategy=time-slicing", "gpu: 0", "mig.strategy=single", "mps.capable=false",
		}},
		{"mps", node(t, "H100-80GB", "", ""), "none", shared("mps", WholeGPU, 4, ""), []string{
			"gpu.count=2", "gpu.product=NVIDIA-H100-80GB-HBM3-SHARED", "gpu.replicas=4", "gpu.sharing-strategy=mps", "gpu: 8", "mps.capable=true",
		}},
		{"single", node(t, "A100-40GB", "1g.5gb=7", "1g.5gb=7"), "single", Replication{}, []string{
			"gpu.count=14", "gpu.multiprocessors=14", "gpu.product=NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "gpu.replicas=1", "gpu.sharing-strategy=none",
			"gpu.slices.gi=1", "gpu: 14", "mig.strategy=single", "mps.capable=false",
		}},
		{"single and shared", node(t, "A100-40GB", "1g.5gb=7"), "single", shared("time-slicing", WholeGPU, 2, ""), []string{
			"gpu.count=7", "gpu.multiprocessors=14", "gpu.product=NVIDIA-A100-SXM4-40GB-MIG-1g.5gb-SHARED", "gpu.replicas=2", "gpu.sharing-strategy=time-slicing",
			"gpu.slices.gi=1", "gpu: 14", "mig.strategy=single", "mps.capable=false",
		}},
		{"single, two kinds", node(t, "A100-40GB", "3g.20gb 2g.10gb 1g.5gb=2"), "single", Replication{}, []string{
			"error mig-single-invalid", "gpu.count=0", "gpu.product=NVIDIA-A100-SXM4-40GB-MIG-INVALID", "gpu.replicas=0", "gpu.sharing-strategy=", "mig.strategy=single", "mps.capable=false",
		}},
		{"single, one GPU left whole", node(t, "A100-40GB", "1g.5gb=7", ""), "single", Replication{}, []string{
			"error mig-single-invalid", "gpu.count=0", "gpu.product=NVIDIA-A100-SXM4-40GB-MIG-INVALID", "gpu.replicas=0", "gpu.sharing-strategy=", "mig.strategy=single", "mps.capable=false",
		}},
		{"single, one GPU empty", node(t, "A100-40GB", "1g.5gb=7", "-"), "single", Replication{}, []string{
			"error mig-single-invalid", "gpu.count=0", "gpu.product=NVIDIA-A100-SXM4-40GB-MIG-INVALID", "gpu.replicas=0", "gpu.sharing-strategy=", "mig.strategy=single", "mps.capable=false",
		}},
		{"mixed", node(t, "A100-40GB", "3g.20gb 2g.10gb 1g.5gb=2", ""), "mixed", Replication{}, []string{
			"gpu.count=2", "gpu.product=NVIDIA-A100-SXM4-40GB", "gpu.replicas=1", "gpu.sharing-strategy=none", "gpu: 1",
			"mig-1g.5gb.count=2", "mig-1g.5gb.multiprocessors=14", "mig-1g.5gb.product=NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "mig-1g.5gb.replicas=1", "mig-1g.5gb.sharing-strategy=none", "mig-1g.5gb.slices.gi=1", "mig-1g.5gb: 2",
			"mig-2g.10gb.count=1", "mig-2g.10gb.multiprocessors=28", "mig-2g.10gb.product=NVIDIA-A100-SXM4-40GB-MIG-2g.10gb", "mig-2g.10gb.replicas=1", "mig-2g.10gb.sharing-strategy=none", "mig-2g.10gb.slices.gi=2", "mig-2g.10gb: 1",
			"mig-3g.20gb.count=1", "mig-3g.20gb.multiprocessors=42", "mig-3g.20gb.product=NVIDIA-A100-SXM4-40GB-MIG-3g.20gb", "mig-3g.20gb.replicas=1", "mig-3g.20gb.sharing-strategy=none", "mig-3g.20gb.slices.gi=3", "mig-3g.20gb: 1",
			"mig.strategy=mixed", "mps.capable=false", "note mig-beside-whole",
		}},
		{"mixed, all in MIG mode: replicas of the parent are 0", node(t, "B200", "1g.23gb+me", "-"), "mixed", Replication{}, []string{
			"gpu.count=2", "gpu.product=NVIDIA-B200", "gpu.replicas=0", "gpu.sharing-strategy=none",
			"mig-1g.23gb.me.count=1", "mig-1g.23gb.me.multiprocessors=18", "mig-1g.23gb.me.product=NVIDIA-B200-MIG-1g.23gb.me", "mig-1g.23gb.me.replicas=1", "mig-1g.23gb.me.sharing-strategy=none", "mig-1g.23gb.me.slices.gi=1", "mig-1g.23gb.me: 1",
			"mig.strategy=mixed", "mps.capable=false", "warning mig-enabled-empty", "warning mig-variant-resource",
		}},
		{"strategy none with MIG and MPS", node(t, "A30", "1g.6gb=4"), "none", shared("mps", WholeGPU, 2, ""), []string{
			"error mps-with-mig", "gpu.count=1", "gpu.product=NVIDIA-A30", "gpu.replicas=0", "gpu.sharing-strategy=none", "gpu: 2", "mps.capable=false", "warning mig-hidden",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, lines(Predict(tc.gpus, tc.strategy, tc.replication))); diff != "" {
				t.Errorf("prediction (-want +got):\n%s", diff)
			}
		})
	}
	mixedModels := append(node(t, "A100-40GB", ""), node(t, "H100-80GB", "")...)
	if p := Predict(mixedModels, "none", Replication{}); len(p.Findings) != 1 || p.Findings[0].Check.ID != "mixed-gpu-models" {
		t.Errorf("two GPU models on a node: findings = %v, want only mixed-gpu-models", p.Findings)
	}
}

// fromDriver matches the labels that the test does not compare. Their values depend on the driver or the machine.
var fromDriver = regexp.MustCompile(`nvidia\.com/(cuda\.|gfd\.timestamp|gpu\.(machine|mode)$)|\.(memory|engines\.[a-z]+|multiprocessors)$`)

// Except for those that match fromDriver, every label in GPU Feature Discovery's own tests is predicted, with a value of
// the expected form.
func TestPredictionHasUpstreamsLabels(t *testing.T) {
	for file, gpus := range map[string][]GPU{
		"expected-output.txt":            node(t, "A100-40GB", ""),
		"expected-output-mig-none.txt":   node(t, "A100-40GB", ""),
		"expected-output-mig-single.txt": node(t, "A100-40GB", "1g.5gb=7"),
		"expected-output-mig-mixed.txt":  node(t, "A100-40GB", "1g.5gb=7"),
	} {
		t.Run(file, func(t *testing.T) {
			data := material.Read(t, "data/upstream/k8s-device-plugin/"+file)
			strategy := StrategyNone
			if found := regexp.MustCompile(StrategySingle + "|" + StrategyMixed).FindString(file); found != "" {
				strategy = found
			}
			p := Predict(gpus, strategy, Replication{})
			for _, pattern := range strings.Fields(string(data)) {
				keys, _, _ := strings.Cut(pattern, "=")
				key := regexp.MustCompile("^" + keys + "$")
				whole := regexp.MustCompile("^" + pattern)
				if fromDriver.MatchString(strings.ReplaceAll(keys, `\`, "")) {
					continue
				}
				found := false
				for name, value := range p.Labels {
					if !key.MatchString(name) {
						continue
					}
					found = true
					if !whole.MatchString(name + "=" + value) {
						t.Errorf("%s=%s does not have the form %s", name, value, pattern)
					}
				}
				if !found {
					t.Errorf("no predicted label matches %s", pattern)
				}
			}
		})
	}
}

// Apply sets the instances of each GPU, and reports entries that do not fit, GPUs that do not exist and GPUs that no
// entry covers. An entry has no effect if its device-filter matches no GPU.
func TestApply(t *testing.T) {
	c, findings := ParseConfig([]byte(`version: v1
mig-configs:
  all-1g.10gb:
    - device-filter: ["0x20B210DE"]
      devices: all
      mig-enabled: true
      mig-devices: {1g.10gb: 7}
    - device-filter: ["0x20B010DE"]
      devices: all
      mig-enabled: true
      mig-devices: {1g.10gb: 4}
  some:
    - devices: [1, 4]
      mig-enabled: true
      mig-devices: {1g.10gb: 7, 2g.20gb: 0}
`))
	if slices.ContainsFunc(findings, func(f check.Finding) bool { return f.Severity == check.Error }) {
		t.Fatalf("findings = %v, want no error", findings)
	}
	for _, tc := range []struct {
		config, board string
		want          []string
	}{
		{"all-1g.10gb", "A100-80GB", []string{"1g.10gb=7", "1g.10gb=7"}},
		{"all-1g.10gb", "A100-40GB", []string{"1g.10gb=4", "1g.10gb=4"}},
		{"all-1g.10gb", "H200", []string{"", "", "3 no entry", "3 no entry"}},
		{"some", "A100-80GB", []string{"", "1g.10gb=7", "12 no entry", "13 the entry lists GPU 4 of only 2"}},
		{"some", "A100-40GB", []string{"", "", "12 no entry", "13 GPU 1: 1g.10gb=7 does not fit", "13 the entry lists GPU 4"}},
	} {
		named, ok := c.Config(tc.config)
		if !ok {
			t.Fatalf("no config %s", tc.config)
		}
		gpus, findings := named.Apply(node(t, tc.board, "", ""))
		var got []string
		for _, g := range gpus {
			got = append(got, g.Instances.String())
		}
		for _, f := range findings {
			got = append(got, fmt.Sprintf("%d %s", f.Line, f.Reason))
		}
		slices.Sort(got[len(gpus):])
		if len(got) != len(tc.want) {
			t.Errorf("%s on %s: instances and findings = %q, want %q", tc.config, tc.board, got, tc.want)
			continue
		}
		for i := range got {
			if !strings.HasPrefix(got[i], tc.want[i]) {
				t.Errorf("%s on %s: instances or finding = %q, want the prefix %q", tc.config, tc.board, got[i], tc.want[i])
			}
		}
	}
}
