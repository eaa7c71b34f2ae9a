package sim_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/simulated"
)

func TestNodes(t *testing.T) {
	type size struct{ GPUs, Instances, Links, Switches, CPUs, Cores int }
	want := map[string]size{
		"a100-mig":     {3, 11, 36, 0, 0, 0},
		"b200":         {8, 0, 144, 0, 0, 0},
		"demo":         {8, 11, 144, 0, 0, 0},
		"everything":   {3, 2, 54 + 8, 2, 3, 12},
		"gb10":         {1, 0, 0, 0, 0, 0},
		"gb200":        {4, 0, 72, 0, 2, 144},
		"gb300":        {4, 0, 72, 0, 2, 144},
		"grace-hopper": {2, 0, 36, 0, 2, 144},
		"h100x8":       {8, 9, 144, 0, 0, 0},
		"mig8x7":       {8, 56, 144, 0, 0, 0},
		"mixed":        {5, 0, 12, 0, 0, 0},
		"nvswitch":     {8, 0, 288, 4, 0, 0},
		"orin":         {1, 0, 0, 0, 0, 0},
		"shared":       {6, 2, 108, 0, 0, 0},
		"single":       {1, 0, 18, 0, 0, 0},
		"t4":           {4, 0, 0, 0, 0, 0},
		"thor":         {1, 0, 0, 0, 0, 0},
	}
	got := map[string]size{}
	for _, name := range sim.Nodes() {
		r := play(t, sim.Options{Node: name}, simulated.Plan())
		got[name] = size{
			len(r.rows(gpu.KindGPU)), len(r.rows(gpu.KindGPUInstance)), len(r.rows(gpu.KindNVLink)),
			len(r.rows(gpu.KindNVSwitch)), len(r.rows(gpu.KindCPU)), len(r.rows(gpu.KindCPUCore)),
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
}

func TestRowsFollowThePlan(t *testing.T) {
	all := gpu.Selector{Flex: true}
	for _, test := range []struct {
		name   string
		node   string
		fields []gpu.FieldID
		change func(*gpu.Plan)
		want   []string
	}{
		{"the node, if a field belongs to it", "single", []gpu.FieldID{gpuTemp, driverVersion}, nil,
			[]string{"GPU 0", "node 0"}},
		{"selected instances", "demo", []gpu.FieldID{fbUsed},
			func(p *gpu.Plan) { p.Devices = gpu.Selector{Minor: true, MinorIDs: []uint32{86, 105}} },
			[]string{"GPU instance 86 of GPU 6", "GPU instance 105 of GPU 7"}},
		{"selected cores, no CPUs", "grace-hopper", []gpu.FieldID{coreBusy},
			func(p *gpu.Plan) {
				p.Devices = gpu.Selector{}
				p.CPUs = gpu.Selector{Minor: true, MinorIDs: []uint32{71, 72}}
			},
			[]string{"CPU core 71 of CPU 0", "CPU core 72 of CPU 1"}},
		{"a switch and its links", "nvswitch", []gpu.FieldID{858, 870},
			func(p *gpu.Plan) {
				p.Devices = gpu.Selector{}
				p.Switches = gpu.Selector{Major: true, Minor: true, MajorIDs: []uint32{3}, MinorIDs: []uint32{0}}
			},
			[]string{
				"NVSwitch 3", "NVLink 0 of NVSwitch 0", "NVLink 0 of NVSwitch 1", "NVLink 0 of NVSwitch 2",
				"NVLink 0 of NVSwitch 3",
			}},
	} {
		t.Run(test.name, func(t *testing.T) {
			plan := simulated.Plan(test.fields...)
			plan.Devices, plan.Switches, plan.CPUs = all, all, all
			if test.change != nil {
				test.change(plan)
			}
			r := play(t, sim.Options{Node: test.node}, plan)
			var got []string
			for _, d := range r.s.Topology().Devices {
				got = append(got, d.Entity.String())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("rows (-want +got):\n%s", diff)
			}
			r.read()
		})
	}
}

func TestAttribute(t *testing.T) {
	for _, test := range []struct {
		node string
		want map[string]string // entity → labels and sharing
	}{
		{"mixed", map[string]string{
			"GPU 0": "triton serving ranker-0",
			"GPU 1": "2 owners, the last of replica 1 time-slicing 4",
			"GPU 2": "trainer research finetune-0",
			"GPU 3": "ffmpeg media transcode-0",
			"GPU 4": "rapids analytics etl-0",
		}},
		{"demo", map[string]string{
			"GPU 0":                     "trainer research llm-pretrain-0",
			"GPU 1":                     "trainer research llm-pretrain-0",
			"GPU 2":                     "trainer research llm-pretrain-0",
			"GPU 3":                     "48213",
			"GPU 4":                     "2 owners, the last of replica 1 time-slicing 4",
			"GPU instance 86 of GPU 6":  "trainer research speech-finetune-0",
			"GPU instance 87 of GPU 6":  "rapids analytics etl-28911240-lq7zt",
			"GPU instance 93 of GPU 6":  "notebook notebooks jupyter-a",
			"GPU instance 105 of GPU 7": "triton serving embed-6c8f7d4b9-2hmdl",
			"GPU instance 106 of GPU 7": "triton serving embed-6c8f7d4b9-8rwsc",
			"GPU instance 107 of GPU 7": "notebook notebooks jupyter-b",
			"GPU instance 108 of GPU 7": "notebook notebooks jupyter-c",
			"GPU instance 109 of GPU 7": "ffmpeg media thumbs-5d9fb-kk2xp",
			"GPU instance 110 of GPU 7": "rapids analytics etl-28911240-m4p9d",
		}},
	} {
		t.Run(test.node, func(t *testing.T) {
			r := play(t, sim.Options{Node: test.node}, simulated.Plan())
			top := r.s.Topology()
			o, err := r.src.Attribute(t.Context(), top)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for row := range top.Devices {
				var words []string
				for _, label := range o.Of(row) {
					words = append(words, label.Value)
				}
				use := o.UseOf(row)
				if len(use.Owners) > 1 {
					words = append(words, fmt.Sprint(
						len(use.Owners), " owners, the last of replica ", use.Owners[len(use.Owners)-1].Replica,
					))
				}
				if use.Sharing != gpu.SharingNone {
					words = append(words, fmt.Sprint(use.Sharing, " ", use.Replicas))
				}
				if words != nil {
					got[top.Devices[row].Entity.String()] = strings.Join(words, " ")
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("owners (-want +got):\n%s", diff)
			}
			if again, _ := r.src.Attribute(t.Context(), top); again != o {
				t.Error("Attribute returned another result for the same topology, want the previous one")
			}
			r.open()
			if other, _ := r.src.Attribute(t.Context(), r.s.Topology()); other == o {
				t.Error("Attribute returned the same result for another topology, want a new one")
			}
		})
	}
}

// forms lists the forms of devices, as in errors.
const forms = `a GPU "3", an instance "6/9", "nvlink 0/4", "nvswitch 1", "nvswitch 1/7", "cpu 0", "core 12" ` +
	`or "connectx 2"`

func TestBadScenarios(t *testing.T) {
	for _, test := range []struct{ yaml, want string }{
		{`{fault: gpu-lots, devices: ["0"]}`, `unknown fault "gpu-lots", did you mean "gpu-lost"?`},
		{`{fault: gpu-lost}`, `fault gpu-lost needs a list "devices" that is not empty`},
		{`{fault: gpu-lost, devices: []}`, `fault gpu-lost needs a list "devices" that is not empty`},
		{`{fault: sxid, devices: ["nvswitch 0"], xids: []}`, `fault sxid needs a list "xids" that is not empty`},
		{`{fault: gpu-lost, devices: ["0/1"]}`, `device "0/1": fault gpu-lost needs a whole GPU, such as "3"`},
		{`{fault: engine-down, devices: ["0"]}`, `fault engine-down does not accept the key "devices"`},
		{`{fault: hang, at: -1s}`, `at is -1s, expected 0 to 87600h0m0s after the start`},
		{`{fault: hang, at: 10}`, `faults[1].at is "10": expected a duration such as 90s or 5m`},
		{`{fault: hang, for: 0s}`, `for is 0s, expected more than 0 and at most 87600h0m0s`},
		{`{fault: hang, call: close}`, `unknown call "close", expected one of open, read`},
		{`{fault: hang, ignore-cancel: perhaps}`, `faults[1].ignore-cancel is "perhaps": expected true or false`},
		{`{fault: xid, devices: ["0"], xids: [0]}`, `xid 0, expected a positive number`},
		{`{fault: xid, devices: ["0"], xids: [1.5]}`, `faults[1].xids[0] is "1.5": expected an integer`},
		{`{fault: xid, devices: ["0"], xids: [1], apart: 2h}`, `apart is 2h0m0s, expected more than 0 and at most 1h`},
		{
			`{fault: absent, fields: [DCGM_FI_DEV_GPU_TMP]}`,
			`unknown field "DCGM_FI_DEV_GPU_TMP", did you mean DCGM_FI_DEV_GPU_TEMP?`,
		},
		{`{fault: absent, fields: ["65000"]}`, `unknown field "65000"`},
		{`{fault: absent, fields: [DCGM_FI_DEV_GPU_TEMP], devices: ["x"]}`,
			`device "x", expected ` + forms},
		{`{fault: set, fields: [DCGM_FI_DEV_GPU_TEMP], value: .nan}`, `value and rate must be finite numbers`},
		{
			`{fault: set, fields: [DCGM_FI_DEV_GPU_TEMP], value: 1, rate: -.inf}`,
			`value and rate must be finite numbers`,
		},
		{`{fault: set, fields: [DCGM_FI_DEV_GPU_TEMP], value: x}`, `faults[1].value is "x": expected a finite number`},
		{`{fault: repartition, devices: ["0"], when: 1s}`, `unknown key faults[1].when: expected one of ` +
			`apart, at, call, code, devices, fault, fields, for, ignore-cancel, mig, rate, reason, reasons, ` +
			`reported-by, result, text, value, watches, xids`},
		{`{fault: absent, fields: ["1310"], devices: ["conectx 0"]}`, `device "conectx 0", expected ` + forms},
		{`{fault: absent, fields: ["1310"], devices: ["connectx 0/1"]}`, `device "connectx 0/1", expected ` + forms},
		{`{fault: absent, fields: ["1001"], devices: ["6/9/0/1"]}`, `device "6/9/0/1", expected ` + forms},
		{
			`{fault: unbound, devices: ["connectx 0"]}`,
			`device "connectx 0": fault unbound needs a whole GPU, such as "3"`,
		},
		{
			`{fault: link-down, devices: ["0"]}`,
			`device "0": fault link-down needs a link such as "nvlink 0/4" or "nvswitch 1/7"`,
		},
		{
			`{fault: xid, devices: ["0"], xids: [79], reported-by: [kernal]}`,
			`unknown reported-by "kernal", did you mean "kernel"?`,
		},
		{
			`{fault: throttle, devices: ["0"], reasons: [hw_termal]}`,
			`unknown reason of a throttle "hw_termal", did you mean "hw_thermal"?`,
		},
		{
			`{fault: throttle, devices: ["0"], reasons: [gpu_idle]}`,
			`unknown reason of a throttle "gpu_idle", expected one of clocks_setting, display_clocks, ` +
				`hw_power_brake, hw_slowdown, hw_thermal, power_cap, sw_power_cap, sw_thermal, sync_boost`,
		},
		{
			`{fault: absent, fields: ["155"], reason: old}`,
			`unknown reason "old", expected one of needs_dcgm, needs_sys_admin, not_supported, permission, stale, ` +
				`unavailable`,
		},
		{`{fault: set, fields: [DCGM_FI_DEV_GPU_TEMP]}`, `fault set needs either the key "value" or the key "text"`},
		{
			`{fault: set, fields: [DCGM_FI_DEV_GPU_TEMP], text: hot}`,
			`field DCGM_FI_DEV_GPU_TEMP: use the key "text" for strings and "value" for numbers`,
		},
		{
			`{fault: set, fields: [DCGM_FI_DRIVER_VERSION], value: 1}`,
			`field DCGM_FI_DRIVER_VERSION: use the key "text" for strings and "value" for numbers`,
		},
		{
			`{fault: set, fields: [DCGM_FI_DRIVER_VERSION], text: x, rate: 1}`,
			`rate needs the key "value", which it increases`,
		},
		{`{fault: absent, fields: ["DCGM_FI_PROV_*"]}`, `unknown field "DCGM_FI_PROV_*"`},
		{`{fault: absent, fields: ["DCGM_[*"]}`, `pattern "DCGM_[*" of fields: syntax error in pattern`},
		{`{fault: health, watches: [PCI]}`, `unknown health watch "PCI", did you mean "PCIE"?`},
		{`{fault: health, watches: [PCIE], result: pass}`, `unknown result "pass", expected one of fail, warn`},
		{`{fault: health, watches: [PCIE], code: REPLAYS}`,
			`code is "REPLAYS", expected a name of dcgm_errors.h such as DCGM_FR_NVLINK_DOWN`},
		{`{fault: health, watches: [MEM], devices: [nvswitch 0]}`, `device "nvswitch 0" has no health watch MEM`},
		// The following errors are only found when the node is known.
		{`{fault: gpu-lost, devices: ["1"]}`, `node single has no device "1"`},
		{`{fault: absent, fields: ["1310"], devices: ["connectx 0"]}`, `node single has no device "connectx 0"`},
		{`{fault: absent, fields: ["870"], devices: ["nvlink 0/18"]}`,
			`node single has no device "nvlink 0/18"`},
		{`{fault: absent, fields: ["252"], devices: ["0/14"]}`, `node single has no device "0/14"`},
		{`{fault: repartition, devices: ["0"], mig: [9g.90gb]}`,
			`H100-SXM5-80GB has no MIG profile "9g.90gb", did you mean "1g.10gb"?`},
	} {
		s, err := sim.ParseScenario([]byte("faults:\n  - {fault: engine-down}\n  - "+test.yaml), "faults.yaml")
		if err == nil {
			_, err = sim.New(sim.Options{Node: "single", Scenario: s})
		}
		var syntax *text.SyntaxError
		if !errors.As(err, &syntax) || syntax.Error() != "faults.yaml:3: "+test.want {
			t.Errorf("%s\n got %v\nwant faults.yaml:3: %s", test.yaml, err, test.want)
		}
	}
	scenario := simulated.Scenario(t, `faults: [{fault: repartition, devices: ["0"]}]`)
	if _, err := sim.New(sim.Options{Node: "t4", Scenario: scenario}); err == nil ||
		err.Error() != "sim: scenario.yaml:1: T4 has no MIG" {
		t.Errorf("New: error %v, want that T4 has no MIG", err)
	}
}

// Each seed is another tray of the rack. The trays have different GPUs and the same cluster. On other nodes, NVLink
// connects only GPUs of the node.
func TestRackTrays(t *testing.T) {
	const state, cluster, clique = 170, 172, 173
	gpus := map[string]bool{}
	told := func(node string, seed uint64) string {
		r := play(t, sim.Options{Node: node, Seed: seed}, simulated.Plan(state, cluster, clique))
		v := r.read()
		gpus[r.s.Topology().Devices[0].UUID] = true
		var list []string
		for _, id := range []gpu.FieldID{state, cluster, clique} {
			x, _ := v.get(0, id)
			list = append(list, x.String())
		}
		return strings.Join(list, " ")
	}
	rack := told("gb300", 0)
	if !strings.HasPrefix(rack, "3 ") || !strings.HasSuffix(rack, " 32766") {
		t.Errorf("fabric of a tray = %s, want state 3 and clique 32766", rack)
	}
	for seed := range uint64(20) {
		if got := told("gb300", seed); (got == rack) != (seed < 18) {
			t.Errorf("fabric of tray %d = %s, want %s as in tray 0", seed, got, rack)
		}
	}
	if len(gpus) != 20 {
		t.Errorf("different first GPUs of 20 trays = %d, want 20", len(gpus))
	}
	const none = " 00000000-0000-0000-0000-000000000000 0"
	for node, state := range map[string]string{"h100x8": "3", "grace-hopper": "0", "a100-mig": "0"} {
		if got := told(node, 1); got != state+none {
			t.Errorf("fabric of %s = %s, want %s", node, got, state+none)
		}
	}
}
