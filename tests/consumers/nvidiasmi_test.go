package consumers

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
)

const smiRules = "from-nvidia-smi.yml"

// gpuOf returns a world with series of one GPU.
func gpuOf(values map[string]float64) *world {
	w := &world{Storage: prom.NewStorage(), ends: []time.Time{time.Unix(1000, 0)}}
	for name, v := range values {
		w.Append(name, func() labels.Labels {
			return labels.FromStrings("__name__", name, "instance", "gpu-a:9400", "gpu", "3", "UUID", "GPU-0-1",
				"modelName", "NVIDIA H100", "pci_bus_id", "00000000:09:00.0", "DCGM_FI_DRIVER_VERSION", "590.48.01",
				"pod", "p")
		}, w.now(), v)
	}
	return w
}

// recorded evaluates the rules and returns the values of the nvidia_smi_* series, by name. A name with several series
// fails the test.
func (w *world) recorded(t *testing.T) map[string]float64 {
	t.Helper()
	w.record(t, smiRules)
	all := map[string]float64{}
	for _, x := range w.Vector(t, `{__name__=~"nvidia_smi_.+"}`, w.now()) {
		name := x.Metric.Get("__name__")
		if _, twice := all[name]; twice {
			t.Errorf("%s has several series, want 1", name)
		}
		all[name] = x.F
	}
	return all
}

// TestFromNVIDIASMI gives the recording rules a machine's DCGM values, in either vocabulary. The result must be what
// nvidia_gpu_exporter publishes for the machine.
func TestFromNVIDIASMI(t *testing.T) {
	var published []struct {
		Page         string
		Ours, Theirs map[string]float64
	}
	if err := yaml.Unmarshal([]byte(folder.Read(t, "nvidia-smi.yaml")), &published); err != nil {
		t.Fatal(err)
	}
	for _, p := range published {
		renamed := map[string]float64{}
		for name, v := range p.Ours {
			if from, to, ok := catalog.Rename(name, catalog.Current); ok {
				name, v = to.Name, v*to.Scale/from.Scale
			}
			renamed[name] = v
		}
		for vocabulary, values := range map[string]map[string]float64{"classic": p.Ours, "current": renamed} {
			w := gpuOf(values)
			got := w.recorded(t)
			for name, want := range p.Theirs {
				if v, ok := got[name]; !ok || math.Abs(v-want) > 1e-9*math.Abs(want) {
					t.Errorf("page %s with %s names: %s = %v (found: %t), want %v", p.Page, vocabulary, name, v, ok,
						want)
				}
				delete(got, name)
			}
			info := `nvidia_smi_gpu_info{uuid="0-1",name="NVIDIA H100",index="3",` +
				`pci_bus_id="00000000:09:00.0",driver_version="590.48.01"}`
			if len(w.Vector(t, info, w.now())) != 1 {
				t.Errorf("page %s with %s names: no series %s", p.Page, vocabulary, info)
			}
			delete(got, "nvidia_smi_gpu_info")
			if len(got) > 0 {
				t.Errorf("page %s with %s names: further series = %v, want none", p.Page, vocabulary,
					slices.Sorted(maps.Keys(got)))
			}
		}
	}
}

// TestFromNVIDIASMI cannot tell some fields apart, because they have the same value on every page in nvidia-smi.yaml.
// This test sets one field, or one bit of the clock event reasons, at a time, and checks which series shows it.
func TestStatesFromNVIDIASMI(t *testing.T) {
	for field, name := range map[string]string{
		"RETIRED_PENDING": "retired_pages_pending", "ROW_REMAP_PENDING": "remapped_rows_pending",
		"ROW_REMAP_FAILURE": "remapped_rows_failure", "CORRECTABLE_REMAPPED_ROWS": "remapped_rows_correctable",
		"UNCORRECTABLE_REMAPPED_ROWS": "remapped_rows_uncorrectable",
		"ECC_SBE_VOL_TOTAL":           "ecc_errors_corrected_volatile_total",
		"ECC_DBE_VOL_TOTAL":           "ecc_errors_uncorrected_volatile_total",
		"ECC_SBE_AGG_TOTAL":           "ecc_errors_corrected_aggregate_total",
		"ECC_DBE_AGG_TOTAL":           "ecc_errors_uncorrected_aggregate_total",
		"PCIE_LINK_GEN":               "pcie_link_gen_current", "PCIE_MAX_LINK_GEN": "pcie_link_gen_max",
		"PCIE_LINK_WIDTH": "pcie_link_width_current", "PCIE_MAX_LINK_WIDTH": "pcie_link_width_max",
		"POWER_MGMT_LIMIT": "power_limit_watts", "ENFORCED_POWER_LIMIT": "enforced_power_limit_watts",
		"POWER_MGMT_LIMIT_DEF": "power_default_limit_watts",
	} {
		got := gpuOf(map[string]float64{"DCGM_FI_DEV_" + field: 7}).recorded(t)
		if len(got) != 1 || got["nvidia_smi_"+name] != 7 {
			t.Errorf("DCGM_FI_DEV_%s is 7: series = %v, want only nvidia_smi_%s = 7", field, got, name)
		}
	}
	for bit, reason := range []string{
		"gpu_idle", "applications_clocks_setting", "sw_power_cap", "hw_slowdown", "sync_boost",
		"sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown",
	} {
		active := map[string]float64{"DCGM_FI_DEV_CLOCKS_EVENT_REASONS": float64(int(1) << bit)}
		for name, v := range gpuOf(active).recorded(t) {
			if (v == 1) != (name == "nvidia_smi_clocks_event_reasons_"+reason) {
				t.Errorf("bit %d: %s = %v, want 1 only for the reason %s", bit, name, v, reason)
			}
		}
	}
}

