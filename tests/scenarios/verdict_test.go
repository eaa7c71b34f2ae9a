package scenarios

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
)

// Each case is a fault of GPU 2 after one minute, and the GPU's verdict after 17 minutes. Faults with the verdict ok
// are harmless. Other GPUs are ok. Package verdict tests every XID, and how long rules stay active.
func TestVerdicts(t *testing.T) {
	const recovered = "DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS"
	for _, tt := range []struct{ node, fault, keys, want string }{
		{"h100x8", "", "", "ok/"},
		{"gb300", "", "", "ok/"},
		{"t4", "", "", "ok/"},
		{"h100x8", "gpu-lost", "", "drain/lost"},
		{"h100x8", "gpu-lost", `for: 30s`, "watch/was_lost"},
		{"h100x8", "xid", `xids: [79]`, "drain/xid_hardware"},
		{"h100x8", "xid", `xids: [79], reported-by: [kernel]`, "drain/xid_hardware"},
		{"h100x8", "xid", `xids: [13, 31, 43, 45]`, "ok/"},
		{"h100x8", "xid", `xids: [94, 64, 119]`, "drain/xid_repair_failed"},
		{"h100x8", "throttle", `reasons: [hw_thermal]`, "watch/slowed"},
		{"h100x8", "throttle", `for: 5m, reasons: [hw_thermal]`, "ok/"},
		{"h100x8", "health", `watches: [MEM], code: DCGM_FR_FAULTY_MEMORY`, "drain/health_failed"},
		{"h100x8", "health", `watches: [PCIE], result: warn`, "watch/health_warning"},
		{"h100x8", "health", `for: 3m, watches: [NVLINK]`, "ok/"},
		{"h100x8", "set", `fields: [DCGM_FI_DEV_ROW_REMAP_FAILURE], value: 1`, "replace/row_remap_failed"},
		{"h100x8", "set", `fields: [DCGM_FI_DEV_ROW_REMAP_PENDING], value: 1`, "watch/row_remap_pending"},
		{"h100x8", "set", `fields: [DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION], value: 4`, "drain/recovery_action"},
		{"h100x8", "set", `fields: [DCGM_FI_DEV_ECC_DBE_VOL_TOTAL], value: 9`, "watch/ecc_uncorrected"},
		{"h100x8", "set", `fields: [DCGM_FI_DEV_RETIRED_SBE, DCGM_FI_DEV_RETIRED_DBE], value: 30`,
			"replace/retired_pages"},
		{"h100x8", "set", `fields: [DCGM_FI_DEV_FABRIC_MANAGER_STATUS], value: 4`, "drain/fabric_failed"},
		{"h100x8", "absent", `fields: ["*"], reason: permission`, "unknown/unavailable"},
		{"gb200", "set", `fields: [DCGM_FI_DEV_C2C_LINK_STATUS], value: 0`, "drain/c2c_down"},
		{"gb200", "set", `fields: [DCGM_FI_DEV_C2C_LINK_STATUS, DCGM_FI_DEV_C2C_LINK_COUNT], value: 0`, "ok/"},
		{"b200", "set", `fields: [` + recovered + `], value: 1`, "watch/nvlink5_recovery"},
		{"b200", "set", `fields: [DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS], value: 1`,
			"watch/nvlink5_recovery"},
		{"h100x8", "throttle", `reasons: [sw_power_cap]`, "ok/"},
		{"h100x8", "throttle", `reasons: [sw_thermal]`, "ok/"},
		{"h100x8", "health", `watches: [POWER], code: DCGM_FR_CLOCKS_EVENT_POWER, result: warn`, "ok/"},
		{"h100x8", "health", `watches: [SM], code: DCGM_FR_OF_THE_FUTURE, result: warn`, "watch/health_warning"},
		{"h100x8", "set", `fields: [DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL], value: 1`, "watch/nvlink_recovery"},
		{"gb200", "set", `fields: [DCGM_FI_DEV_FABRIC_HEALTH_MASK], value: 0x51a9`, "watch/fabric_degraded"},
		{"gb200", "set", `fields: [DCGM_FI_DEV_FABRIC_HEALTH_MASK], value: 0x51a6`, "watch/fabric_degraded"},
		{"gb200", "set", `fields: [DCGM_FI_DEV_FABRIC_HEALTH_MASK], value: 0x519a`, "drain/fabric_failed"},
		{"gb200", "set", `fields: [DCGM_FI_DEV_FABRIC_HEALTH_MASK], value: 0x55aa`, "watch/fabric_misconfigured"},
		{"gb200", "set", `fields: [DCGM_FI_DEV_FABRIC_MANAGER_STATUS], value: 6`, "ok/"},
	} {
		t.Run(strings.Join([]string{tt.want, tt.fault, tt.keys}, " "), func(t *testing.T) {
			faults := "[]"
			if tt.fault != "" {
				faults = fmt.Sprintf(`[{fault: %s, at: 1m, devices: ["2"], %s}]`, tt.fault, tt.keys)
			}
			p := prom.Parse(t, perform(t, tt.node, faults, 17*time.Minute)[0])
			got, want := map[string]string{}, map[string]string{}
			for _, x := range p[catalog.GPUVerdict] {
				if x.Value == 1 {
					got[x.Labels.Get("gpu")] += x.Labels.Get("verdict") + "/" + x.Labels.Get("reason")
				}
			}
			for gpu := range p.By("dcgm_exporter_entity_up", "gpu") {
				if gpu != "" {
					want[gpu] = "ok/"
				}
			}
			if _, ok := want["2"]; ok || tt.want != "ok/" {
				want["2"] = tt.want
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("verdicts (-want +got):\n%s", diff)
			}
		})
	}
}
