//go:build generate

package main

import (
	"strings"

	sdk "github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// reliability is the dashboard of what breaks.
func reliability() board {
	const gpu = "{{node}} GPU {{gpu}}"
	sign := func(what, query string) string { return `label_replace(` + query + `, "sign", "` + what + `", "", "")` }
	above := func(what, classic string) string { return sign(what, "("+field(classic, ofGPU, byGPU)+" > 0)") }
	// Links that are not there have the state of links that are down: a node whose links are all so
	// has none.
	links := field("DCGM_FI_DEV_NVSWITCH_LINK_STATUS", ofGPU+`, gpu!=""`, byGPU+", nvlink")
	down := "(" + links + " != 2) and on (instance) (" + links + " == 2)"
	condition := func(of, by string) string {
		return "max by (" + by + ") (DCGM_EXP_FABRIC_STATE{" + ofGPU + of + "}) == 1"
	}
	signs := strings.Join([]string{
		above("the driver requests a recovery action", "DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION"),
		above("a row waits to be remapped", "DCGM_FI_DEV_ROW_REMAP_PENDING"),
		above("a row could not be remapped", "DCGM_FI_DEV_ROW_REMAP_FAILURE"),
		above("a page waits to be retired", "DCGM_FI_DEV_RETIRED_PENDING"),
		above("double-bit ECC errors", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"),
		sign("a health watch found something", "(max by ("+byGPU+", health_watch, health_error_code) (DCGM_EXP_GPU_HEALTH_STATUS{"+ofGPU+`, treatment="", health_error_severity!="MONITOR"`+"}) > 0)"),
		sign("fabric not ready", "("+field("DCGM_FI_DEV_FABRIC_MANAGER_STATUS", ofGPU, byGPU)+" > 0 != 3 or "+condition(`, condition=~"not_completed|failed"`, byGPU)+")"),
		sign("fabric unhealthy", "("+field("DCGM_FI_DEV_FABRIC_HEALTH_SUMMARY", ofGPU, byGPU)+" > 1 or "+condition(`, condition!~"not_completed|failed"`, byGPU)+")"),
		sign("NVLinks not active", "(count by ("+byGPU+") ("+down+"))"),
		sign("PCIe lanes missing", "("+field("DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH", ofGPU, byGPU)+" - "+field("DCGM_FI_DEV_PCIE_LINK_WIDTH", ofGPU, byGPU)+" > 0)"),
	}, " or ")
	// Under --owner-labels=info a family of its own has the owners of XIDs.
	const byXID = byDevice + ", xid"
	seen := "(" + everyOwner("dcgm_pod_gpu_xid_last_seen_timestamp_seconds", ofGPU, "", "") + " or on (" + byXID + ") " +
		everyOwner("DCGM_EXP_XID_LAST_SEEN_TIMESTAMP_SECONDS", ofGPU, "", "") + ")"
	counted := "group by (hostname, " + byXID + ", namespace, pod, hpc_job) (time() - " + seen + " < 300) * on (" + byXID + ") group_left () max by (" + byXID +
		") (DCGM_EXP_XID_ERRORS_COUNT{" + ofGPU + "} > 0)"
	growth := func(classic string) string { return fieldOver(classic, ofGPU, byGPU, "rate", "[$__rate_interval]") }
	return board{
		file: "reliability", title: "GPU reliability", from: "now-24h",
		about:     "XIDs with their owners, memory errors and row remaps, throttling by reason, NVLink, fabric, PCIe.",
		variables: []sdk.VariableModel{nodeVariable(), gpuVariable()},
		rows: []row{
			{"Now", []sdk.Panel{
				listed("fleet/Down", number("GPUs down", "GPUs that do not answer.", count, badAboveZero(), orZero("count("+gpusOf+" == 0)"))),
				listed("reliability/XIDs, latest", number("GPUs with an XID", "Within the last hour.", count, badAboveZero(), orZero("count("+withXID(ofGPU)+")"))),
				listed("reliability/What to look at", number("GPUs to recover", "GPUs for which the driver requests a reset, a drain or a reboot.", count, badAboveZero(), orZero("count("+field("DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION", ofGPU, byGPU)+" > 0)"))),
				listed("reliability/What to look at", number("Rows to remap", "GPUs with a row that waits for a reset, or could not be remapped.", count, badAboveZero(),
					orZero("count(("+field("DCGM_FI_DEV_ROW_REMAP_PENDING", ofGPU, byGPU)+" > 0) or ("+field("DCGM_FI_DEV_ROW_REMAP_FAILURE", ofGPU, byGPU)+" > 0))"))),
				listed("reliability/What to look at", number("Links down", "NVLinks that are not active, on nodes that have active ones.", count, badAboveZero(), orZero("count("+down+")"))),
				listed("reliability/By GPU", number("GPUs throttled", "GPUs whose clocks are limited by heat, power brake or a fault of the hardware.", count, badAboveZero(),
					orZero("count(max by (instance, gpu) (rate(DCGM_EXP_CLOCK_EVENT_SECONDS_TOTAL{"+ofGPU+", clock_event=~\"hw_slowdown|sw_thermal|hw_thermal|hw_power_brake\"}[5m])) > 0)"))),
				firingAlerts(),
				wide(24, height(10, grid("What to look at", "Every sign of trouble that a GPU shows now.", "Node", []string{"instance", "hostname"},
					to("node", label("node", "Node", 180), "instance", "gpu"), label("gpu", "GPU", 60), label("sign", "What", 0),
					label("health_watch", "Watch", 120), label("health_error_code", "Code", 240),
					digits(0, value("Value", named("("+signs+")"), count, 80))))),
			}},
			{"XIDs", []sdk.Panel{
				timeline("XID timeline", "A bar while an XID lies within the window of five minutes, with the owner of the GPU at that time.",
					line{named("max by (" + byGPU + ", xid, namespace, pod, hpc_job) (" + counted + ")"), gpu + " XID {{xid}} {{namespace}} {{pod}} {{hpc_job}}"}),
				wide(24, height(6, grid("XIDs, latest", "When each was last seen on each GPU, with the owner of that time.", "-Seen", []string{"instance", "hostname"},
					to("node", label("node", "Node", 180), "instance", "gpu"), label("gpu", "GPU", 60), label("xid", "XID", 70),
					label("namespace", "Namespace", 130), label("pod", "Pod", 0), label("hpc_job", "Job", 90),
					value("Seen", named("max by ("+byGPU+", xid, namespace, pod, hpc_job) ("+seen+" * 1000)"), when, 190)))),
			}},
			{"Memory", []sdk.Panel{
				height(8, grid("Memory errors", "GPUs that have any.", "Node", []string{"instance", "hostname"},
					to("node", label("node", "Node", 0), "instance", "gpu"), label("gpu", "GPU", 55),
					digits(0, value("Single-bit", named(field("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", ofGPU, byGPU)+" > 0"), count, 90)),
					digits(0, value("Double-bit", named(field("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", ofGPU, byGPU)+" > 0"), count, 95)),
					digits(0, value("Rows, correctable", named(field("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", ofGPU, byGPU)+" > 0"), count, 140)),
					digits(0, value("Rows, uncorrectable", named(field("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", ofGPU, byGPU)+" > 0"), count, 150)))),
				graph("ECC errors", "Single-bit errors per second, corrected; double-bit errors, which are not.", perSecond,
					line{named(growth("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL") + " > 0"), gpu + " single-bit"}, line{named(growth("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL") + " > 0"), gpu + " double-bit"}),
			}},
			{"Clocks limited", []sdk.Panel{
				stacked(graph("By reason", "GPUs whose clocks are limited: GPU seconds per second.", count,
					line{"sum by (clock_event) (rate(DCGM_EXP_CLOCK_EVENT_SECONDS_TOTAL{" + ofGPU + ", clock_event!=\"gpu_idle\"}[$__rate_interval]))", "{{clock_event}}"})),
				graph("By GPU", "Part of the time in which heat, power brake or a fault limited the clocks. The ten most affected.", ratio,
					line{named("topk(10, sum by (" + byGPU + ", clock_event) (rate(DCGM_EXP_CLOCK_EVENT_SECONDS_TOTAL{" + ofGPU + ", clock_event=~\"hw_slowdown|sw_thermal|hw_thermal|hw_power_brake\"}[$__rate_interval])) > 0)"), gpu + " {{clock_event}}"}),
			}},
			{"NVLink, fabric, PCIe", []sdk.Panel{
				graph("NVLink errors", "Errors per second over all links of a GPU: CRC, replay, recovery; from NVLink 5 on recoveries and symbol errors. The ten most affected.", perSecond,
					line{named("topk(10, " + growth("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL") + " > 0)"), gpu + " CRC of flits"},
					line{named("topk(10, " + growth("DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL") + " > 0)"), gpu + " CRC of data"},
					line{named("topk(10, " + growth("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL") + " > 0)"), gpu + " replay"},
					line{named("topk(10, " + growth("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL") + " > 0)"), gpu + " recovery"},
					line{named("topk(10, " + growth("DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS") + " > 0)"), gpu + " failed recovery"},
					line{named("topk(10, " + growth("DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS") + " > 0)"), gpu + " recovery, NVLink 5"},
					line{named("topk(10, " + growth("DCGM_FI_DEV_NVLINK_COUNT_RX_SYMBOL_ERRORS") + " > 0)"), gpu + " symbols"}),
				graph("Links not active", "NVLinks that are not active, on nodes that have active ones, by GPU.", count,
					line{named("count by (" + byGPU + ") (" + down + ")"), gpu}),
				graph("Fabric", "State of the fabric manager: 1 not started, 2 in progress, 3 done, 4 and above failed. Only GPUs whose fabric is not done, and the conditions that hold.", count,
					line{named(field("DCGM_FI_DEV_FABRIC_MANAGER_STATUS", ofGPU, byGPU) + " > 0 != 3"), gpu},
					line{named(condition("", byGPU+", condition")), gpu + " {{condition}}"}),
				graph("PCIe replays", "Per second. The ten most affected.", perSecond, line{named("topk(10, " + growth("DCGM_FI_DEV_PCIE_REPLAY_COUNTER") + " > 0)"), gpu}),
			}},
		},
	}
}
