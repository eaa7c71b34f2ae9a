//go:build generate

package main

import (
	sdk "github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

const (
	// gpuLegend is the legend of series of GPUs.
	gpuLegend = "{{node}} GPU {{gpu}}"
	// deviceLegend is the legend of series of GPUs or MIG instances.
	deviceLegend = "{{node}} GPU {{gpu}} {{GPU_I_PROFILE}} {{GPU_I_ID}}"
)

// ofGPUs returns a query of a field of the selected GPUs, with node names.
func ofGPUs(classic, by string) string { return named(field(classic, ofGPU, by)) }

// node returns the dashboard of one node or a few nodes.
func node() board {
	return board{
		file: "node", title: "GPUs of a node", from: "now-1h",
		about:     "GPUs and MIG instances of a node: work, owners, power, clocks, data transfer and missing data.",
		variables: []sdk.VariableModel{oneNodeVariable(), gpuVariable()},
		rows: []row{
			{"Now", nodeNow()},
			{"Work", nodeWork()},
			{"Power, heat and clocks", nodePower()},
			{"Transfer", nodeTransfer()},
			{"Missing data", nodeMissing()},
		},
	}
}

func nodeNow() []sdk.Panel {
	used, free := field("DCGM_FI_DEV_FB_USED", ofGPU, byInstance), field("DCGM_FI_DEV_FB_FREE", ofGPU, byInstance)
	return []sdk.Panel{
		number("GPUs up", "node/Who uses what",
			"GPUs that answer.",
			count, plain(), "sum("+gpusOf+")"),
		number("GPUs and instances down", "node/Down",
			"GPUs and MIG instances that do not answer.",
			count, badAboveZero(), orZero("count(dcgm_exporter_entity_up{"+ofGPU+", UUID!=\"\"} == 0)")),
		number("Power", "node/Power",
			"Power draw of the GPUs.",
			watts, plain(), "sum("+field("DCGM_FI_DEV_POWER_USAGE", ofGPU, byGPU)+")"),
		number("Hottest GPU", "node/Temperature",
			"Highest GPU temperature.",
			celsius, steps("green", 83.0, "orange", 90.0, "red"),
			"max("+field("DCGM_FI_DEV_GPU_TEMP", ofGPU, byGPU)+")"),
		number("Memory in use", "node/Memory in use",
			"Fraction of the device memory.",
			ratio, plain(), "sum("+used+") / (sum("+used+") + sum("+free+"))"),
		number("GPUs with an XID", "reliability/XIDs, latest",
			"GPUs with an XID within the last hour.",
			count, badAboveZero(), orZero("count("+withXID(ofGPU)+")")),
		firingAlerts(),
	}
}

func nodeWork() []sdk.Panel {
	return []sdk.Panel{
		graph("GPU utilization",
			"Fraction of time in which a kernel ran. GPUs with MIG lack this metric: see Graphics engine active.",
			ratio, line{ofGPUs("DCGM_FI_DEV_GPU_UTIL", byGPU), gpuLegend}),
		graph("Memory in use",
			"Device memory of the GPU or MIG instance.",
			inBytes, line{ofGPUs("DCGM_FI_DEV_FB_USED", byInstance), deviceLegend}),
		wide(24, graph("Graphics engine active",
			"Fraction of time in which the engine of the GPU or MIG instance was busy.",
			ratio, line{ofGPUs("DCGM_FI_PROF_GR_ENGINE_ACTIVE", byInstance), deviceLegend})),
		graph("Tensor cores active",
			"Fraction of cycles in which the tensor pipe was active.",
			ratio, line{ofGPUs("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", byInstance), deviceLegend}),
		graph("Memory interface active",
			"Fraction of cycles in which device memory was read or written.",
			ratio, line{ofGPUs("DCGM_FI_PROF_DRAM_ACTIVE", byInstance), deviceLegend}),
		nodeOwners(),
	}
}

func nodeOwners() sdk.Panel {
	device := func(more string) string {
		return "max by (" + byDevice + ") (dcgm_exporter_entity_up{" + ofGPU + ", UUID!=\"\", " + more + "} == 1)"
	}
	// owners of a GPU with MIG hold its instances, so the GPU itself must not count as free
	free := "((" + device(`GPU_I_ID=""`) + " unless on (instance, gpu) " + device(`GPU_I_ID!=""`) + " or " +
		device(`GPU_I_ID!=""`) + ")" + " unless on (" + byDevice + ") " + taken(ofGPU) + ")"
	busy := everyOwner("dcgm_pod_gpu_utilization_ratio", ofGPU, "avg_over_time", "[5m]")
	memory := everyOwner("dcgm_pod_gpu_memory_used_bytes", ofGPU, "", "")
	return wide(24, height(11, grid("Who uses what",
		"One row per owner of a GPU or MIG instance. Free devices have no owner. Unknown values are empty.",
		"GPU", []string{"instance", "hostname"},
		label("node", "Node", 160), label("gpu", "GPU", 70), label("GPU_I_ID", "Instance", 90),
		to("workload", label("namespace", "Namespace", 160), "namespace"),
		to("workload", label("pod", "Pod", 0), "namespace", "pod"),
		label("hpc_job", "Job", 90), label("sharing", "Sharing", 130),
		value("Owners", hosted("("+owners(everyOwner, ofGPU, byOwner, ", sharing")+" or "+free+")"), "", 0),
		digits(0, value("Busy", "max by ("+byOwner+") ("+busy+")", ratio, 60)),
		digits(1, value("Memory", "max by ("+byOwner+") ("+memory+")", inBytes, 110)))))
}

func nodePower() []sdk.Panel {
	energy := fieldOver("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", ofGPU, byGPU, "rate", "[$__rate_interval]")
	clocks := "max by (" + byGPU + ", clock_event) (rate(DCGM_EXP_CLOCK_EVENT_SECONDS_TOTAL{" + ofGPU +
		", clock_event!=\"gpu_idle\"}[$__rate_interval])) > 0"
	return []sdk.Panel{
		graph("Power",
			"Power draw of each GPU.",
			watts, line{ofGPUs("DCGM_FI_DEV_POWER_USAGE", byGPU), gpuLegend}),
		graph("Mean power",
			"Computed from the energy counter, so it includes peaks between two samples.",
			watts, line{named(energy), gpuLegend}),
		unbounded(graph("Temperature",
			"GPU and memory temperature.",
			celsius, line{ofGPUs("DCGM_FI_DEV_GPU_TEMP", byGPU), gpuLegend},
			line{ofGPUs("DCGM_FI_DEV_MEMORY_TEMP", byGPU), gpuLegend + " memory"})),
		graph("Clocks",
			"SM and memory clock.",
			hertz, line{ofGPUs("DCGM_FI_DEV_SM_CLOCK", byGPU), gpuLegend + " SM"},
			line{ofGPUs("DCGM_FI_DEV_MEM_CLOCK", byGPU), gpuLegend + " memory"}),
		graph("Clocks limited, by reason",
			"Fraction of time in which the clocks were limited.",
			ratio, line{named(clocks), gpuLegend + " {{clock_event}}"}),
		graph("Encoder and decoder",
			"Fraction of time in use.",
			ratio, line{ofGPUs("DCGM_FI_DEV_ENC_UTIL", byGPU), gpuLegend + " encoder"},
			line{ofGPUs("DCGM_FI_DEV_DEC_UTIL", byGPU), gpuLegend + " decoder"}),
	}
}

func nodeTransfer() []sdk.Panel {
	sent := named("-" + field("DCGM_FI_PROF_PCIE_TX_BYTES", ofGPU, byGPU))
	return []sdk.Panel{
		unbounded(graph("PCIe",
			"Received by the GPU. Sent data is drawn below zero.",
			byteRate, line{ofGPUs("DCGM_FI_PROF_PCIE_RX_BYTES", byGPU), gpuLegend + " in"},
			line{sent, gpuLegend + " out"})),
		graph("NVLink",
			"All links of the GPU, both directions.",
			byteRate, line{ofGPUs("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", byGPU), gpuLegend}),
	}
}

func nodeMissing() []sdk.Panel {
	// the links of a GPU that is down are down too, and are left out
	const all = "dcgm_exporter_entity_up{" + ofGPU + "} == 0"
	const links = "dcgm_exporter_entity_up{" + ofGPU + `, nvlink!=""} == 0`
	down := "max by (" + byDevice + ", nvlink, reason) ((" + all + ") unless on (instance, gpu, nvlink) " +
		"label_join((" + links + ") and on (instance, gpu) (" + gpusOf + ` == 0), "same", "", "nvlink"))`
	fields := "max by (" + byDevice + ", field, reason) (dcgm_exporter_field_unavailable{" + ofNode +
		", gpu=~\"|$gpu\"})"
	return []sdk.Panel{
		wide(24, height(5, grid("Down",
			"GPUs, MIG instances and links that do not answer, with the reason.",
			"GPU", []string{"instance", "hostname"},
			label("node", "Node", 0), label("gpu", "GPU", 60), label("GPU_I_ID", "Instance", 85),
			label("nvlink", "Link", 60), label("reason", "Reason", 120),
			value("Up", hosted(down), "", 0)))),
		wide(24, grid("Fields not served",
			"Fields of the counters file that this node cannot read, with the reason. "+
				"Rows without a GPU apply to all GPUs.",
			"Field", []string{"instance", "hostname"},
			label("node", "Node", 180), label("gpu", "GPU", 70), label("GPU_I_ID", "Instance", 90),
			label("field", "Field", 0), label("reason", "Reason", 120),
			value("Value", hosted(fields), "", 0))),
	}
}
