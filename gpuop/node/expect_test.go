package node

import (
	"errors"
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/mig"
)

func gpus(partitions ...mig.Request) []mig.GPU {
	var all []mig.GPU
	for _, p := range partitions {
		all = append(all, mig.GPU{Product: "NVIDIA-H100-80GB-HBM3", Enabled: p != nil, Instances: p})
	}
	return all
}

func labels(pairs ...string) *Node {
	n := &Node{Labels: map[string]string{mig.WholeGPU + ".product": "NVIDIA-H100-80GB-HBM3"}, Allocatable: map[string]string{}}
	for i := 0; i < len(pairs); i += 2 {
		n.Labels[pairs[i]] = pairs[i+1]
	}
	return n
}

// The expectations are those of the device plugin's and GPU Feature Discovery's documentation for
// one node each.
func TestExpect(t *testing.T) {
	whole := gpus(nil, nil)
	seven := gpus(mig.Request{"1g.10gb": 7}, mig.Request{"1g.10gb": 7})
	mixed := gpus(mig.Request{"1g.10gb": 7}, nil)
	const strategy, replicas, product = "nvidia.com/mig.strategy", "nvidia.com/gpu.replicas", "nvidia.com/gpu.product"
	for name, tc := range map[string]struct {
		node *Node
		gpus []mig.GPU
		want map[string]int
	}{
		"whole":                {labels(replicas, "1"), whole, map[string]int{"nvidia.com/gpu": 2}},
		"time-sliced":          {labels(replicas, "4", product, "NVIDIA-H100-80GB-HBM3-SHARED"), whole, map[string]int{"nvidia.com/gpu": 8}},
		"time-sliced, renamed": {labels(replicas, "4"), whole, map[string]int{"nvidia.com/gpu": 0, "nvidia.com/gpu.shared": 8}},
		"single":               {labels(strategy, "single"), seven, map[string]int{"nvidia.com/gpu": 14}},
		"single, not alike":    {labels(strategy, "single"), mixed, map[string]int{"nvidia.com/gpu": 0}},
		"mixed":                {labels(strategy, "mixed"), mixed, map[string]int{"nvidia.com/gpu": 1, "nvidia.com/mig-1g.10gb": 7}},
		"mixed, shared": {labels(strategy, "mixed", "nvidia.com/mig-1g.10gb.replicas", "2", "nvidia.com/mig-1g.10gb.product", "X-MIG-1g.10gb-SHARED"), mixed,
			map[string]int{"nvidia.com/gpu": 1, "nvidia.com/mig-1g.10gb": 14}},
		"no MIG, whatever the strategy": {labels(strategy, "odd"), whole, map[string]int{"nvidia.com/gpu": 2}},
	} {
		got, err := tc.node.Expect(tc.gpus)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for name, tc := range map[string]struct {
		node *Node
		gpus []mig.GPU
	}{
		"without GPU Feature Discovery": {&Node{}, whole},
		"without the strategy":          {labels(), seven},
		"MPS with MIG":                  {labels(strategy, "mixed", replicas, "4", "nvidia.com/gpu.sharing-strategy", "mps"), mixed},
		"a factor that is none":         {labels(replicas, "four"), whole},
	} {
		if got, err := tc.node.Expect(tc.gpus); !errors.Is(err, ErrNotSaid) {
			t.Errorf("%s: %v, %v, want ErrNotSaid", name, got, err)
		}
	}
}

// A factor of 1 is a device that is not shared.
func TestNotShared(t *testing.T) {
	r, err := labels("nvidia.com/gpu.replicas", "1", "nvidia.com/gpu.sharing-strategy", "none").Replication()
	if err != nil || len(r.Of) != 0 || r.Strategy != "" {
		t.Errorf("%+v, %v", r, err)
	}
}

// Labels that are predicted for a node say what was predicted from.
func TestReplicationIsWhatWasPredictedFrom(t *testing.T) {
	all := gpus(nil, nil, nil)
	for _, rename := range []string{"", "nvidia.com/gpu.shared"} {
		for _, strategy := range []string{"time-slicing", "mps"} {
			want := mig.Replication{Strategy: strategy, Of: map[string]mig.Replica{"nvidia.com/gpu": {Factor: 3, Rename: rename}}}
			p := mig.Predict(all, mig.StrategyNone, want)
			n := &Node{Labels: maps.Clone(p.Labels)}
			got, err := n.Replication()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s, %q (-want +got):\n%s", strategy, rename, diff)
			}
			expected, err := n.Expect(all)
			if diff := cmp.Diff(p.Resources, expected); diff != "" || err != nil {
				t.Errorf("%s, %q: %v (-want +got):\n%s", strategy, rename, err, diff)
			}
		}
	}
}

func TestAllocatableGPUs(t *testing.T) {
	n := &Node{Allocatable: map[string]string{
		"nvidia.com/gpu": "8", "nvidia.com/gpu.shared": "0", "nvidia.com/mig-1g.10gb": "7", "nvidia.com/hostdev": "4", "cpu": "64", "nvidia.com/mig-2g.20gb": "some",
	}}
	want := map[string]int{"nvidia.com/gpu": 8, "nvidia.com/gpu.shared": 0, "nvidia.com/mig-1g.10gb": 7}
	if diff := cmp.Diff(want, n.AllocatableGPUs()); diff != "" {
		t.Errorf("(-want +got):\n%s", fmt.Sprint(diff))
	}
}
