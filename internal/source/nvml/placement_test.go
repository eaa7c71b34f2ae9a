//go:build linux && cgo

package nvml_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// The machine has three GPUs. The middle one is on the other socket.
func TestPlacement(t *testing.T) {
	const places = "node 0, CPUs 0-31,64-95; node 1, CPUs 32-63,96-127; node 0, CPUs 0-31,64-95"
	for name, tt := range map[string]struct {
		script []string
		pairs  string // rows, path and number of NVLinks
		places string
	}{
		"switches between all GPUs": {nil, "0-1 SYS 18; 0-2 NODE 18; 1-2 SYS 18", places},
		"as many links as are active on both GPUs": {[]string{"gpu 1 set nvlink.3 down"},
			"0-1 SYS 17; 0-2 NODE 18; 1-2 SYS 17", places},
		"a partition of the fabric": {[]string{"gpu 0 set p2p.2 5"}, "0-1 SYS 18; 0-2 NODE 0; 1-2 SYS 18", places},
		"a bridge with two links": {
			[]string{
				"gpu 0 set nvlinks 4", "gpu 0 set nvlink.0 gpu 2", "gpu 0 set nvlink.1 gpu 2",
				"gpu 0 set nvlink.2 down", "gpu 0 set nvlink.3 -",
				"gpu 2 set nvlinks 2", "gpu 2 set nvlink.0 gpu 0", "gpu 2 set nvlink.1 gpu 0", "gpu 1 set nvlinks 0",
				"gpu 0 set path.2 20",
			}, "0-1 SYS 0; 0-2 PXB 2; 1-2 SYS 0", places},
		"nothing known": {
			[]string{
				"fail nvmlDeviceGetTopologyCommonAncestor 3", "fail nvmlDeviceGetMemoryAffinity 3",
				"fail nvmlDeviceGetCpuAffinity 999", "fail nvmlDeviceGetNvLinkState 3",
			}, "0-1  0; 0-2  0; 1-2  0", "node -1, CPUs ; node -1, CPUs ; node -1, CPUs "},
		"an unknown path, two NUMA nodes, no CPU affinity": {
			[]string{"gpu 0 set path.1 60", "gpu 0 set memory-nodes 3", "gpu 0 set no-cpus 1", "gpu 1 set nvlinks 0"},
			"0-1  0; 0-2 NODE 18; 1-2 SYS 0", "node -1, CPUs ; node 1, CPUs 32-63,96-127; node 0, CPUs 0-31,64-95"},
		"a lost GPU": {[]string{"gpu 1 lost"}, "0-2 NODE 18", "node 0, CPUs 0-31,64-95; node 0, CPUs 0-31,64-95"},
	} {
		t.Run(name, func(t *testing.T) {
			plan := planOf(100)
			plan.Placement = true
			top := start(t, plan, append([]string{"gpus 3"}, tt.script...)...).Topology()
			var pairs, places []string
			for _, p := range top.Pairs {
				pairs = append(pairs, fmt.Sprintf("%d-%d %v %d", p.A, p.B, p.Path, p.NVLinks))
			}
			for _, d := range top.Devices {
				if d.Place != nil {
					places = append(places, fmt.Sprintf("node %d, CPUs %s", d.Place.NUMANode, d.Place.CPUs))
				}
			}
			got := [...]string{strings.Join(pairs, "; "), strings.Join(places, "; ")}
			if diff := cmp.Diff([...]string{tt.pairs, tt.places}, got); diff != "" {
				t.Errorf("pairs and places (-want +got):\n%s", diff)
			}
		})
	}
}

// Pairs refer to rows of the topology, even if instances are between the GPUs. Pairs and placement that were not
// requested are not reported.
func TestPairsWithInstances(t *testing.T) {
	plan := planOf(100)
	r := start(t, plan, cut...)
	top, queries := r.Topology(), r.world.Ledger(t)["nvmlDeviceGetTopologyCommonAncestor"]
	if top.Pairs != nil || top.Devices[0].Place != nil || queries != 0 {
		t.Errorf("without a request: pairs = %v, placement = %v, or the topology was queried; want none",
			top.Pairs, top.Devices[0].Place)
	}
	plan.Placement = true
	top = start(t, plan, cut...).Topology()
	joinsOthers := func(p gpu.Pair) bool {
		return top.Devices[p.A].Entity.Kind != gpu.KindGPU || top.Devices[p.B].Entity.Kind != gpu.KindGPU
	}
	if len(top.Pairs) != 3 || slices.ContainsFunc(top.Pairs, joinsOthers) || top.Devices[2].Place != nil {
		t.Errorf("pairs = %v, want 3 pairs of GPUs; placement of an instance = %v, want none", top.Pairs,
			top.Devices[2].Place)
	}
}

