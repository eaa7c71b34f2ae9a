package sim_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/simulated"
)

// wordOf returns a connection in the notation of nvidia-smi.
func wordOf(p gpu.Pair) string {
	if p.NVLinks > 0 {
		return fmt.Sprintf("NV%d %v", p.NVLinks, p.Path)
	}
	return p.Path.String()
}

func TestPlacement(t *testing.T) {
	type place struct {
		node  int
		cpus  string
		pairs []string // connections to the following GPUs
	}
	nv18 := "NV18 "
	for node, want := range map[string][]place{
		"grace-hopper": {
			{0, "0-71", []string{nv18 + "SYS"}},
			{1, "72-143", nil},
		},
		"t4": {
			{0, "0-63", []string{"PIX", "SYS", "SYS"}},
			{0, "0-63", []string{"SYS", "SYS"}},
			{1, "64-127", []string{"PIX"}},
			{1, "64-127", nil},
		},
		"a100-mig": { // bridges connect two cards; the third has none
			{0, "0-63", []string{"NV12 NODE", "SYS"}},
			{0, "0-63", []string{"SYS"}},
			{1, "64-127", nil},
		},
	} {
		plan := simulated.Plan(gpuTemp, fbUsed)
		plan.Placement = true
		r := play(t, sim.Options{Node: node}, plan)
		var got []place
		next := 0
		pairs := r.s.Topology().Pairs
		for row, d := range r.s.Topology().Devices {
			if d.Entity.Kind != gpu.KindGPU {
				if d.Place != nil {
					t.Errorf("%s: %v has a placement that was not requested", node, d.Entity)
				}
				continue
			}
			p := place{node: d.Place.NUMANode, cpus: d.Place.CPUs}
			for ; next < len(pairs) && pairs[next].A == row; next++ {
				p.pairs = append(p.pairs, wordOf(pairs[next]))
			}
			got = append(got, p)
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(place{})); diff != "" || next != len(pairs) {
			t.Errorf("%s: %d of %d pairs are in order; connections (-want +got):\n%s", node, next, len(pairs), diff)
		}
	}
}

func TestPeers(t *testing.T) {
	plan := simulated.Plan(gpuTemp, fbUsed)
	plan.Peers = true
	for node, want := range map[string]map[string]int{
		"single":   {},
		"t4":       {"NotSupported": 12},
		"nvswitch": {"OK": 56},
		"h100x8":   {"OK": 30, "NotSupported": 26}, // two of the eight GPUs are partitioned
	} {
		r := play(t, sim.Options{Node: node}, plan)
		r.read()
		got := map[string]int{}
		seen := map[[2]int]bool{}
		for _, p := range r.b.Peers {
			got[p.Status]++
			if seen[[2]int{p.Row, p.Peer}] || p.Row == p.Peer {
				t.Errorf("%s: %+v is a duplicate, or a GPU is its own peer; want neither", node, p)
			}
			seen[[2]int{p.Row, p.Peer}] = true
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: peer states (-want +got):\n%s", node, diff)
		}
	}
}
