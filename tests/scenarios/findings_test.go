package scenarios

import (
	"testing"
	"time"
)

// These findings persist although the GPU is healthy, or are covered by another rule. The test checks the verdict on
// GPU 2 at several times. The simulated engine's own health watches report them.
func TestVerdictsOfFindings(t *testing.T) {
	const xidFault = `[{fault: xid, at: 1m, devices: ["2"], xids: [`
	type look struct {
		at   time.Duration
		want string
	}
	const hour = time.Hour
	for _, tt := range []struct {
		name, node, faults string
		looks              []look
	}{
		{"a GPU at its power limit", "h100x8", `[{fault: throttle, at: 1m, devices: ["2"], reasons: [sw_power_cap]}]`,
			[]look{{17 * time.Minute, "ok/"}, {hour, "ok/"}}},
		{"DCGM's own finding about the power limit", "h100x8",
			`[{fault: health, at: 1m, devices: ["2"], watches: [POWER], code: DCGM_FR_CLOCKS_EVENT_POWER, result: warn}]`,
			[]look{{17 * time.Minute, "ok/"}}},
		{"the software thermal limit", "h100x8", `[{fault: throttle, at: 1m, devices: ["2"], reasons: [sw_thermal]}]`,
			[]look{{17 * time.Minute, "ok/"}}},
		{"one page fault of a program", "h100x8", xidFault + `31]}]`, []look{{2 * time.Minute, "ok/"}, {17 * time.Minute, "ok/"}}},
		{"XID 43", "h100x8", xidFault + `43]}]`, []look{{17 * time.Minute, "ok/"}}},
		{"XID 63", "h100x8", xidFault + `63]}]`, []look{{2 * hour, "watch/xid_memory"}}},
		{"XID 64", "h100x8", xidFault + `64]}]`, []look{{2 * hour, "drain/xid_repair_failed"}}},
		{"XID 74", "h100x8", xidFault + `74]}]`, []look{{17 * time.Minute, "watch/xid_nvlink"}, {2 * hour, "ok/"}}},
		{"XID 94", "h100x8", xidFault + `94]}]`, []look{{2 * hour, "watch/xid_memory"}}},
		{"XID 119", "h100x8", xidFault + `119]}]`, []look{{17 * time.Minute, "drain/xid_gsp"}, {2 * hour, "ok/"}}},
		{"XID 120", "h100x8", xidFault + `120]}]`, []look{{17 * time.Minute, "drain/xid_gsp"}, {2 * hour, "ok/"}}},
		{"XID 48", "h100x8", xidFault + `48]}]`, []look{{17 * time.Minute, "drain/xid_hardware"}, {25 * hour, "ok/"}}},
		{"XID 95", "h100x8", xidFault + `95]}]`, []look{{2 * hour, "drain/xid_hardware"}}},
		{"XID 140", "h100x8", xidFault + `140]}]`, []look{{2 * hour, "drain/xid_hardware"}}},
		{"a slow fabric", "gb200", `[{fault: set, at: 1m, devices: ["2"], fields: [DCGM_FI_DEV_FABRIC_HEALTH_MASK], value: 0x51a9}]`,
			[]look{{17 * time.Minute, "watch/fabric_degraded"}}},
		{"a fabric that recovers its routes", "gb200",
			`[{fault: set, at: 1m, devices: ["2"], fields: [DCGM_FI_DEV_FABRIC_HEALTH_MASK], value: 0x51a6}]`,
			[]look{{17 * time.Minute, "watch/fabric_degraded"}}},
		{"a lost route", "gb200", `[{fault: set, at: 1m, devices: ["2"], fields: [DCGM_FI_DEV_FABRIC_HEALTH_MASK], value: 0x519a}]`,
			[]look{{17 * time.Minute, "drain/fabric_failed"}}},
		{"too few links in the fabric", "gb200",
			`[{fault: set, at: 1m, devices: ["2"], fields: [DCGM_FI_DEV_FABRIC_HEALTH_MASK], value: 0x55aa}]`,
			[]look{{17 * time.Minute, "watch/fabric_misconfigured"}}},
		{"an NVML without fabric support", "gb200",
			`[{fault: set, at: 1m, devices: ["2"], fields: [DCGM_FI_DEV_FABRIC_MANAGER_STATUS], value: 6}]`,
			[]look{{17 * time.Minute, "ok/"}}},
		{"one contained uncorrected error", "h100x8",
			`[{fault: set, at: 1m, devices: ["2"], fields: [DCGM_FI_DEV_ECC_DBE_VOL_TOTAL], value: 1}]`,
			[]look{{2 * hour, "watch/ecc_uncorrected"}}},
		{"one recovery of a link", "h100x8",
			`[{fault: set, at: 1m, devices: ["2"], fields: [DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL], value: 1}]`,
			[]look{{2 * hour, "watch/nvlink_recovery"}}},
		{"memory that cannot be repaired", "h100x8",
			`[{fault: health, at: 1m, devices: ["2"], watches: [MEM], code: DCGM_FR_FAULTY_MEMORY}]`,
			[]look{{17 * time.Minute, "drain/health_failed"}}},
		{"a finding of a newer engine and a superseded one", "h100x8", `[
			{fault: xid, at: 1m, devices: ["2"], xids: [31]},
			{fault: health, at: 1m, devices: ["2"], watches: [SM], code: DCGM_FR_OF_THE_FUTURE, result: warn}]`,
			[]look{{17 * time.Minute, "watch/health_warning"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			perform(t, tt.node, "faults: "+tt.faults, func(s *stage) {
				for _, x := range tt.looks {
					got := verdictsOf(s.at(x.at))
					for gpu, verdict := range got {
						want := "ok/"
						if gpu == "2" {
							want = x.want
						}
						if verdict != want {
							s.t.Errorf("GPU %s at %v: verdict = %s, want %s", gpu, x.at, verdict, want)
						}
					}
					if got["2"] == "" {
						s.t.Errorf("GPU 2 has no verdict at %v", x.at)
					}
				}
			})
		})
	}
}

// verdictsOf returns the verdicts and their reasons on a page, by GPU.
func verdictsOf(p page) map[string]string {
	got := map[string]string{}
	for _, x := range p.series["dcgm_exporter_gpu_verdict"] {
		if x.value == 1 {
			got[x.labels.Get("gpu")] += x.labels.Get("verdict") + "/" + x.labels.Get("reason")
		}
	}
	return got
}
