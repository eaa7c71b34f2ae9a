//go:build generate

package main

import (
	sdk "github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// wasted is what is allocated and not used, where both are known: a share whose activity the driver
// does not report is left out. Who uses more than its share of a GPU wastes nothing, and makes up
// for no other.
const wasted = "clamp_min(" + allocated + " - " + active + ", 0)"

// fleet is the dashboard of all nodes: what there is, who has it, who uses it, what is broken.
func fleet() board {
	// A Jetson's GPU has no temperature.
	read := func(name string) string { return name + "{" + ofNode + "}" }
	model := "max by (instance, gpu, modelName) (" + either("DCGM_FI_DEV_GPU_TEMP", read) + " or " + either("DCGM_FI_DEV_SM_CLOCK", read) + ")"
	ofModel := func(query string) string {
		return "sum by (modelName) (sum by (instance, gpu) (" + query + ") * on (instance, gpu) group_left (modelName) group by (instance, gpu, modelName) (" + model + "))"
	}
	power := field("DCGM_FI_DEV_POWER_USAGE", ofNode, byGPU)
	powerOf := func(by string) string { return "sum by (" + by + ") (" + power + ")" }
	byNamespace := func(metric string) string {
		return "sum by (namespace, hpc_job) (" + everyOwner(metric, ofNode, "rate", "[5m]") + ")"
	}
	idle := "sum by (namespace, hpc_job) (clamp_min(" + everyOwner("dcgm_pod_gpu_allocated_seconds_total", ofNode, "rate", "[5m]") +
		" - on (instance, gpu, GPU_I_ID, namespace, pod, container, hpc_job) " + everyOwner("dcgm_pod_gpu_active_seconds_total", ofNode, "rate", "[5m]") + ", 0))"
	return board{
		file: "fleet", title: "GPUs of the fleet", from: "now-6h",
		about:     "Capacity, what of it is allocated, used and wasted, power and health: by model, node and namespace.",
		variables: []sdk.VariableModel{nodeVariable()},
		rows: []row{
			{"Now", []sdk.Panel{
				listed("fleet/By node", number("GPUs", "GPUs of the nodes, up or down.", count, plain(), "count("+gpus+")")),
				listed("fleet/By namespace", decimals(1, number("Allocated", "GPUs that are assigned to pods or jobs. One of four replicas counts a quarter, a MIG instance by its compute slices.", count, plain(), "sum("+allocated+")"))),
				listed("fleet/By namespace", decimals(1, number("Used", "GPUs in which work of their owners ran, over five minutes.", count, plain(), "sum("+active+")"))),
				listed("fleet/By namespace", decimals(1, number("Allocated and idle", "GPUs that are assigned and in which no work of their owners ran. Shares whose activity is not known are left out.", count, plain(), "sum("+wasted+")"))),
				listed("fleet/By node", decimals(1, number("Free", "GPUs, and parts of GPUs, that are not assigned.", count, plain(), "count("+gpus+") - sum("+allocated+")"))),
				listed("fleet/By node", number("Power", "Draw of all GPUs.", watts, plain(), "sum("+power+")")),
				wide(6, listed("fleet/Down", number("GPUs down", "GPUs that do not answer.", count, badAboveZero(), orZero("count("+gpus+" == 0)")))),
				wide(6, listed("reliability/XIDs, latest", number("GPUs with an XID", "GPUs with an XID within the last hour.", count, badAboveZero(), orZero("count("+withXID(ofNode)+")")))),
				wide(6, listed("fleet/Nodes without data", number("Nodes without data", "Nodes whose exporter does not answer, or has no data of its GPUs.", count, badAboveZero(), orZero("count("+withoutData()+")")))),
				wide(6, listed("reliability/By GPU", number("GPUs throttled", "GPUs whose clocks are limited by heat, power brake or a fault of the hardware.", count, badAboveZero(),
					orZero("count(max by (instance, gpu) (rate(DCGM_EXP_CLOCK_EVENT_SECONDS_TOTAL{"+ofNode+", clock_event=~\"hw_slowdown|sw_thermal|hw_thermal|hw_power_brake\"}[5m])) > 0)")))),
				firingAlerts(),
			}},
			{"Use", []sdk.Panel{
				graph("Capacity, allocated, used", "In GPUs. Between capacity and allocated: free. Between allocated and used: paid for and idle.", count,
					line{"count(" + gpus + ")", "capacity"}, line{"sum(" + allocated + ")", "allocated"}, line{"sum(" + active + ")", "used"}),
				stacked(graph("Power by model", "Draw of the boards.", watts, line{"sum by (modelName) (" + field("DCGM_FI_DEV_POWER_USAGE", ofNode, "instance, gpu, modelName") + ")", "{{modelName}}"})),
				height(7, grid("By model", "GPUs that answer, by product.", "-GPUs", nil,
					label("modelName", "Model", 0),
					digits(0, value("GPUs", "count by (modelName) ("+model+")", count, 70)),
					digits(1, value("Allocated", ofModel(allocated), count, 85)),
					digits(1, value("Used", ofModel(active), count, 70)),
					digits(1, value("Idle", ofModel(wasted), count, 70)),
					digits(1, value("Power", "sum by (modelName) ("+field("DCGM_FI_DEV_POWER_USAGE", ofNode, "instance, gpu, modelName")+")", watts, 90)))),
				height(7, grid("By namespace", "What the pods of a namespace have and use. Batch jobs without a namespace stand with their job.", "-Allocated", nil,
					to("workload", label("namespace", "Namespace", 0), "namespace"),
					label("hpc_job", "Job", 80),
					digits(1, value("Allocated", byNamespace("dcgm_pod_gpu_allocated_seconds_total"), count, 85)),
					digits(1, value("Used", byNamespace("dcgm_pod_gpu_active_seconds_total"), count, 70)),
					digits(1, value("Idle", idle, count, 70)),
					digits(1, value("Power", byNamespace("dcgm_pod_gpu_energy_joules_total"), watts, 90)))),
				wide(24, height(8, grid("By node", "A row for each node.", "-Idle", []string{"instance", "hostname"},
					to("node", label("node", "Node", 0), "instance"),
					digits(0, value("GPUs", named("count by (instance, hostname) ("+field("DCGM_FI_DEV_GPU_TEMP", ofNode, byGPU)+")")+" or "+named("sum by (instance) ("+gpus+") unless on (instance) "+field("DCGM_FI_DEV_GPU_TEMP", ofNode, "instance")), count, 90)),
					digits(0, value("Down", "sum by (instance) (1 - "+gpus+")", count, 90)),
					digits(1, value("Allocated", "sum by (instance) ("+allocated+")", count, 110)),
					digits(1, value("Used", "sum by (instance) ("+active+")", count, 110)),
					digits(1, value("Idle", "sum by (instance) ("+wasted+")", count, 110)),
					digits(1, value("Power", powerOf("instance"), watts, 110)),
					digits(0, value("Hottest", field("DCGM_FI_DEV_GPU_TEMP", ofNode, "instance"), celsius, 110)),
					digits(0, value("Memory in use", "sum by (instance) ("+field("DCGM_FI_DEV_FB_USED", ofNode, byInstance)+") / sum by (instance) ("+
						field("DCGM_FI_DEV_FB_USED", ofNode, byInstance)+" + "+field("DCGM_FI_DEV_FB_FREE", ofNode, byInstance)+")", ratio, 130))))),
			}},
			{"Health", []sdk.Panel{
				wide(24, height(5, grid("Nodes without data", "Nodes that answered within the last six hours and whose exporter does not answer now, or has no data of its GPUs.", "Node", []string{"instance", "hostname"},
					to("node", label("node", "Node", 0), "instance"), label("reason", "Reason", 200),
					value("Missing", lately(withoutData()), "", 0)))),
				height(5, grid("Down", "GPUs and MIG instances that do not answer, and why.", "Node", []string{"instance", "hostname"},
					to("node", label("node", "Node", 0), "instance", "gpu"),
					label("gpu", "GPU", 60), label("GPU_I_ID", "Instance", 85), label("reason", "Reason", 120),
					value("Up", hosted("max by (instance, gpu, GPU_I_ID, reason) (dcgm_exporter_entity_up{"+ofNode+", UUID!=\"\"} == 0)"), "", 0))),
				height(5, grid("Stragglers", "GPUs that are less than half as busy as the median GPU of their job, of jobs with three GPUs and more, over ten minutes.", "Of the median", []string{"instance", "hostname"},
					to("workload", label("workload", "Job", 0), "namespace"), label("namespace", "Namespace", 110),
					to("node", label("node", "Node", 120), "instance", "gpu"), label("gpu", "GPU", 60), label("GPU_I_ID", "Instance", 85),
					digits(0, value("Of the median", hosted(stragglers(everyOwner)), ratio, 120)))),
				graph("GPUs down or with XIDs", "Counts over time.", count,
					line{orZero("count(" + gpus + " == 0)"), "down"}, line{orZero("count(" + withXID(ofNode) + ")"), "XID within the hour"}),
				graph("Clocks limited, by reason", "GPUs whose clocks are limited: GPU seconds per second.", count,
					line{"sum by (clock_event) (rate(DCGM_EXP_CLOCK_EVENT_SECONDS_TOTAL{" + ofNode + ", clock_event!=\"gpu_idle\"}[$__rate_interval]))", "{{clock_event}}"}),
			}},
		},
	}
}

// stragglers are the GPUs of a job that are far below the median of the job's GPUs, as a part of
// it.
func stragglers(owner owner) string {
	const job = "on (namespace, workload)"
	busy := "max by (instance, gpu, GPU_I_ID, namespace, workload) (" + jobbed(owner("dcgm_pod_gpu_utilization_ratio", ofNode, "avg_over_time", "[10m]")) + ")"
	return "((" + busy + " / " + job + " group_left () quantile by (namespace, workload) (0.5, " + busy + ")) < 0.5" +
		" and " + job + " count by (namespace, workload) (" + busy + ") >= 3)"
}