// TestInstancesFromNVIDIASMI checks series that no page in nvidia-smi.yaml has, such as those of MIG instances and
// XIDs. It compares them with the DCGM series of a simulated node.
func TestInstancesFromNVIDIASMI(t *testing.T) {
	k := &kind{"an XID", kinds[3].node, kinds[3].owners, `faults: [{fault: xid, at: 1m, devices: ["0"], xids: [79]}]`}
	w := newRig(t).world(k, "honored", remedy{arg: withLines, rules: smiRules})
	uuid := strings.TrimPrefix(w.Vector(t, "DCGM_FI_DEV_GPU_TEMP", w.now())[0].Metric.Get("UUID"), "GPU-")
	seen := strconv.FormatInt(w.ends[0].Add(time.Minute).Unix(), 10)
	for _, row := range []struct{ theirs, labels, ours string }{
		{"nvidia_smi_mig_info", `gpu_instance_id="1",profile="3g.40gb"`, `vector(1)`},
		{"nvidia_smi_mig_memory_used_bytes", `gpu_instance_id="2"`, `DCGM_FI_DEV_FB_USED{GPU_I_ID="2"} * 1048576`},
		{"nvidia_smi_mig_memory_free_bytes", `gpu_instance_id="2"`, `DCGM_FI_DEV_FB_FREE{GPU_I_ID="2"} * 1048576`},
		{"nvidia_smi_mig_memory_reserved_bytes", `gpu_instance_id="2"`,
			`DCGM_FI_DEV_FB_RESERVED{GPU_I_ID="2"} * 1048576`},
		{"nvidia_smi_mig_memory_total_bytes", `gpu_instance_id="2"`, `DCGM_FI_DEV_FB_TOTAL{GPU_I_ID="2"} * 1048576`},
		{"nvidia_smi_mig_graphics_activity_ratio", `gpu_instance_id="1"`,
			`DCGM_FI_PROF_GR_ENGINE_ACTIVE{GPU_I_ID="1"}`},
		{"nvidia_smi_mig_sm_activity_ratio", `gpu_instance_id="1"`, `DCGM_FI_PROF_SM_ACTIVE{GPU_I_ID="1"}`},
		{"nvidia_smi_mig_sm_occupancy_ratio", `gpu_instance_id="1"`, `DCGM_FI_PROF_SM_OCCUPANCY{GPU_I_ID="1"}`},
		{"nvidia_smi_mig_tensor_activity_ratio", `gpu_instance_id="1"`,
			`DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{GPU_I_ID="1"}`},
		{"nvidia_smi_energy_joules_total", "", `DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION / 1000`},
		{"nvidia_smi_pcie_throughput_tx_bytes_per_second", "", `DCGM_FI_PROF_PCIE_TX_BYTES`},
		{"nvidia_smi_pcie_throughput_rx_bytes_per_second", "", `DCGM_FI_PROF_PCIE_RX_BYTES`},
		{"nvidia_smi_xid_errors_total", `xid="79"`, `vector(1)`},
		{"nvidia_smi_xid_last_timestamp_seconds", `xid="79"`, `vector(` + seen + `)`},
	} {
		theirs := row.theirs + `{uuid="` + uuid + `",` + row.labels + `}`
		got, want := w.Vector(t, theirs, w.now()), w.Vector(t, row.ours, w.now())
		if len(got) != 1 || len(want) != 1 || math.Abs(got[0].F-want[0].F) > 1e-9*math.Abs(want[0].F) {
			t.Errorf("%s = %v, want %v", theirs, got, want)
		}
	}
	if got := w.Vector(t, "nvidia_smi_last_collect_success", w.now()); len(got) != 1 || got[0].F != 1 {
		t.Errorf("nvidia_smi_last_collect_success = %v, want one series with 1", got)
	}
}
