//go:build generate

package main

import (
	sdk "github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// These families account for the use of GPUs by their owners.
const (
	podAllocated = "dcgm_pod_gpu_allocated_seconds_total"
	podActive    = "dcgm_pod_gpu_active_seconds_total"
	podEnergy    = "dcgm_pod_gpu_energy_joules_total"
	podMemory    = "dcgm_pod_gpu_memory_used_bytes"
	podBusy      = "dcgm_pod_gpu_utilization_ratio"
)

// byAccount lists the labels that identify a series of these families.
const byAccount = byDevice + ", namespace, pod, container, hpc_job"

// account returns a query of such a family for the selected owners.
func account(metric, function, window string) string { return owned(metric, ofNode, function, window) }

// idleAccount returns a query of the allocated time in which no work ran.
func idleAccount(function, window string) string {
	return "clamp_min(" + account(podAllocated, function, window) + " - on (" + byAccount + ") " +
		account(podActive, function, window) + ", 0)"
}

// byPod sums a query for each pod or batch job.
func byPod(query string) string { return "sum by (namespace, pod, hpc_job) (" + query + ")" }

// workload returns the dashboard for users of GPUs, by namespace and pod.
func workload() board {
	return board{
		file: "workload", title: "GPU workloads", from: "now-6h",
		about: "GPUs that pods and jobs hold and use: GPU time, energy, " +
			"idle allocation and shared GPUs with all owners.",
		variables: []sdk.VariableModel{nodeVariable(), namespaceVariable(), podVariable()},
		rows: []row{
			{"Now", workloadNow()},
			{"By namespace and pod", workloadByPod()},
			{"Problems", workloadProblems()},
		},
	}
}

func workloadNow() []sdk.Panel {
	return []sdk.Panel{
		decimals(1, number("Allocated", "workload/Pods",
			"GPUs assigned to pods or jobs.",
			count, plain(), "sum("+account(podAllocated, "rate", "[5m]")+")")),
		decimals(1, number("Used", "workload/Pods",
			"GPUs on which their owners' processes ran.",
			count, plain(), "sum("+account(podActive, "rate", "[5m]")+")")),
		decimals(1, number("Allocated and idle", "workload/Allocated and idle",
			"Allocated GPUs on which their owners' processes did not run. Shares with unknown activity are excluded.",
			count, plain(), "sum("+idleAccount("rate", "[5m]")+")")),
		number("Power", "workload/Power by pod",
			"Mean power over five minutes.",
			watts, plain(), "sum("+account(podEnergy, "rate", "[5m]")+")"),
		number("GPU time", "workload/Pods",
			"GPU time allocated in the time range.",
			seconds, plain(), "sum("+account(podAllocated, "increase", "[$__range]")+")"),
		number("Energy", "workload/Pods",
			"Energy in the time range. Active energy is attributed by use, idle energy by allocation.",
			joules, plain(), "sum("+account(podEnergy, "increase", "[$__range]")+")"),
	}
}

func workloadByPod() []sdk.Panel {
	const pod = "{{namespace}} {{pod}} {{hpc_job}}"
	rate := func(metric string) string { return account(metric, "rate", "[$__rate_interval]") }
	return []sdk.Panel{
		stacked(graph("GPUs allocated, by namespace",
			"GPU seconds per second.",
			count, line{"sum by (namespace, hpc_job) (" + rate(podAllocated) + ")", "{{namespace}} {{hpc_job}}"})),
		stacked(graph("GPUs used, by pod",
			"GPU seconds per second in which the owner's work ran.",
			count, line{byPod(rate(podActive)), pod})),
		stacked(graph("Power by pod",
			"Computed from the energy attributed to the pod.",
			watts, line{byPod(rate(podEnergy)), pod})),
		stacked(graph("Memory by pod",
			"Device memory in use.",
			inBytes, line{byPod(account(podMemory, "", "")), pod})),
		workloadPods(),
	}
}

func workloadPods() sdk.Panel {
	over := func(metric string) string { return account(metric, "increase", "[$__range]") }
	used := byPod(over(podActive)) + " / " +
		byPod(over(podAllocated)+" and on ("+byAccount+") "+over(podActive))
	return wide(24, height(9, grid("Pods",
		"GPU time and energy in the time range.",
		"-Idle", nil,
		to("workload", label("namespace", "Namespace", 160), "namespace"),
		to("workload", label("pod", "Pod", 0), "namespace", "pod"), label("hpc_job", "Job", 90),
		digits(1, value("Allocated", byPod(over(podAllocated)), seconds, 110)),
		digits(1, value("Used", byPod(over(podActive)), seconds, 110)),
		digits(1, value("Idle", byPod(idleAccount("increase", "[$__range]")), seconds, 110)),
		digits(0, value("Fraction used", used, ratio, 110)),
		digits(1, value("Energy", byPod(over(podEnergy)), joules, 110)),
		digits(1, value("Memory", byPod(account(podMemory, "", "")), inBytes, 110)))))
}

func workloadProblems() []sdk.Panel {
	mean := func(window string) string {
		return "max by (" + byOwner + ") (" + account(podBusy, "avg_over_time", window) + ")"
	}
	shared := " and on (" + byDevice + ") (count by (" + byDevice + ") (" +
		owners(everyOwner, ofNode, byOwner, "") + ") > 1)"
	memory := "max by (" + byOwner + ") (" + account(podMemory, "", "") + ")"
	return []sdk.Panel{
		grid("Allocated and idle",
			"Owners whose work kept a GPU or MIG instance busy for less than 5 % of the last 30 minutes.",
			"Busy", []string{"instance", "hostname"},
			to("workload", label("namespace", "Namespace", 100), "namespace"), label("pod", "Pod", 0),
			label("hpc_job", "Job", 65), to("node", label("node", "Node", 110), "instance", "gpu"),
			label("gpu", "GPU", 55), label("GPU_I_ID", "Instance", 80),
			digits(1, value("Busy", hosted("("+mean("[30m]")+" < 0.05)"), ratio, 70))),
		stragglerTable(owned),
		wide(24, height(11, grid("Shared GPUs",
			"One row per owner of a shared GPU or MIG instance. Unknown values are empty; "+
				"dcgm_exporter_attribution_unavailable has the reason.",
			"Node", []string{"instance", "hostname"},
			to("node", label("node", "Node", 140), "instance", "gpu"), label("gpu", "GPU", 60),
			label("GPU_I_ID", "Instance", 85), label("sharing", "Sharing", 120), label("replicas", "Replicas", 85),
			label("namespace", "Namespace", 130), label("pod", "Pod", 0), label("hpc_job", "Job", 70),
			value("Owners", hosted("("+owners(owned, ofNode, byOwner, ", sharing, replicas")+shared+")"), "", 0),
			digits(0, value("Busy", mean("[5m]")+shared, ratio, 80)),
			digits(1, value("Memory", memory+shared, inBytes, 110))))),
	}
}
