//go:build generate

package main

import (
	sdk "github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// node is the dashboard of one node, or of a few.
func node() board {
	const gpu, instance = "{{node}} GPU {{gpu}}", "{{node}} GPU {{gpu}} {{GPU_I_PROFILE}} {{GPU_I_ID}}"
	per := func(classic, by string) string { return named(field(classic, ofGPU, by)) }
	fb := func(classic string) string { return field(classic, ofGPU, byInstance) }
	device := func(more string) string {
		return "max by (instance, gpu, GPU_I_ID) (dcgm_exporter_entity_up{" + ofGPU + ", UUID!=\"\", " + more + "} == 1)"
	}
	// A GPU that MIG cuts has its owners at its instances.
	free := "((" + device(`GPU_I_ID=""`) + " unless on (instance, gpu) " + device(`GPU_I_ID!=""`) + " or " + device(`GPU_I_ID!=""`) + ")" +
		" unless on (" + byDevice + ") " + taken(ofGPU) + ")"
	// The links of a GPU that is down are down, too.
	const every = "dcgm_exporter_entity_up{" + ofGPU + "} == 0"
	down := "max by (instance, gpu, GPU_I_ID, nvlink, reason) ((" + every + ") unless on (instance, gpu, nvlink) label_join((dcgm_exporter_entity_up{" + ofGPU + `, nvlink!=""} == 0) and on (instance, gpu) (` + gpusOf + ` == 0), "same", "", "nvlink"))`
	return board{
		file: "node", title: "GPUs of a node", from: "now-1h",
		about:     "The GPUs and MIG instances of a node: work, owners, power, clocks, transfer, what is not served.",
		variables: []sdk.VariableModel{oneNodeVariable(), gpuVariable()},
		rows: []row{
			{"Now", []sdk.Panel{
				number("GPUs up", "GPUs that answer.", count, plain(), "sum("+gpusOf+")"),
				number("GPUs and instances down", "GPUs and MIG instances that do not answer; the table at the end says which and why.", count, badAboveZero(),
					orZero("count(dcgm_exporter_entity_up{"+ofGPU+", UUID!=\"\"} == 0)")),
				number("Power", "Draw of the GPUs.", watts, plain(), "sum("+field("DCGM_FI_DEV_POWER_USAGE", ofGPU, byGPU)+")"),
				number("Hottest GPU", "Temperature.", celsius, steps("green", 83.0, "orange", 90.0, "red"), "max("+field("DCGM_FI_DEV_GPU_TEMP", ofGPU, byGPU)+")"),
				number("Memory in use", "Part of the frame buffer.", ratio, plain(), "sum("+fb("DCGM_FI_DEV_FB_USED")+") / (sum("+fb("DCGM_FI_DEV_FB_USED")+") + sum("+fb("DCGM_FI_DEV_FB_FREE")+"))"),
				listed("reliability/XIDs, latest", number("GPUs with an XID", "GPUs with an XID within the last hour.", count, badAboveZero(), orZero("count("+withXID(ofGPU)+")"))),
				firingAlerts(),
			}},
			{"Work", []sdk.Panel{
				graph("GPU utilization", "Part of the time in which a kernel ran. GPUs that MIG cuts have none: see the next graph.", ratio, line{per("DCGM_FI_DEV_GPU_UTIL", byGPU), gpu}),
				graph("Memory in use", "Frame buffer of the GPU or MIG instance.", inBytes, line{per("DCGM_FI_DEV_FB_USED", byInstance), "{{node}} GPU {{gpu}} {{GPU_I_PROFILE}} {{GPU_I_ID}}"}),
				wide(24, graph("Graphics engine active", "Part of the time in which the engine was busy: GPU or MIG instance.", ratio, line{per("DCGM_FI_PROF_GR_ENGINE_ACTIVE", byInstance), instance})),
				graph("Tensor cores active", "Part of the cycles in which the tensor pipe was active.", ratio, line{per("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", byInstance), instance}),
				graph("Memory interface active", "Part of the cycles in which device memory was read or written.", ratio, line{per("DCGM_FI_PROF_DRAM_ACTIVE", byInstance), "{{node}} GPU {{gpu}} {{GPU_I_PROFILE}} {{GPU_I_ID}}"}),
				wide(24, height(11, grid("Who uses what", "A row for each owner of a GPU or MIG instance: all sharers, each with its part. Free devices have no owner; what is not known is empty.", "GPU", []string{"instance", "hostname"},
					label("node", "Node", 160), label("gpu", "GPU", 70), label("GPU_I_ID", "Instance", 90),
					to("workload", label("namespace", "Namespace", 160), "namespace"), to("workload", label("pod", "Pod", 0), "namespace", "pod"),
					label("hpc_job", "Job", 90), label("sharing", "Sharing", 130),
					value("Owners", hosted("("+holders(everyOwner, ofGPU, byOwner, ", sharing")+" or "+free+")"), "", 0),
					digits(0, value("Busy", "max by ("+byOwner+") ("+everyOwner("dcgm_pod_gpu_utilization_ratio", ofGPU, "avg_over_time", "[5m]")+")", ratio, 60)),
					digits(1, value("Memory", "max by ("+byOwner+") ("+everyOwner("dcgm_pod_gpu_memory_used_bytes", ofGPU, "", "")+")", inBytes, 110))))),
			}},
			{"Power, heat and clocks", []sdk.Panel{
				graph("Power", "Draw of the board.", watts, line{per("DCGM_FI_DEV_POWER_USAGE", byGPU), gpu}),
				graph("Mean power", "From the energy counter: peaks between two samples count.", watts, line{named(fieldOver("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", ofGPU, byGPU, "rate", "[$__rate_interval]")), gpu}),
				unbounded(graph("Temperature", "GPU and memory.", celsius, line{per("DCGM_FI_DEV_GPU_TEMP", byGPU), gpu}, line{per("DCGM_FI_DEV_MEMORY_TEMP", byGPU), gpu + " memory"})),
				graph("Clocks", "SM and memory clock.", hertz, line{per("DCGM_FI_DEV_SM_CLOCK", byGPU), gpu + " SM"}, line{per("DCGM_FI_DEV_MEM_CLOCK", byGPU), gpu + " memory"}),
				graph("Clocks limited, by reason", "Part of the time in which the clocks were limited.", ratio,
					line{named("max by (instance, hostname, gpu, clock_event) (rate(DCGM_EXP_CLOCK_EVENT_SECONDS_TOTAL{" + ofGPU + ", clock_event!=\"gpu_idle\"}[$__rate_interval])) > 0"), gpu + " {{clock_event}}"}),
				graph("Encoder and decoder", "Part of the time in use.", ratio, line{per("DCGM_FI_DEV_ENC_UTIL", byGPU), gpu + " encoder"}, line{per("DCGM_FI_DEV_DEC_UTIL", byGPU), gpu + " decoder"}),
			}},
			{"Transfer", []sdk.Panel{
				unbounded(graph("PCIe", "Received by the GPU; sent below zero.", byteRate, line{per("DCGM_FI_PROF_PCIE_RX_BYTES", byGPU), gpu + " in"}, line{named("-" + field("DCGM_FI_PROF_PCIE_TX_BYTES", ofGPU, byGPU)), gpu + " out"})),
				graph("NVLink", "All links of the GPU, both directions.", byteRate, line{per("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", byGPU), gpu}),
			}},
			{"What is missing", []sdk.Panel{
				wide(24, height(5, grid("Down", "GPUs, instances and links that do not answer, and why.", "GPU", []string{"instance", "hostname"},
					label("node", "Node", 0), label("gpu", "GPU", 60), label("GPU_I_ID", "Instance", 85), label("nvlink", "Link", 60), label("reason", "Reason", 120),
					value("Up", hosted(down), "", 0)))),
				wide(24, grid("Requested and not served", "Fields of the counters file that this node does not give, and why. Without a GPU: of all.", "Field", []string{"instance", "hostname"},
					label("node", "Node", 180), label("gpu", "GPU", 70), label("GPU_I_ID", "Instance", 90), label("field", "Field", 0), label("reason", "Reason", 120),
					value("Value", hosted("max by (instance, gpu, GPU_I_ID, field, reason) (dcgm_exporter_field_unavailable{"+ofNode+", gpu=~\"|$gpu\"})"), "", 0))),
			}},
		},
	}
}
