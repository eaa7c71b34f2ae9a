//go:build linux && cgo

package dcgm_test

import (
	"slices"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/dcgm"
	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
)

// socket returns a script of three GPUs: two on NUMA node 0, connected by NVLink, and one on node 1.
func socket(more ...string) []string {
	return slices.Concat(versions, []string{
		gpuLine(0, "cpus=0-31,64-95"), gpuLine(1, "cpus=0-31,64-95"), gpuLine(2, "cpus=32-63,96,510-511"),
		"path 0 1 phb nvlinks=18", "path 0 2 sys", "path 1 2 sys nvlinks=36",
		"value gpu:* 150 int 45", "value gpu:* 70-73 int 0", "value gpu:* 86-89 int 0",
		"value gpu:0 86 int 1", "value gpu:1 86 int 1", "value gpu:2 86 int 2",
		"value gpu:0 70 int 15", "value gpu:0 71 int 1",
	}, more)
}

func TestPlacement(t *testing.T) {
	lower, upper := "0-31,64-95", "32-63,96,510-511"
	wide := []gpu.Pair{
		{A: 0, B: 1, Path: gpu.PathHostBridge, NVLinks: 18},
		{A: 0, B: 2, Path: gpu.PathSystem},
		{A: 1, B: 2, Path: gpu.PathSystem, NVLinks: 36},
	}
	narrow := slices.Clone(wide)
	narrow[2].NVLinks = 0 // 36 links need the newer structure
	places := []*gpu.Place{{NUMANode: 0, CPUs: lower}, {NUMANode: 0, CPUs: lower}, {NUMANode: 1, CPUs: upper}}
	nodeless := []*gpu.Place{{NUMANode: -1, CPUs: lower}, {NUMANode: -1, CPUs: lower}, {NUMANode: -1, CPUs: upper}}
	for name, tt := range map[string]struct {
		more   []string
		pairs  []gpu.Pair
		places []*gpu.Place
	}{
		"whole":      {nil, wide, places},
		"old engine": {[]string{"old"}, narrow, places},
		"several NUMA nodes, or none": {
			[]string{"value gpu:0 86 int 3", "value gpu:1 86 unsupported", "value gpu:2 87 int 1"}, wide, nodeless},
		"no topology": {
			[]string{"fail dcgmGetDeviceTopology -6"}, nil,
			[]*gpu.Place{{NUMANode: 0, CPUs: "0-3,64"}, {NUMANode: 0}, {NUMANode: 1}}},
		"one GPU without a topology": {
			[]string{"fail dcgmGetDeviceTopology -3 1"}, wide,
			[]*gpu.Place{{NUMANode: 0, CPUs: "0-3,64"}, {NUMANode: 0, CPUs: lower}, {NUMANode: 1, CPUs: upper}}},
		"no fields": {[]string{"unknown 86"}, wide, nodeless},
		"no fields and no topology": {
			[]string{"unknown 86", "fail dcgmGetDeviceTopology -3"}, nil, []*gpu.Place{nil, nil, nil}},
	} {
		t.Run(name, func(t *testing.T) {
			e := fakedcgm.New(t, socket(tt.more...)...)
			plan := planOf(field(150, onGPU))
			plan.Placement = true
			s := open(t, e, plan, dcgm.Options{})
			checkEqual(t, "pairs", tt.pairs, s.Topology().Pairs)
			var got []*gpu.Place
			for _, d := range s.Topology().Devices {
				got = append(got, d.Place)
			}
			checkEqual(t, "places", tt.places, got)
			if n := len(read(t, s).Samples); n != 3 {
				t.Errorf("samples = %d, want 3", n)
			}
			if n := e.Count("live.reads"); n != 0 {
				t.Errorf("live reads = %d, want 0", n)
			}
		})
	}
}

// Only selected GPUs have pairs, and instances have no placement.
func TestPlacementOfSelected(t *testing.T) {
	for name, tt := range map[string]struct {
		sel   gpu.Selector
		pairs []gpu.Pair
	}{
		"two": {gpu.Selector{Major: true, MajorIDs: []uint32{1, 2}},
			[]gpu.Pair{{A: 0, B: 1, Path: gpu.PathSystem, NVLinks: 36}}},
		"one":       {gpu.Selector{Major: true, MajorIDs: []uint32{2}}, nil},
		"instances": {gpu.Selector{Minor: true}, nil},
		"between": {gpu.Selector{Flex: true}, []gpu.Pair{
			{A: 0, B: 2, Path: gpu.PathHostBridge, NVLinks: 18},
			{A: 0, B: 3, Path: gpu.PathSystem},
			{A: 2, B: 3, Path: gpu.PathSystem, NVLinks: 36},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			e := fakedcgm.New(t, socket("instance 3 gpu=0 nvml=1 profile=1g.10gb")...)
			plan := planOf(field(150, onGPU))
			plan.Placement, plan.Devices = true, tt.sel
			s := open(t, e, plan, dcgm.Options{})
			checkEqual(t, "pairs", tt.pairs, s.Topology().Pairs)
			for _, d := range s.Topology().Devices {
				if (d.Place != nil) != (d.Entity.Kind == gpu.KindGPU) {
					t.Errorf("%v: placement = %v, want one only for GPUs", d.Entity, d.Place)
				}
			}
		})
	}
}
