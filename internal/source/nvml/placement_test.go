//go:build linux && cgo

package nvml_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

func TestPlacement(t *testing.T) {
	const lower, upper = "0-31,64-95", "32-63,96-127"
	all := func(links int) []gpu.Pair { // three GPUs; the middle one is on the other socket
		return []gpu.Pair{
			{A: 0, B: 1, Path: gpu.PathSystem, NVLinks: links},
			{A: 0, B: 2, Path: gpu.PathNode, NVLinks: links},
			{A: 1, B: 2, Path: gpu.PathSystem, NVLinks: links},
		}
	}
	tests := []struct {
		name   string
		script []string
		pairs  []gpu.Pair
		places []gpu.Place
	}{
		{
			"switches between all GPUs", nil, all(18),
			[]gpu.Place{{NUMANode: 0, CPUs: lower}, {NUMANode: 1, CPUs: upper}, {NUMANode: 0, CPUs: lower}},
		},
		{
			"as many links as are active on both GPUs", []string{"gpu 1 set nvlink.3 down"},
			[]gpu.Pair{
				{A: 0, B: 1, Path: gpu.PathSystem, NVLinks: 17}, {A: 0, B: 2, Path: gpu.PathNode, NVLinks: 18},
				{A: 1, B: 2, Path: gpu.PathSystem, NVLinks: 17},
			}, nil,
		},
		{
			"a partition of the fabric", []string{"gpu 0 set p2p.2 5"},
			[]gpu.Pair{
				{A: 0, B: 1, Path: gpu.PathSystem, NVLinks: 18},
				{A: 0, B: 2, Path: gpu.PathNode},
				{A: 1, B: 2, Path: gpu.PathSystem, NVLinks: 18},
			}, nil,
		},
		{
			"a bridge with two links",
			[]string{
				"gpu 0 set nvlinks 4", "gpu 0 set nvlink.0 gpu 2", "gpu 0 set nvlink.1 gpu 2",
				"gpu 0 set nvlink.2 down", "gpu 0 set nvlink.3 -",
				"gpu 2 set nvlinks 2", "gpu 2 set nvlink.0 gpu 0", "gpu 2 set nvlink.1 gpu 0", "gpu 1 set nvlinks 0",
				"gpu 0 set path.2 20",
			},
			[]gpu.Pair{
				{A: 0, B: 1, Path: gpu.PathSystem},
				{A: 0, B: 2, Path: gpu.PathSwitches, NVLinks: 2},
				{A: 1, B: 2, Path: gpu.PathSystem},
			}, nil,
		},
		{
			"nothing known", []string{
				"fail nvmlDeviceGetTopologyCommonAncestor 3", "fail nvmlDeviceGetMemoryAffinity 3",
				"fail nvmlDeviceGetCpuAffinity 999", "fail nvmlDeviceGetNvLinkState 3",
			},
			[]gpu.Pair{{A: 0, B: 1}, {A: 0, B: 2}, {A: 1, B: 2}},
			[]gpu.Place{{NUMANode: -1}, {NUMANode: -1}, {NUMANode: -1}},
		},
		{
			"an unknown path, two NUMA nodes, no CPU affinity",
			[]string{"gpu 0 set path.1 60", "gpu 0 set memory-nodes 3", "gpu 0 set no-cpus 1", "gpu 1 set nvlinks 0"},
			[]gpu.Pair{{A: 0, B: 1}, {A: 0, B: 2, Path: gpu.PathNode, NVLinks: 18}, {A: 1, B: 2, Path: gpu.PathSystem}},
			[]gpu.Place{{NUMANode: -1}, {NUMANode: 1, CPUs: upper}, {NUMANode: 0, CPUs: lower}},
		},
		{
			"a lost GPU", []string{"gpu 1 lost"}, []gpu.Pair{{A: 0, B: 2, Path: gpu.PathNode, NVLinks: 18}}, nil,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			src, _ := source(t, append([]string{"gpus 3"}, test.script...)...)
			plan := planOf(t, 100)
			plan.Placement = true
			top := open(t, src, plan).Topology()
			if diff := cmp.Diff(test.pairs, top.Pairs); diff != "" {
				t.Errorf("pairs (-want +got):\n%s", diff)
			}
			var places []gpu.Place
			for _, d := range top.Devices {
				if d.Place != nil {
					places = append(places, *d.Place)
				}
			}
			if test.places != nil {
				if diff := cmp.Diff(test.places, places); diff != "" {
					t.Errorf("places (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// Pairs refer to rows of the topology, even if instances are between the GPUs. Pairs and placement that were not
// requested are not reported.
func TestPairsWithInstances(t *testing.T) {
	src, world := source(t, cut...)
	plan := planOf(t, 100)
	top := open(t, src, plan).Topology()
	queries := world.Ledger(t)["nvmlDeviceGetTopologyCommonAncestor"]
	if top.Pairs != nil || top.Devices[0].Place != nil || queries != 0 {
		t.Errorf("without a request: pairs = %v, placement = %v, or the topology was queried; want none",
			top.Pairs, top.Devices[0].Place)
	}
	plan.Placement = true
	top = open(t, src, plan).Topology()
	for _, p := range top.Pairs {
		if a, b := top.Devices[p.A].Entity.Kind, top.Devices[p.B].Entity.Kind; a != gpu.KindGPU || b != gpu.KindGPU {
			t.Errorf("pair %v joins %v and %v, want two GPUs", p, a, b)
		}
	}
	if len(top.Pairs) != 3 || top.Devices[2].Place != nil {
		t.Errorf("pairs = %d, want 3; placement of an instance = %v, want none", len(top.Pairs), top.Devices[2].Place)
	}
}

func TestPeers(t *testing.T) {
	src, world := source(
		t, "gpus 3", "gpu 0 set p2p.1 1", "gpu 0 set p2p.2 2", "gpu 1 set p2p.0 3", "gpu 1 set p2p.2 4",
		"gpu 2 set p2p.0 5", "gpu 2 set p2p.1 77",
	)
	plan := planOf(t)
	plan.Peers = true
	s := open(t, src, plan)
	want := map[string]string{
		"GPU 0 to GPU 1": "ChipsetNotSupported", "GPU 0 to GPU 2": "GPUNotSupported",
		"GPU 1 to GPU 0": "TopologyNotSupported",
		"GPU 1 to GPU 2": "DisabledByRegKey", "GPU 2 to GPU 0": "NotSupported", "GPU 2 to GPU 1": "Unknown",
	}
	if diff := cmp.Diff(want, read(t, s, plan)); diff != "" {
		t.Errorf("peer states (-want +got):\n%s", diff)
	}
	world.Play(t, "gpus 3", "gpu 1 lost")
	want = map[string]string{"GPU 0 to GPU 2": "OK", "GPU 2 to GPU 0": "OK", "GPU 1": "fault:lost"}
	if diff := cmp.Diff(want, read(t, s, plan)); diff != "" {
		t.Errorf("peer states with a lost GPU (-want +got):\n%s", diff)
	}
	world.Play(t, "gpus 3", "fail nvmlDeviceGetP2PStatus 3 2")
	for range 2 {
		got := read(t, s, plan)
		if got["GPU 2 peers"] != "fault:not_supported" || got["GPU 0 to GPU 2"] != "OK" {
			t.Errorf("peer states with an unsupported GPU 2 = %v, want a fault of GPU 2 and OK from GPU 0", got)
		}
	}
}

func TestNoHealthWatches(t *testing.T) {
	src, _ := source(t, "gpus 2")
	plan := planOf(t)
	plan.Health = gpu.KindsOf(gpu.KindGPU)
	want := map[string]string{"all health": "fault:not_supported"}
	if diff := cmp.Diff(want, read(t, open(t, src, plan), plan)); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}