func TestPeers(t *testing.T) {
	plan := planOf()
	plan.Peers = true
	r := start(t, plan, "gpus 3", "gpu 0 set p2p.1 1", "gpu 0 set p2p.2 2", "gpu 1 set p2p.0 3", "gpu 1 set p2p.2 4",
		"gpu 2 set p2p.0 5", "gpu 2 set p2p.1 77")
	r.want("peer states", "GPU 0 to GPU 1 ChipsetNotSupported", "GPU 0 to GPU 2 GPUNotSupported",
		"GPU 1 to GPU 0 TopologyNotSupported", "GPU 1 to GPU 2 DisabledByRegKey", "GPU 2 to GPU 0 NotSupported",
		"GPU 2 to GPU 1 Unknown")
	r.play("gpus 3", "gpu 1 lost")
	r.want("peer states with a lost GPU", "GPU 0 to GPU 2 OK", "GPU 2 to GPU 0 OK", "GPU 1 fault:lost")
	r.play("gpus 3", "fail nvmlDeviceGetP2PStatus 3 2")
	for range 2 {
		got := r.read()
		if got["GPU 2 peers"] != "fault:not_supported" || got["GPU 0 to GPU 2"] != "OK" {
			t.Errorf("peer states with an unsupported GPU 2 = %v, want a fault of GPU 2 and OK from GPU 0", got)
		}
	}
}

// DCGM's NVLink bandwidth is a rate: KiB per second divided by 1,000.
func TestLinkRate(t *testing.T) {
	at := func(second int, rx, tx uint64) []string {
		return []string{
			"gpus 1",
			fmt.Sprintf("gpu 0 set field-time %d", 1_700_000_000_000_000+second*1_000_000),
			fmt.Sprintf("gpu 0 set field.139 %d", rx), fmt.Sprintf("gpu 0 set field.138 %d", tx),
			fmt.Sprintf("gpu 0 set field.139.7 %d", rx/2), fmt.Sprintf("gpu 0 set field.138.7 %d", tx/2),
		}
	}
	first := at(0, 1_000_000, 2_000_000)
	r := start(t, planOf(449, 476), first...)
	for _, tt := range []struct {
		name       string
		script     []string
		total, one string
	}{
		{"first reading", first, "", ""},
		{"two seconds later", at(2, 5_000_000, 8_000_000), "5000", "2500"},
		{"idle", at(3, 5_000_000, 8_000_000), "0", "0"},
		{"no time passed", at(3, 6_000_000, 8_000_000), "", ""},
		{"counters went back", at(4, 10, 10), "", ""},
		{"and continues after that", at(5, 10, 2_000_010), "2000", "1000"},
	} {
		r.play(tt.script...)
		got := r.read()
		const rate = "GPU 0 DCGM_FI_DEV_NVLINK_BANDWIDTH_"
		if got[rate+"TOTAL"] != tt.total || got[rate+"L7"] != tt.one {
			t.Errorf("%s: rates = %v, want %q over all links and %q for link 7", tt.name, got, tt.total, tt.one)
		}
	}
}

// NVLink 5 counters have a field ID for each link, and one for the total. A link that is down has a row. A link that
// does not exist has none.
func TestCountersByLink(t *testing.T) {
	plan := planOf(1212, 1212, 1218)
	for i := 1; i < 3; i++ {
		plan.Fields[i].Name, plan.Fields[i].Levels = fmt.Sprint("link ", plan.Fields[i].ID), onLinks
	}
	// mantissa 3 and exponent 12, packed as by NVML (nvml.h, NVML_NVLINK_BER_*)
	r := start(t, plan, "gpus 1", "gpu 0 set nvlinks 3", "gpu 0 set nvlink.2 down",
		"gpu 0 set field.214.all 7", "gpu 0 set field.214.0 0", "gpu 0 set field.214.1 7", "gpu 0 set field.214.2 -",
		fmt.Sprintf("gpu 0 set field.220.1 %d", 3<<8|12))
	r.want("three links", "GPU 0 NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS 7",
		"NVLink 0 of GPU 0 link 1212 0", "NVLink 0 of GPU 0 link 1218 fault:not_supported",
		"NVLink 1 of GPU 0 link 1212 7", "NVLink 1 of GPU 0 link 1218 3e-12",
		"NVLink 2 of GPU 0 link 1212 fault:not_supported", "NVLink 2 of GPU 0 link 1218 fault:not_supported")
	r.play("gpus 1", "gpu 0 lost")
	if err := r.Read(t.Context(), gpu.ReadRequest{}, &gpu.Batch{}); err == nil {
		t.Error("Read after the only GPU was lost succeeded, want an error")
	}
}
