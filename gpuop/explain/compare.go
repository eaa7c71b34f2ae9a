package explain

// Ways are the columns of the comparison, in its order.
func Ways() []string { return []string{"Streams", "MPS", "Time-slicing", "MIG", "vGPU"} }

// Row is one property of the ways to share a GPU.
type Row struct {
	Property string `json:"property"`
	// Cells are what NVIDIA's own comparison says, by the order of Ways.
	Cells [5]string `json:"cells"`
	// Disputed are the cells that other sources contradict.
	Disputed []Dispute `json:"disputed,omitempty"`
}

// Dispute is a cell of the comparison that another source contradicts.
type Dispute struct {
	// Way is the column.
	Way string `json:"way"`
	// Says is what the other source says, Source which it is.
	Says   string `json:"says"`
	Source string `json:"source"`
	// Verdict is what to reckon with.
	Verdict string `json:"verdict"`
}

// Compare returns the comparison of streams, MPS, time-slicing, MIG and vGPU that NVIDIA published
// in
// 2022 (NVIDIA technical blog, "Improving GPU Utilization in Kubernetes"), with its contradictions to
// other sources. The caller owns the result.
func Compare() []Row {
	const (
		pluginReadme = "k8s-device-plugin README, shared access to GPUs"
		isolation    = "article on AI workloads in Kubernetes, section on isolation"
		sameArticle  = "the same article, section on MPS"
	)
	return []Row{
		{Property: "Partition type", Cells: [5]string{"single process", "logical", "temporal (single process)", "physical", "temporal and physical, VMs"}},
		{Property: "Max partitions", Cells: [5]string{"unlimited", "48", "unlimited", "7", "variable"}, Disputed: []Dispute{
			{"MPS", "16 below compute capability 7.5", "k8s-device-plugin cmd/mps-control-daemon", "the control daemon refuses more than 16 on Volta, though its hardware serves 48"},
			{"MIG", "4 on boards with four slices", "MIG User Guide", "7 holds for A100 and later; A30 and RTX PRO 6000 have 4"},
		}},
		{Property: "SM performance isolation", Cells: [5]string{"no", "yes (by percentage, not partitioned)", "yes", "yes", "yes"}, Disputed: []Dispute{
			{"Time-slicing", "time is divided evenly among processes, no replica has a share of its own", pluginReadme, "reckon with none: one pod's load slows the others"},
		}},
		{Property: "Memory protection", Cells: [5]string{"no", "yes", "yes", "yes", "yes"}, Disputed: []Dispute{
			{"MPS", "memory protection is among the limits of MPS", sameArticle, "separate address spaces since Volta, but one server: limits hold, faults spread"},
			{"Time-slicing", "replicas have shared access to the memory, with no isolation", pluginReadme, "reckon with none: there is no limit, and one pod can take all the memory"},
			{"Time-slicing", "no isolation of processes or memory inside a GPU; share among trusting workloads only", isolation, "the same"},
		}},
		{Property: "Memory bandwidth QoS", Cells: [5]string{"no", "no", "no", "yes", "yes"}},
		{Property: "Error isolation", Cells: [5]string{"no", "no", "yes", "yes", "yes"}, Disputed: []Dispute{
			{"Time-slicing", "replicas run in the same fault domain: when one crashes, all do", pluginReadme, "reckon with none for faults of the GPU"},
		}},
		{Property: "Cross-partition interop", Cells: [5]string{"always", "IPC", "limited IPC", "limited IPC", "no"}},
		{Property: "Reconfigure", Cells: [5]string{"dynamic", "at process launch", "n/a", "when idle", "n/a"}, Disputed: []Dispute{
			{"Time-slicing", "a new config or node label restarts the plugin, pods keep running", "k8s-device-plugin cmd/config-manager", "replicas can change at any time"},
		}},
		{Property: "GPU management (telemetry)", Cells: [5]string{"n/a", "limited GPU metrics", "n/a", "yes, with containers", "yes, with live migration"}, Disputed: []Dispute{
			{"MIG", "A100 can analyse one instance at a time, H100 all at once", "NVIDIA MIG product page, specification table", "profiling metrics may be limited on A100"},
		}},
		{Property: "Use it for", Cells: [5]string{
			"concurrency inside one application",
			"several applications at once that can deal with limited resilience",
			"several applications that are not sensitive to latency, or tolerate jitter",
			"several applications at once that need resilience and QoS",
			"tenants in virtual machines, and what VM management gives",
		}},
		{Property: "In Kubernetes", Cells: [5]string{"invisible", "device-plugin config, sharing.mps", "device-plugin config, sharing.timeSlicing", "node label mig.config", "sandbox workloads"}, Disputed: []Dispute{
			{"Time-slicing", "offered by AWS and GCP only, MIG by AWS, Azure and GCP", "article on AI workloads in Kubernetes, section on sharing", "a managed feature there; with the GPU Operator it works on any platform"},
		}},
	}
}
