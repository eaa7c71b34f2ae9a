package main

// details holds the sentences of docs/flags.md that follow the help of a setting, by config.Setting.ID.
var details = map[string]string{
	"collectors":     "If no file is named and the default path does not exist, the built-in copy is used.",
	"configmap-data": "The ConfigMap takes precedence over a counters file.",
	"vocabulary": "Names in your own counters file are never replaced: " +
		"current renames only those of the built-in files, and both adds the other name.",
	"compatibility": "Under strict, values of a GPU are repeated for its MIG instances, numbers are formatted as in " +
		"NVIDIA's exporter, each HPC job gets a copy of the series, and a shared GPU has one owner. Families that " +
		"NVIDIA's exporter lacks are off unless their flag is set. The host label has both spellings unless " +
		"--hostname-label selects one.",
	"enable-health-metrics": "The families are dcgm_exporter_entity_up, dcgm_exporter_field_unavailable and " +
		"dcgm_exporter_sample_age_seconds. They are off under --compatibility=strict.",
	"enable-accounting-metrics": "The families are dcgm_pod_gpu_*, dcgm_gpu_unattributed_* and " +
		"dcgm_exporter_attribution_unavailable. They are off under --compatibility=strict.",
	"collect-hang-limit": "A frozen host engine usually answers again after about a minute.",
	"xid-kernel-log": "While the log cannot be read, XIDs come from the driver. A simulated node has a simulated " +
		"log.",
	"source": "auto uses DCGM if it is available, else NVML, and retries until either is available. sim " +
		"simulates a node.",
	"remote-hostengine-info": "Prefer unix:// for an engine on the same machine.",
	"fallback": "auto is nvml if the host engine is embedded or on this machine, and none otherwise. The " +
		"exporter returns to DCGM when it is available again.",
	"devices":      "f watches every GPU and, if MIG is enabled on it, its GPU instances.",
	"sim-fallback": "make run sets it. Never use it in production: simulated values look real.",
	"sim-node":     "The default is a node with eight H100 GPUs, two of them partitioned by MIG.",
	"owner-labels": "series: only series of devices with exactly one owner, as in NVIDIA's exporter. copies: like " +
		"series, but the series of a GPU that several HPC jobs hold are repeated for each job. Sums then count the " +
		"device several times. This is the default under --compatibility=strict. info: only dcgm_pod_gpu_*, so that " +
		"pods and jobs that come and go create no new device series; join them with dcgm_pod_gpu_info. info cannot " +
		"be combined with --compatibility=strict.",
	"health-ignore": "Write each code as in the label health_error_code, with or without DCGM_FR_. The table of " +
		"findings in docs/verdict.md lists them. The series keep DCGM's value and get the label " +
		"treatment=\"informational\".",
	"kubernetes-pod-label-allowlist-regex": "Separate several expressions with commas, or repeat the flag.",
	"kubernetes-pod-label-limit": "The first labels in the order of their keys are added. Mimir rejects series with " +
		"more than 30 labels: see attribution.md.",
	"kubernetes-pod-log-directory": "The names are used for pods that the API server does not report. No log is " +
		"read. The directory need not exist. Set it to the empty string to disable it.",
	"kubernetes-virtual-gpus": "NVIDIA's exporter has the same flag. Utilization and used memory are the pod's own, " +
		"if known. All other copies repeat the device's value, so a sum counts the device several times: use " +
		"dcgm_pod_gpu_* for sums.",
	"nvidia-resource-names": "Separate several names with commas, or repeat the flag.",
	"KUBECONFIG": "By default the service account of the pod is used. The API server is read only for settings " +
		"that need it.",
	"hpc-job-mapping-dir": "A file is named by GPU index (0), GPU instance (0.1) or UUID (GPU-…, MIG-…, " +
		"GPU-….1).",
	"container-labels":                "The flag is for hosts without Kubernetes.",
	"container-runtime-socket":        "The default is the first of the usual Docker and Podman sockets that exists.",
	"container-label-allowlist-regex": "Separate several expressions with commas, or repeat the flag.",
	"max-series": "Above the limit, series are dropped in this order: pod labels, copies for virtual GPUs and jobs, " +
		"accounting families, and families that are not in the default counters file. " +
		"dcgm_exporter_max_series_dropped counts them.",
	"web-enable-lifecycle": "The route needs authentication in --web-config-file, or an --address on loopback.",
	"enable-pprof":         "The routes need authentication in --web-config-file, or an --address on loopback.",
	"web-landing-page":     "The page reads /metrics once per collection interval.",
	"enable-exporter-metrics": "The metrics cover collection, configuration, the Go runtime and the process. They " +
		"are off under --compatibility=strict.",
}
