//go:build generate

package main

import (
	"strings"

	sdk "github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// reliability returns the dashboard about faults.
func reliability() board {
	return board{
		file: "reliability", title: "GPU reliability", from: "now-24h",
		about:     "XIDs with their owners, memory errors, row remaps, limited clocks, NVLink, fabric and PCIe.",
		variables: []sdk.VariableModel{nodeVariable(), gpuVariable()},
		rows: []row{
			{"Now", reliabilityNow()},
			{"XIDs", reliabilityXIDs()},
			{"Memory", reliabilityMemory()},
			{"Clocks limited", reliabilityClocks()},
			{"NVLink, fabric, PCIe", reliabilityLinks()},
		},
	}
}

// ofSelected returns a query of a field of the selected GPUs.
func ofSelected(classic string) string { return field(classic, ofGPU, byGPU) }

// growth returns a query of the increase per second of a field of the selected GPUs.
func growth(classic string) string {
	return fieldOver(classic, ofGPU, byGPU, "rate", "[$__rate_interval]")
}

// linksDown returns a query of links that are not active. Unconnected links look the same, so nodes without any active
// link are left out.
func linksDown() string {
	links := field("DCGM_FI_DEV_NVSWITCH_LINK_STATUS", ofGPU+`, gpu!=""`, byGPU+", nvlink")
	return "(" + links + " != 2) and on (instance) (" + links + " == 2)"
}

// fabricCondition returns a query for the fabric conditions that apply.
func fabricCondition(matcher, by string) string {
	return "max by (" + by + ") (DCGM_EXP_FABRIC_STATE{" + ofGPU + matcher + "}) == 1"
}

func reliabilityNow() []sdk.Panel {
	remaps := "(" + ofSelected("DCGM_FI_DEV_ROW_REMAP_PENDING") + " > 0)" +
		" or (" + ofSelected("DCGM_FI_DEV_ROW_REMAP_FAILURE") + " > 0)"
	return []sdk.Panel{
		number("GPUs down", "fleet/Down",
			"GPUs that do not answer.",
			count, badAboveZero(), orZero("count("+gpusOf+" == 0)")),
		number("GPUs with an XID", "reliability/XIDs, latest",
			"GPUs with an XID within the last hour.",
			count, badAboveZero(), orZero("count("+withXID(ofGPU)+")")),
		number("GPUs to recover", "reliability/Problems",
			"GPUs for which the driver requests a reset, a drain or a reboot.",
			count, badAboveZero(), orZero("count("+ofSelected("DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION")+" > 0)")),
		number("Rows to remap", "reliability/Problems",
			"GPUs with a memory row that needs a reset to be remapped, or that could not be remapped.",
			count, badAboveZero(), orZero("count("+remaps+")")),
		number("Links down", "reliability/Links not active",
			"NVLinks that are not active, on nodes with at least one active NVLink.",
			count, badAboveZero(), orZero("count("+linksDown()+")")),
		number("GPUs throttled", "reliability/By GPU",
			"GPUs whose clocks are limited by heat, the power brake or a hardware fault.",
			count, badAboveZero(), orZero("count("+throttled(ofGPU)+")")),
		firingAlerts(),
		reliabilityProblems(),
	}
}

func reliabilityProblems() sdk.Panel {
	problem := func(what, query string) string { return relabel("("+query+")", `"problem", "`+what+`", "", ""`) }
	above := func(what, classic string) string { return problem(what, ofSelected(classic)+" > 0") }
	health := "max by (" + byGPU + ", health_watch, health_error_code) (DCGM_EXP_GPU_HEALTH_STATUS{" + ofGPU +
		`, treatment="", health_error_severity!="MONITOR"}) > 0`
	problems := strings.Join([]string{
		above("driver requests a recovery action", "DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION"),
		above("row remap pending", "DCGM_FI_DEV_ROW_REMAP_PENDING"),
		above("row remap failed", "DCGM_FI_DEV_ROW_REMAP_FAILURE"),
		above("page retirement pending", "DCGM_FI_DEV_RETIRED_PENDING"),
		above("double-bit ECC errors", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"),
		problem("health watch failed", health),
		problem("fabric not ready", ofSelected("DCGM_FI_DEV_FABRIC_MANAGER_STATUS")+" > 0 != 3 or "+
			fabricCondition(`, condition=~"not_completed|failed"`, byGPU)),
		problem("fabric unhealthy", ofSelected("DCGM_FI_DEV_FABRIC_HEALTH_SUMMARY")+" > 1 or "+
			fabricCondition(`, condition!~"not_completed|failed"`, byGPU)),
		problem("NVLinks not active", "count by ("+byGPU+") ("+linksDown()+")"),
		problem("PCIe lanes missing", ofSelected("DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH")+" - "+
			ofSelected("DCGM_FI_DEV_PCIE_LINK_WIDTH")+" > 0"),
	}, " or ")
	return wide(24, height(10, grid("Problems",
		"Problems that GPUs have now.",
		"Node", []string{"instance", "hostname"},
		to("node", label("node", "Node", 180), "instance", "gpu"), label("gpu", "GPU", 60),
		label("problem", "Problem", 0),
		label("health_watch", "Watch", 120), label("health_error_code", "Code", 240),
		digits(0, value("Value", named("("+problems+")"), count, 80)))))
}

func reliabilityXIDs() []sdk.Panel {
	const byXID = byDevice + ", xid"
	// with --owner-labels=info, the owners of XIDs are in a separate family
	seen := "(" + everyOwner("dcgm_pod_gpu_xid_last_seen_timestamp_seconds", ofGPU, "", "") + " or on (" + byXID +
		") " +
		everyOwner("DCGM_EXP_XID_LAST_SEEN_TIMESTAMP_SECONDS", ofGPU, "", "") + ")"
	recent := "group by (hostname, " + byXID + ", namespace, pod, hpc_job) (time() - " + seen + " < 300)" +
		" * on (" + byXID + ") group_left () max by (" + byXID + ") (DCGM_EXP_XID_ERRORS_COUNT{" + ofGPU + "} > 0)"
	return []sdk.Panel{
		timeline("XID timeline",
			"Each XID is a bar of five minutes, with the owner of the GPU at that time.",
			line{named("max by (" + byGPU + ", xid, namespace, pod, hpc_job) (" + recent + ")"),
				gpuLegend + " XID {{xid}} {{namespace}} {{pod}} {{hpc_job}}"}),
		wide(24, height(6, grid("XIDs, latest",
			"The last occurrence of each XID on each GPU, with the owner at that time.",
			"-Seen", []string{"instance", "hostname"},
			to("node", label("node", "Node", 180), "instance", "gpu"), label("gpu", "GPU", 60), label("xid", "XID", 70),
			label("namespace", "Namespace", 130), label("pod", "Pod", 0), label("hpc_job", "Job", 90),
			value("Seen", named("max by ("+byGPU+", xid, namespace, pod, hpc_job) ("+seen+" * 1000)"), when, 190)))),
	}
}

func reliabilityMemory() []sdk.Panel {
	errors := func(title, classic string, width float64) column {
		return digits(0, value(title, named(ofSelected(classic)+" > 0"), count, width))
	}
	return []sdk.Panel{
		height(8, grid("Memory errors",
			"GPUs that have memory errors.",
			"Node", []string{"instance", "hostname"},
			to("node", label("node", "Node", 0), "instance", "gpu"), label("gpu", "GPU", 55),
			errors("Single-bit", "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", 90),
			errors("Double-bit", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 95),
			errors("Rows, correctable", "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", 140),
			errors("Rows, uncorrectable", "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", 150))),
		graph("ECC errors",
			"Errors per second. Single-bit errors are corrected, double-bit errors are not.",
			perSecond,
			line{named(growth("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL") + " > 0"), gpuLegend + " single-bit"},
			line{named(growth("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL") + " > 0"), gpuLegend + " double-bit"}),
	}
}

func reliabilityClocks() []sdk.Panel {
	rate := func(matcher string) string {
		return "(rate(DCGM_EXP_CLOCK_EVENT_SECONDS_TOTAL{" + ofGPU + ", " + matcher + "}[$__rate_interval]))"
	}
	return []sdk.Panel{
		stacked(graph("By reason",
			"Number of GPUs whose clocks are limited, as GPU seconds per second.",
			count, line{"sum by (clock_event) " + rate(`clock_event!="gpu_idle"`), "{{clock_event}}"})),
		graph("By GPU",
			"Fraction of time in which heat, the power brake or a hardware fault limited the clocks, "+
				"by GPU and reason. The ten highest.",
			ratio, line{named("topk(10, sum by (" + byGPU + ", clock_event) " + rate(limited) + " > 0)"),
				gpuLegend + " {{clock_event}}"}),
	}
}

func reliabilityLinks() []sdk.Panel {
	var errors []line
	for _, counter := range [][2]string{
		{"DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "CRC, flits"},
		{"DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", "CRC, data"},
		{"DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", "replay"},
		{"DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", "recovery"},
		{"DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS", "failed recovery"},
		{"DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS", "recovery, NVLink 5"},
		{"DCGM_FI_DEV_NVLINK_COUNT_RX_SYMBOL_ERRORS", "symbols"},
	} {
		errors = append(errors, line{named("topk(10, " + growth(counter[0]) + " > 0)"), gpuLegend + " " + counter[1]})
	}
	return []sdk.Panel{
		graph("NVLink errors",
			"Errors per second on all links of a GPU: CRC, replay and recovery errors. From NVLink 5 on, recovery "+
				"and symbol errors. The ten most affected GPUs.",
			perSecond, errors...),
		graph("Links not active",
			"NVLinks of each GPU that are not active, on nodes with at least one active NVLink.",
			count, line{named("count by (" + byGPU + ") (" + linksDown() + ")"), gpuLegend}),
		graph("Fabric",
			"GPUs whose fabric is not ready, with the state of the fabric manager: 1 not started, 2 in progress, 4 "+
				"and above failed. Conditions that apply have the value 1.",
			count,
			line{named(ofSelected("DCGM_FI_DEV_FABRIC_MANAGER_STATUS") + " > 0 != 3"), gpuLegend},
			line{named(fabricCondition("", byGPU+", condition")), gpuLegend + " {{condition}}"}),
		graph("PCIe replays",
			"Replays per second. The ten most affected GPUs.",
			perSecond, line{named("topk(10, " + growth("DCGM_FI_DEV_PCIE_REPLAY_COUNTER") + " > 0)"), gpuLegend}),
	}
}
