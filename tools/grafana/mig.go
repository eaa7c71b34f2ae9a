//go:build generate

package main

import (
	sdk "github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// mig is the dashboard of GPUs that MIG cuts: layout and use.
func mig() board {
	const instance = "{{node}} GPU {{gpu}} {{GPU_I_PROFILE}} {{GPU_I_ID}}"
	const cut = ofGPU + `, GPU_I_ID!=""`
	up := `max by (instance, gpu, GPU_I_ID) (dcgm_exporter_entity_up{` + cut + `})`
	owner := taken(cut)
	per := func(classic string) string { return field(classic, cut, byInstance) }
	// The profile stands at device series: memory is there without profiling.
	layout := per("DCGM_FI_DEV_FB_FREE")
	const key = byDevice
	// A value of an instance is shown at each of its owners.
	shown := func(query, more string) string {
		return "(" + query + " * on (" + key + ") group_right (" + more + ") " + holders(everyOwner, cut, byOwner, "") + " or on (" + key + ") " + query + ")"
	}
	busy := "max by (" + key + ") (" + fieldOver("DCGM_FI_PROF_GR_ENGINE_ACTIVE", cut, byInstance, "avg_over_time", "[5m]") + ")"
	return board{
		file: "mig", title: "MIG", from: "now-6h",
		about:     "GPUs that MIG cuts: which instances there are, who has them, what they do.",
		variables: []sdk.VariableModel{nodeVariable(), gpuVariable()},
		rows: []row{
			{"Now", []sdk.Panel{
				number("GPUs cut by MIG", "GPUs with instances.", count, plain(), orZero("count(count by (instance, gpu) ("+up+"))")),
				number("Instances", "GPU instances.", count, plain(), orZero("count("+up+")")),
				number("With an owner", "Instances that a pod or job has, or a part of which one has.", count, plain(), orZero("count("+owner+" and on ("+key+") "+up+")")),
				number("Free", "Instances that no pod or job has.", count, plain(), orZero("count("+up+" unless on ("+key+") "+owner+")")),
				number("With an owner and idle", "Instances with an owner whose engine was busy for less than 5 % of five minutes.", count, plain(),
					orZero("count(("+busy+" < 0.05) and on ("+key+") "+owner+")")),
				number("Memory in use", "Part of the memory of all instances.", ratio, plain(), "sum("+per("DCGM_FI_DEV_FB_USED")+") / (sum("+per("DCGM_FI_DEV_FB_USED")+") + sum("+per("DCGM_FI_DEV_FB_FREE")+"))"),
			}},
			{"Layout", []sdk.Panel{
				wide(24, height(12, grid("Instances", "A row for each owner of an instance; free instances have none.", "Node", []string{"instance", "hostname"},
					to("node", label("node", "Node", 180), "instance", "gpu"), label("gpu", "GPU", 70), label("GPU_I_ID", "Instance", 90), label("GPU_I_PROFILE", "Profile", 110),
					label("namespace", "Namespace", 160), to("workload", label("pod", "Pod", 0), "namespace", "pod"),
					label("hpc_job", "Job", 90),
					value("There", named(shown(layout, "hostname, GPU_I_PROFILE")), "", 0),
					digits(0, value("Busy", shown(busy, ""), ratio, 80)),
					digits(1, value("Memory", shown("max by ("+key+") ("+per("DCGM_FI_DEV_FB_USED")+")", ""), inBytes, 120))))),
				height(7, grid("Profiles", "How many instances of each profile there are, and how many of them are free.", "-Instances", nil,
					label("GPU_I_PROFILE", "Profile", 0),
					digits(0, value("Instances", "count by (GPU_I_PROFILE) ("+layout+")", count, 120)),
					digits(0, value("With an owner", "count by (GPU_I_PROFILE) ("+layout+" and on ("+key+") "+owner+")", count, 140)),
					digits(0, value("Free", "count by (GPU_I_PROFILE) ("+layout+" unless on ("+key+") "+owner+")", count, 120)))),
				height(7, graph("Instances by profile", "A step is a GPU that was partitioned again.", count, line{"count by (GPU_I_PROFILE) (" + layout + ")", "{{GPU_I_PROFILE}}"})),
			}},
			{"Use", []sdk.Panel{
				wide(24, graph("Engine active", "Part of the time in which the instance's engine was busy.", ratio, line{named(per("DCGM_FI_PROF_GR_ENGINE_ACTIVE")), instance})),
				graph("Memory in use", "Of each instance.", inBytes, line{named(per("DCGM_FI_DEV_FB_USED")), instance}),
				graph("Tensor cores active", "Part of the cycles in which the tensor pipe of the instance was active.", ratio, line{named(per("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE")), instance}),
			}},
		},
	}
}
