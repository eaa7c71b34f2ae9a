//go:build generate

package main

import (
	sdk "github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// wasted is the unused part of allocated GPUs. Shares with unknown activity are left out. If some pods use more than
// their share, that does not offset the idle time of others.
const wasted = "clamp_min(" + allocated + " - " + active + ", 0)"

// limited matches clock events that are caused by heat, the power brake or a hardware fault.
const limited = `clock_event=~"hw_slowdown|sw_thermal|hw_thermal|hw_power_brake"`

// throttled returns a query of the GPUs whose clocks are limited by heat, the power brake or a hardware fault.
func throttled(matchers string) string {
	return "max by (instance, gpu) (rate(DCGM_EXP_CLOCK_EVENT_SECONDS_TOTAL{" + matchers + ", " + limited +
		"}[5m])) > 0"
}

// fleet returns the dashboard of all nodes.
func fleet() board {
	return board{
		file: "fleet", title: "GPUs of the fleet", from: "now-6h",
		about:     "GPU capacity, allocation, use, idle time, power and health, by model, node and namespace.",
		variables: []sdk.VariableModel{nodeVariable()},
		rows: []row{
			{"Now", fleetNow()},
			{"Use", fleetUse()},
			{"Health", fleetHealth()},
		},
	}
}

func fleetNow() []sdk.Panel {
	return []sdk.Panel{
		number("GPUs", "fleet/By node",
			"All GPUs of the nodes, up or down.",
			count, plain(), "count("+gpus+")"),
		decimals(1, number("Allocated", "fleet/By namespace",
			"GPUs assigned to pods or jobs. One of four replicas counts as a quarter. A MIG instance counts by its "+
				"compute slices.",
			count, plain(), "sum("+allocated+")")),
		decimals(1, number("Used", "fleet/By namespace",
			"GPUs on which their owners' processes ran, averaged over five minutes.",
			count, plain(), "sum("+active+")")),
		decimals(1, number("Allocated and idle", "fleet/By namespace",
			"Allocated GPUs on which their owners' processes did not run. Shares with unknown activity are excluded.",
			count, plain(), "sum("+wasted+")")),
		decimals(1, number("Free", "fleet/By node",
			"GPUs, and fractions of GPUs, that are not allocated.",
			count, plain(), "count("+gpus+") - sum("+allocated+")")),
		number("Power", "fleet/By node",
			"Power draw of all GPUs.",
			watts, plain(), "sum("+field("DCGM_FI_DEV_POWER_USAGE", ofNode, byGPU)+")"),
		wide(6, number("GPUs down", "fleet/Down",
			"GPUs that do not answer.",
			count, badAboveZero(), orZero("count("+gpus+" == 0)"))),
		wide(6, number("GPUs with an XID", "reliability/XIDs, latest",
			"GPUs with an XID within the last hour.",
			count, badAboveZero(), orZero("count("+withXID(ofNode)+")"))),
		wide(6, number("Nodes without data", "fleet/Nodes without data",
			"Nodes whose exporter does not answer or has no GPU data.",
			count, badAboveZero(), orZero("count("+withoutData()+")"))),
		wide(6, number("GPUs throttled", "reliability/By GPU",
			"GPUs whose clocks are limited by heat, the power brake or a hardware fault.",
			count, badAboveZero(), orZero("count("+throttled(ofNode)+")"))),
		firingAlerts(),
	}
}

func fleetUse() []sdk.Panel {
	return []sdk.Panel{
		graph("Capacity, allocated, used",
			"In GPUs. The gap between capacity and allocated is free. The gap between allocated and used is idle.",
			count,
			line{"count(" + gpus + ")", "capacity"}, line{"sum(" + allocated + ")", "allocated"},
			line{"sum(" + active + ")", "used"}),
		stacked(graph("Power by model",
			"Power draw of the GPUs.",
			watts, line{powerByModel(), "{{modelName}}"})),
		fleetByModel(),
		fleetByNamespace(),
		fleetByNode(),
	}
}

// powerByModel returns a query of the power draw of each model.
func powerByModel() string {
	return "sum by (modelName) (" + field("DCGM_FI_DEV_POWER_USAGE", ofNode, "instance, gpu, modelName") + ")"
}

func fleetByModel() sdk.Panel {
	// the GPU of a Jetson has no temperature, so the clock is queried too
	read := func(name string) string { return name + "{" + ofNode + "}" }
	model := "max by (instance, gpu, modelName) (" + either("DCGM_FI_DEV_GPU_TEMP", read) +
		" or " + either("DCGM_FI_DEV_SM_CLOCK", read) + ")"
	ofModel := func(query string) string {
		return "sum by (modelName) (sum by (instance, gpu) (" + query + ")" +
			" * on (instance, gpu) group_left (modelName) group by (instance, gpu, modelName) (" + model + "))"
	}
	return height(7, grid("By model",
		"GPUs that answer, by product.",
		"-GPUs", nil,
		label("modelName", "Model", 0),
		digits(0, value("GPUs", "count by (modelName) ("+model+")", count, 70)),
		digits(1, value("Allocated", ofModel(allocated), count, 85)),
		digits(1, value("Used", ofModel(active), count, 70)),
		digits(1, value("Idle", ofModel(wasted), count, 70)),
		digits(1, value("Power", powerByModel(), watts, 90))))
}

func fleetByNamespace() sdk.Panel {
	read := func(metric string) string { return everyOwner(metric, ofNode, "rate", "[5m]") }
	sum := func(query string) string { return "sum by (namespace, hpc_job) (" + query + ")" }
	idle := "clamp_min(" + read(podAllocated) + " - on (" + byAccount + ") " + read(podActive) + ", 0)"
	return height(7, grid("By namespace",
		"GPUs that the pods of a namespace hold and use. Batch jobs without a namespace are listed by job.",
		"-Allocated", nil,
		to("workload", label("namespace", "Namespace", 0), "namespace"),
		label("hpc_job", "Job", 80),
		digits(1, value("Allocated", sum(read(podAllocated)), count, 85)),
		digits(1, value("Used", sum(read(podActive)), count, 70)),
		digits(1, value("Idle", sum(idle), count, 70)),
		digits(1, value("Power", sum(read(podEnergy)), watts, 90))))
}

func fleetByNode() sdk.Panel {
	sum := func(query string) string { return "sum by (instance) (" + query + ")" }
	// prefer GPUs that answer, because their series have the host name
	gpusOfNode := named("count by (instance, hostname) ("+field("DCGM_FI_DEV_GPU_TEMP", ofNode, byGPU)+")") +
		" or " + named(sum(gpus)+" unless on (instance) "+field("DCGM_FI_DEV_GPU_TEMP", ofNode, "instance"))
	used, free := field("DCGM_FI_DEV_FB_USED", ofNode, byInstance), field("DCGM_FI_DEV_FB_FREE", ofNode, byInstance)
	return wide(24, height(8, grid("By node",
		"One row per node.",
		"-Idle", []string{"instance", "hostname"},
		to("node", label("node", "Node", 0), "instance"),
		digits(0, value("GPUs", gpusOfNode, count, 90)),
		digits(0, value("Down", sum("1 - "+gpus), count, 90)),
		digits(1, value("Allocated", sum(allocated), count, 110)),
		digits(1, value("Used", sum(active), count, 110)),
		digits(1, value("Idle", sum(wasted), count, 110)),
		digits(1, value("Power", sum(field("DCGM_FI_DEV_POWER_USAGE", ofNode, byGPU)), watts, 110)),
		digits(0, value("Hottest", field("DCGM_FI_DEV_GPU_TEMP", ofNode, "instance"), celsius, 110)),
		digits(0, value("Memory in use", sum(used)+" / "+sum(used+" + "+free), ratio, 130)))))
}

func fleetHealth() []sdk.Panel {
	down := "max by (instance, gpu, GPU_I_ID, reason) (dcgm_exporter_entity_up{" + ofNode + ", UUID!=\"\"} == 0)"
	return []sdk.Panel{
		wide(24, height(5, grid("Nodes without data",
			"Nodes that answered within the last six hours and whose exporter now does not answer or has no GPU data.",
			"Node", []string{"instance", "hostname"},
			to("node", label("node", "Node", 0), "instance"), label("reason", "Reason", 200),
			value("Missing", lately(withoutData()), "", 0)))),
		height(5, grid("Down",
			"GPUs and MIG instances that do not answer, with the reason.",
			"Node", []string{"instance", "hostname"},
			to("node", label("node", "Node", 0), "instance", "gpu"),
			label("gpu", "GPU", 60), label("GPU_I_ID", "Instance", 85), label("reason", "Reason", 120),
			value("Up", hosted(down), "", 0))),
		height(5, stragglerTable(everyOwner)),
		graph("GPUs down or with XIDs",
			"Number of GPUs.",
			count,
			line{orZero("count(" + gpus + " == 0)"), "down"},
			line{orZero("count(" + withXID(ofNode) + ")"), "XID within the hour"}),
		graph("Clocks limited, by reason",
			"Number of GPUs whose clocks are limited, as GPU seconds per second.",
			count,
			line{"sum by (clock_event) (rate(DCGM_EXP_CLOCK_EVENT_SECONDS_TOTAL{" + ofNode +
				", clock_event!=\"gpu_idle\"}[$__rate_interval]))", "{{clock_event}}"}),
	}
}

func stragglerTable(owner owner) sdk.Panel {
	return grid("Stragglers",
		"GPUs less than 60 % as busy as the median GPU of their pod or batch job, over 15 minutes. Only jobs with at "+
			"least four GPUs and a median above 30 % are compared. After 15 more minutes, GPUStraggler fires.",
		"Of the median", []string{"instance", "hostname"},
		to("workload", label("namespace", "Namespace", 100), "namespace"), label("pod", "Pod", 0),
		label("hpc_job", "Job", 65), to("node", label("node", "Node", 110), "instance", "gpu"),
		label("gpu", "GPU", 55), label("GPU_I_ID", "Instance", 80),
		digits(0, value("Of the median", hosted(stragglers(owner)), ratio, 105)))
}
