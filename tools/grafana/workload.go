//go:build generate

package main

import (
	sdk "github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// workload is the dashboard of those who use GPUs: namespace, then pod.
func workload() board {
	over := func(metric, function, window string) string { return owned(metric, ofNode, function, window) }
	const alloc, act, energy = "dcgm_pod_gpu_allocated_seconds_total", "dcgm_pod_gpu_active_seconds_total", "dcgm_pod_gpu_energy_joules_total"
	const match = " - on (instance, gpu, GPU_I_ID, namespace, pod, container, hpc_job) "
	idle := func(function, window string) string {
		return "clamp_min(" + over(alloc, function, window) + match + over(act, function, window) + ", 0)"
	}
	byPod := func(query string) string { return "sum by (namespace, pod, hpc_job) (" + query + ")" }
	const who = "{{namespace}} {{pod}} {{hpc_job}}"
	several := " and on (" + byDevice + ") (count by (" + byDevice + ") (" + holders(everyOwner, ofNode, byOwner, "") + ") > 1)"
	used := "max by (" + byOwner + ") (" + over("dcgm_pod_gpu_utilization_ratio", "avg_over_time", "[30m]") + ")"
	return board{
		file: "workload", title: "GPU workloads", from: "now-6h",
		about:     "What pods and jobs have of the GPUs, what they use of it, and what it costs: GPU seconds, energy, idle allocation, shared GPUs with every sharer.",
		variables: []sdk.VariableModel{nodeVariable(), namespaceVariable(), podVariable()},
		rows: []row{
			{"Now", []sdk.Panel{
				decimals(1, number("Allocated", "GPUs that are assigned.", count, plain(), "sum("+over(alloc, "rate", "[5m]")+")")),
				decimals(1, number("Used", "GPUs in which their work ran.", count, plain(), "sum("+over(act, "rate", "[5m]")+")")),
				decimals(1, number("Allocated and idle", "GPUs in which it did not, where that is known.", count, plain(), "sum("+idle("rate", "[5m]")+")")),
				number("Power", "Mean of five minutes.", watts, plain(), "sum("+over(energy, "rate", "[5m]")+")"),
				number("GPU time", "GPU time assigned over the range.", seconds, plain(), "sum("+over(alloc, "increase", "[$__range]")+")"),
				number("Energy", "Over the range: of work, and of idle time by the share that is assigned.", joules, plain(), "sum("+over(energy, "increase", "[$__range]")+")"),
			}},
			{"By namespace and pod", []sdk.Panel{
				stacked(graph("GPUs allocated, by namespace", "GPU seconds per second.", count, line{"sum by (namespace, hpc_job) (" + over(alloc, "rate", "[$__rate_interval]") + ")", "{{namespace}} {{hpc_job}}"})),
				stacked(graph("GPUs used, by pod", "GPU seconds per second in which their work ran.", count, line{byPod(over(act, "rate", "[$__rate_interval]")), who})),
				stacked(graph("Power by pod", "From the energy that is attributed.", watts, line{byPod(over(energy, "rate", "[$__rate_interval]")), who})),
				stacked(graph("Memory by pod", "Device memory in use.", inBytes, line{byPod(over("dcgm_pod_gpu_memory_used_bytes", "", "")), who})),
				wide(24, height(9, grid("Pods", "GPU time and energy over the range.", "-Idle", nil,
					to("workload", label("namespace", "Namespace", 160), "namespace"), to("workload", label("pod", "Pod", 0), "namespace", "pod"), label("hpc_job", "Job", 90),
					digits(1, value("Allocated", byPod(over(alloc, "increase", "[$__range]")), seconds, 110)),
					digits(1, value("Used", byPod(over(act, "increase", "[$__range]")), seconds, 110)),
					digits(1, value("Idle", byPod(idle("increase", "[$__range]")), seconds, 110)),
					digits(0, value("Of it used", byPod(over(act, "increase", "[$__range]"))+" / "+byPod(over(alloc, "increase", "[$__range]")+" and on (instance, gpu, GPU_I_ID, namespace, pod, container, hpc_job) "+over(act, "increase", "[$__range]")), ratio, 110)),
					digits(1, value("Energy", byPod(over(energy, "increase", "[$__range]")), joules, 110)),
					digits(1, value("Memory", byPod(over("dcgm_pod_gpu_memory_used_bytes", "", "")), inBytes, 110))))),
			}},
			{"What to look at", []sdk.Panel{
				grid("Allocated and idle", "Owners whose work kept a GPU or instance busy for less than 5 % of the last 30 minutes.", "Busy", []string{"instance", "hostname"},
					to("workload", label("namespace", "Namespace", 100), "namespace"), label("pod", "Pod", 0), label("hpc_job", "Job", 65),
					to("node", label("node", "Node", 110), "instance", "gpu"), label("gpu", "GPU", 55), label("GPU_I_ID", "Instance", 80),
					digits(1, value("Busy", hosted("("+used+" < 0.05)"), ratio, 70))),
				grid("Stragglers", "GPUs that are less than half as busy as the median GPU of their job, of jobs with three GPUs and more, over ten minutes.", "Of the median", []string{"instance", "hostname"},
					label("workload", "Job", 0), label("namespace", "Namespace", 110),
					to("node", label("node", "Node", 120), "instance", "gpu"), label("gpu", "GPU", 55), label("GPU_I_ID", "Instance", 80),
					digits(0, value("Of the median", hosted(stragglers(owned)), ratio, 120))),
				wide(24, height(11, grid("Shared GPUs", "Every owner of a GPU or instance that several share. What is empty is not known: see dcgm_exporter_attribution_unavailable.", "Node", []string{"instance", "hostname"},
					to("node", label("node", "Node", 140), "instance", "gpu"), label("gpu", "GPU", 60), label("GPU_I_ID", "Instance", 85), label("sharing", "Sharing", 120), label("replicas", "Replicas", 85),
					label("namespace", "Namespace", 130), label("pod", "Pod", 0), label("hpc_job", "Job", 70),
					value("Owners", hosted("("+holders(owned, ofNode, byOwner, ", sharing, replicas")+several+")"), "", 0),
					digits(0, value("Busy", "max by ("+byOwner+") ("+over("dcgm_pod_gpu_utilization_ratio", "avg_over_time", "[5m]")+")"+several, ratio, 80)),
					digits(1, value("Memory", "max by ("+byOwner+") ("+over("dcgm_pod_gpu_memory_used_bytes", "", "")+")"+several, inBytes, 110))))),
			}},
		},
	}
}
