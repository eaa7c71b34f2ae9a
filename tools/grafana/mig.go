//go:build generate

package main

import (
	sdk "github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// ofInstance matches the series of MIG instances.
const ofInstance = ofGPU + `, GPU_I_ID!=""`

// ofEach returns a query of a field of each MIG instance.
func ofEach(classic string) string { return field(classic, ofInstance, byInstance) }

// mig returns the dashboard of partitioned GPUs.
func mig() board {
	return board{
		file: "mig", title: "MIG", from: "now-6h",
		about:     "MIG instances, their owners and their activity.",
		variables: []sdk.VariableModel{nodeVariable(), gpuVariable()},
		rows: []row{
			{"Now", migNow()},
			{"Layout", migLayout()},
			{"Use", migUse()},
		},
	}
}

// migBusy returns a query of the engine activity of MIG instances.
func migBusy() string {
	busy := fieldOver("DCGM_FI_PROF_GR_ENGINE_ACTIVE", ofInstance, byInstance, "avg_over_time", "[5m]")
	return "max by (" + byDevice + ") (" + busy + ")"
}

func migNow() []sdk.Panel {
	const up = `max by (` + byDevice + `) (dcgm_exporter_entity_up{` + ofInstance + `})`
	owner := taken(ofInstance)
	used, free := ofEach("DCGM_FI_DEV_FB_USED"), ofEach("DCGM_FI_DEV_FB_FREE")
	return []sdk.Panel{
		number("GPUs with MIG", "mig/Instances",
			"GPUs that have MIG instances.",
			count, plain(), orZero("count(count by (instance, gpu) ("+up+"))")),
		number("Instances", "mig/Instances",
			"GPU instances.",
			count, plain(), orZero("count("+up+")")),
		number("Allocated", "mig/Instances",
			"Instances that a pod or job holds, in whole or in part.",
			count, plain(), orZero("count("+owner+" and on ("+byDevice+") "+up+")")),
		number("Free", "mig/Profiles",
			"Instances that no pod or job holds.",
			count, plain(), orZero("count("+up+" unless on ("+byDevice+") "+owner+")")),
		number("Allocated and idle", "mig/Instances",
			"Allocated instances whose engine was busy for less than 5 % of the last five minutes.",
			count, plain(), orZero("count(("+migBusy()+" < 0.05) and on ("+byDevice+") "+owner+")")),
		number("Memory in use", "mig/Memory in use",
			"Fraction of the memory of all instances.",
			ratio, plain(), "sum("+used+") / (sum("+used+") + sum("+free+"))"),
	}
}

func migLayout() []sdk.Panel {
	// free memory needs no profiling, and its series have the profile as a label
	layout := ofEach("DCGM_FI_DEV_FB_FREE")
	// an instance gets a row for each of its owners, or one row if it has none
	perOwner := func(query, more string) string {
		return "(" + query + " * on (" + byDevice + ") group_right (" + more + ") " +
			owners(everyOwner, ofInstance, byOwner, "") + " or on (" + byDevice + ") " + query + ")"
	}
	memory := "max by (" + byDevice + ") (" + ofEach("DCGM_FI_DEV_FB_USED") + ")"
	owner := " on (" + byDevice + ") " + taken(ofInstance)
	perProfile := func(query string) string { return "count by (GPU_I_PROFILE) (" + query + ")" }
	return []sdk.Panel{
		wide(24, height(12, grid("Instances",
			"One row per owner of an instance. Free instances have no owner.",
			"Node", []string{"instance", "hostname"},
			to("node", label("node", "Node", 180), "instance", "gpu"), label("gpu", "GPU", 70),
			label("GPU_I_ID", "Instance", 90), label("GPU_I_PROFILE", "Profile", 110),
			label("namespace", "Namespace", 160), to("workload", label("pod", "Pod", 0), "namespace", "pod"),
			label("hpc_job", "Job", 90),
			value("There", named(perOwner(layout, "hostname, GPU_I_PROFILE")), "", 0),
			digits(0, value("Busy", perOwner(migBusy(), ""), ratio, 80)),
			digits(1, value("Memory", perOwner(memory, ""), inBytes, 120))))),
		height(7, grid("Profiles",
			"Number of instances of each profile, and how many of them are free.",
			"-Instances", nil,
			label("GPU_I_PROFILE", "Profile", 0),
			digits(0, value("Instances", perProfile(layout), count, 120)),
			digits(0, value("Allocated", perProfile(layout+" and"+owner), count, 140)),
			digits(0, value("Free", perProfile(layout+" unless"+owner), count, 120)))),
		height(7, graph("Instances by profile",
			"A step means that a GPU was repartitioned.",
			count, line{perProfile(layout), "{{GPU_I_PROFILE}}"})),
	}
}

func migUse() []sdk.Panel {
	const instance = "{{node}} GPU {{gpu}} {{GPU_I_PROFILE}} {{GPU_I_ID}}"
	return []sdk.Panel{
		wide(24, graph("Engine active",
			"Fraction of time in which the engine of the instance was busy.",
			ratio, line{named(ofEach("DCGM_FI_PROF_GR_ENGINE_ACTIVE")), instance})),
		graph("Memory in use",
			"Memory in use on each instance.",
			inBytes, line{named(ofEach("DCGM_FI_DEV_FB_USED")), instance}),
		graph("Tensor cores active",
			"Fraction of cycles in which the tensor pipe of the instance was active.",
			ratio, line{named(ofEach("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE")), instance}),
	}
}
