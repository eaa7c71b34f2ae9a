package sim_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/simulated"
)

func TestNodes(t *testing.T) {
	kinds := []gpu.Kind{
		gpu.KindGPU, gpu.KindGPUInstance, gpu.KindNVLink, gpu.KindNVSwitch, gpu.KindCPU, gpu.KindCPUCore, gpu.KindConnectX,
	}
	want := map[string][7]int{ // the numbers of entities of these kinds
		"a100-mig":     {3, 11, 36},
		"b200":         {8, 0, 144},
		"demo":         {8, 11, 144},
		"everything":   {3, 2, 54 + 8, 2, 3, 12, 3},
		"gb10":         {1},
		"gb200":        {4, 0, 72, 0, 2, 144},
		"gb300":        {4, 0, 72, 0, 2, 144, 4},
		"grace-hopper": {2, 0, 36, 0, 2, 144},
		"h100x8":       {8, 9, 144},
		"mig8x7":       {8, 56, 144},
		"mixed":        {5, 0, 12},
		"nvswitch":     {8, 0, 288, 4},
		"orin":         {1},
		"shared":       {6, 2, 108},
		"single":       {1, 0, 18},
		"t4":           {4},
		"thor":         {1},
	}
	got := map[string][7]int{}
	for _, name := range sim.Nodes() {
		r := play(t, sim.Options{Node: name}, simulated.Plan())
		var size [7]int
		for i, kind := range kinds {
			size[i] = len(r.rows(kind))
		}
		got[name] = size
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
}

// A session has the entities that the plan selects, and their values.
func TestRowsFollowThePlan(t *testing.T) {
	major, minor := gpu.Selector{Major: true, MajorIDs: []uint32{3}}, gpu.Selector{Minor: true, MinorIDs: []uint32{0, 86}}
	for node, test := range map[string]struct {
		fields []gpu.FieldID
		want   string
	}{
		"single":       {[]gpu.FieldID{gpuTemp, driverVersion}, "node 0"},
		"demo":         {[]gpu.FieldID{fbUsed}, "GPU instance 86 of GPU 6"},
		"grace-hopper": {[]gpu.FieldID{coreBusy}, "CPU core 0 of CPU 0, CPU core 86 of CPU 1"},
		"nvswitch":     {[]gpu.FieldID{858}, "NVSwitch 3"},
	} {
		plan := simulated.Plan(test.fields...)
		plan.Devices, plan.Switches, plan.CPUs = minor, major, minor
		r := play(t, sim.Options{Node: node}, plan)
		var got []string
		for row := range r.s.Topology().Devices {
			got = append(got, r.entity(row).String())
		}
		if diff := cmp.Diff(test.want, strings.Join(got, ", ")); diff != "" {
			t.Errorf("%s: rows (-want +got):\n%s", node, diff)
		}
		r.read()
	}
}

// Devices have the labels of their only owner, and shared devices the number of owners and replicas.
func TestAttribute(t *testing.T) {
	want := map[string]string{
		"GPU 0":                     "trainer research llm-pretrain-0",
		"GPU 1":                     "trainer research llm-pretrain-0",
		"GPU 2":                     "trainer research llm-pretrain-0",
		"GPU 3":                     "48213",
		"GPU 4":                     "2 owners, the last of replica 1, time-slicing 4",
		"GPU instance 86 of GPU 6":  "trainer research speech-finetune-0",
		"GPU instance 87 of GPU 6":  "rapids analytics etl-28911240-lq7zt",
		"GPU instance 93 of GPU 6":  "notebook notebooks jupyter-a",
		"GPU instance 105 of GPU 7": "triton serving embed-6c8f7d4b9-2hmdl",
		"GPU instance 106 of GPU 7": "triton serving embed-6c8f7d4b9-8rwsc",
		"GPU instance 107 of GPU 7": "notebook notebooks jupyter-b",
		"GPU instance 108 of GPU 7": "notebook notebooks jupyter-c",
		"GPU instance 109 of GPU 7": "ffmpeg media thumbs-5d9fb-kk2xp",
		"GPU instance 110 of GPU 7": "rapids analytics etl-28911240-m4p9d",
	}
	r := play(t, sim.Options{Node: "demo"}, simulated.Plan())
	o, err := r.src.Attribute(t.Context(), r.s.Topology())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for row := range r.s.Topology().Devices {
		var words []string
		for _, label := range o.Of(row) {
			words = append(words, label.Value)
		}
		use := o.UseOf(row)
		if n := len(use.Owners); n > 1 {
			words = append(words, fmt.Sprintf("%d owners, the last of replica %s, %v %d",
				n, use.Owners[n-1].Replica, use.Sharing, use.Replicas))
		}
		if words != nil {
			got[r.entity(row).String()] = strings.Join(words, " ")
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
	if again, _ := r.src.Attribute(t.Context(), r.s.Topology()); again != o {
		t.Error("Attribute returned another result for the same topology, want the previous one")
	}
	r.open()
	if other, _ := r.src.Attribute(t.Context(), r.s.Topology()); other == o {
		t.Error("Attribute returned the same result for another topology, want a new one")
	}
}

// Each seed is another tray of the rack. The trays have different GPUs and the same cluster. On other nodes, NVLink
// connects only GPUs of the node.
func TestRackTrays(t *testing.T) {
	const state, cluster, clique = 170, 172, 173
	gpus := map[string]bool{}
	fabric := func(node string, seed uint64) string {
		r := play(t, sim.Options{Node: node, Seed: seed}, simulated.Plan(state, cluster, clique))
		v := r.read()
		gpus[r.s.Topology().Devices[0].UUID] = true
		return fmt.Sprint(v.get(0, state), " ", v.get(0, cluster), " ", v.get(0, clique))
	}
	rack := fabric("gb300", 0)
	if !strings.HasPrefix(rack, "3 ") || !strings.HasSuffix(rack, " 32766") {
		t.Errorf("fabric of a tray = %s, want state 3 and clique 32766", rack)
	}
	for seed := range uint64(20) {
		if got := fabric("gb300", seed); (got == rack) != (seed < 18) {
			t.Errorf("fabric of tray %d = %s, want %s as in tray 0 only for the first 18", seed, got, rack)
		}
	}
	if len(gpus) != 20 {
		t.Errorf("different first GPUs of 20 trays = %d, want 20", len(gpus))
	}
	const none = " 00000000-0000-0000-0000-000000000000 0"
	for node, state := range map[string]string{"h100x8": "3", "grace-hopper": "0", "a100-mig": "0"} {
		if got := fabric(node, 1); got != state+none {
			t.Errorf("fabric of %s = %s, want %s", node, got, state+none)
		}
	}
}

// Each GPU has a place and connections to the following GPUs, in the notation of nvidia-smi.
func TestPlacement(t *testing.T) {
	for node, want := range map[string][]string{
		"grace-hopper": {"0 0-71: NV18 SYS", "1 72-143:"},
		"t4":           {"0 0-63: PIX SYS SYS", "0 0-63: SYS SYS", "1 64-127: PIX", "1 64-127:"},
		"a100-mig":     {"0 0-63: NV12 NODE SYS", "0 0-63: SYS", "1 64-127:"}, // bridges connect two cards
	} {
		plan := simulated.Plan(gpuTemp, fbUsed)
		plan.Placement = true
		r := play(t, sim.Options{Node: node}, plan)
		top, pairs := r.s.Topology(), r.s.Topology().Pairs
		var got []string
		for row, d := range top.Devices {
			if d.Entity.Kind != gpu.KindGPU {
				if d.Place != nil {
					t.Errorf("%s: %v has a place, want none", node, d.Entity)
				}
				continue
			}
			line := fmt.Sprintf("%d %s:", d.Place.NUMANode, d.Place.CPUs)
			for ; len(pairs) > 0 && pairs[0].A == row; pairs = pairs[1:] {
				if n := pairs[0].NVLinks; n > 0 {
					line += fmt.Sprint(" NV", n)
				}
				line += " " + pairs[0].Path.String()
			}
			got = append(got, line)
		}
		if diff := cmp.Diff(want, got); diff != "" || len(pairs) > 0 {
			t.Errorf("%s: pairs out of order = %v; places and connections (-want +got):\n%s", node, pairs, diff)
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
		states := map[[2]int]string{}
		for _, p := range r.b.Peers {
			states[[2]int{p.Row, p.Peer}] = p.Status
			if p.Row == p.Peer {
				t.Errorf("%s: %+v is its own peer", node, p)
			}
		}
		got := map[string]int{}
		for status := range maps.Values(states) {
			got[status]++
		}
		if diff := cmp.Diff(want, got); diff != "" || len(states) != len(r.b.Peers) {
			t.Errorf("%s: different pairs = %d of %d; peer states (-want +got):\n%s",
				node, len(states), len(r.b.Peers), diff)
		}
	}
}
