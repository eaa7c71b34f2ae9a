//go:build linux && cgo

package dcgm_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/dcgm"
)

// Devices with a placement have their NUMA node and CPUs in the topology. Pairs refer to rows, and only join GPUs.
func TestPlacement(t *testing.T) {
	const (
		// two GPUs on NUMA node 0, connected by NVLink, and one on node 1
		wide   = "0-1 PHB 18; 0-2 SYS 0; 1-2 SYS 36"
		narrow = "0-1 PHB 18; 0-2 SYS 0; 1-2 SYS 0" // 36 links need the newer structure

		places   = "GPU 0: 0 0-31,64-95; GPU 1: 0 0-31,64-95; GPU 2: 1 32-63,96,510-511"
		nodeless = "GPU 0: -1 0-31,64-95; GPU 1: -1 0-31,64-95; GPU 2: -1 32-63,96,510-511"
	)
	all, some := gpu.Selector{Flex: true}, func(ids ...uint32) gpu.Selector {
		return gpu.Selector{Major: true, MajorIDs: ids}
	}
	for name, tt := range map[string]struct {
		selector      gpu.Selector
		pairs, places string
		more          []string
	}{
		"whole":      {all, wide, places, nil},
		"old engine": {all, narrow, places, []string{"old"}},
		"several NUMA nodes, or none": {all, wide, nodeless,
			[]string{"value gpu:0 86 int 3", "value gpu:1 86 unsupported", "value gpu:2 87 int 1"}},
		"no topology": {all, "", "GPU 0: 0 0-3,64; GPU 1: 0 ; GPU 2: 1 ", []string{"fail dcgmGetDeviceTopology -6"}},
		"one GPU without a topology": {all, wide,
			"GPU 0: 0 0-3,64; GPU 1: 0 0-31,64-95; GPU 2: 1 32-63,96,510-511",
			[]string{"fail dcgmGetDeviceTopology -3 1"}},
		"no fields": {all, wide, nodeless, []string{"unknown 86"}},
		"no fields and no topology": {all, "", "",
			[]string{"unknown 86", "fail dcgmGetDeviceTopology -3"}},
		"two GPUs": {some(1, 2), "0-1 SYS 36", "GPU 1: 0 0-31,64-95; GPU 2: 1 32-63,96,510-511", nil},
		"one GPU":  {some(2), "", "GPU 2: 1 32-63,96,510-511", nil},
		"instances": {gpu.Selector{Minor: true}, "", "",
			[]string{"instance 3 gpu=0 nvml=1 profile=1g.10gb", "value instance:* 155 int 45"}},
		"an instance between the GPUs": {all, "0-2 PHB 18; 0-3 SYS 0; 2-3 SYS 36", places,
			[]string{"instance 3 gpu=0 nvml=1 profile=1g.10gb"}},
	} {
		t.Run(name, func(t *testing.T) {
			plan := planOf(field(150, onGPU), field(155, onBoth))
			plan.Placement, plan.Devices = true, tt.selector
			r := start(t, plan, dcgm.Options{}, slices.Concat(versions, []string{
				gpuLine(0, "cpus=0-31,64-95"), gpuLine(1, "cpus=0-31,64-95"), gpuLine(2, "cpus=32-63,96,510-511"),
				"path 0 1 phb nvlinks=18", "path 0 2 sys", "path 1 2 sys nvlinks=36",
				"value gpu:* 150 int 45", "value gpu:* 70-73 int 0", "value gpu:* 86-89 int 0",
				"value gpu:0 86 int 1", "value gpu:1 86 int 1", "value gpu:2 86 int 2",
				"value gpu:0 70 int 15", "value gpu:0 71 int 1",
			}, tt.more)...)
			top := r.Topology()
			var pairs, places []string
			for _, p := range top.Pairs {
				pairs = append(pairs, fmt.Sprintf("%d-%d %v %d", p.A, p.B, p.Path, p.NVLinks))
			}
			for _, d := range top.Devices {
				if d.Place != nil {
					places = append(places, fmt.Sprintf("%v: %d %s", d.Entity, d.Place.NUMANode, d.Place.CPUs))
				}
			}
			checkEqual(t, "pairs", tt.pairs, strings.Join(pairs, "; "))
			checkEqual(t, "places", tt.places, strings.Join(places, "; "))
			if len(r.read().Samples) == 0 {
				t.Error("batch has no samples, want some")
			}
			if n := r.e.Count("live.reads"); n != 0 {
				t.Errorf("live reads = %d, want 0", n)
			}
		})
	}
}
