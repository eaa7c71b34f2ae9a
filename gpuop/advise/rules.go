package advise

// A Mode is a way to share a GPU, or not to.
type Mode string

// The modes.
const (
	None        Mode = "none"         // GPUs of its own
	Streams     Mode = "streams"      // concurrency inside the one application
	MPS         Mode = "mps"          // clients of one MPS server
	TimeSlicing Mode = "time-slicing" // replicas that take turns
	MIG         Mode = "mig"          // GPU instances
	VGPU        Mode = "vgpu"         // by the hypervisor
)

// Thresholds of the rules: ratios of the window's time, of the SMs' or memory's cycles, or of the
// GPU's memory.
const (
	idleBelow      = 0.05 // 95th percentile of an idle pod's activity: docs/sharing.md calls that idle
	busyMean       = 0.5  // two of them fill a GPU
	busyP95        = 0.9
	busyP95Mean    = 0.4
	halfOfMemory   = 0.5
	bandwidthP95   = 0.2 // 95th percentile of DRAM activity from which bandwidth is worth a share
	bandwidthRatio = 0.8 // DRAM activity to GPU activity, where SM activity is not known
	burstRatio     = 3.0 // 95th percentile to mean
	smallP95       = 0.35
	memoryFilled   = 0.9  // of a GPU's memory by the peaks of all its pods
	timeFilled     = 0.7  // of a GPU's time by its pods together
	headroom       = 1.1  // memory of a slice to the peak
	usable         = 0.94 // of a slice's nominal memory: a 1g.10gb of 80 GB has 9,728 MiB of 10,240
)

// A Rule is a row of the decision table. The first that holds decides.
type Rule struct {
	ID string `json:"id"`
	// When is the condition in words.
	When string `json:"when"`
	// Mode is what it recommends, Otherwise what where the board has no MIG and Mode is MIG.
	Mode      Mode `json:"mode"`
	Otherwise Mode `json:"otherwise,omitempty"`
	// Because is the reason in words.
	Because string `json:"because"`
	// Property and Way name the cell of the comparison (gpuop explain compare) that it rests on; empty
	// where none says it.
	Property string `json:"property,omitempty"`
	Way      string `json:"way,omitempty"`

	holds func(w *Workload, f facts) bool
}

// facts are what a rule may know beside the workload.
type facts struct {
	capacity  float64 // bytes of the whole GPU
	mps       bool    // the GPU's architecture has MPS with limits: Volta and later
	strangers bool    // those that could share are of namespaces that don't trust each other
}

// Rules is the decision table, in its order. The caller owns the result.
func Rules() []Rule {
	return []Rule{
		{ID: "vgpu", When: "the GPU is a licensed vGPU", Mode: VGPU,
			Because:  "the machine is a guest: its hypervisor shares the GPU, and gives the guest another profile",
			Property: "Partition type", Way: "vGPU",
			holds: func(w *Workload, _ facts) bool { return w.virtual }},
		{ID: "unknown", When: "its activity or memory has no sample", Mode: None,
			Because: "without its activity and memory nothing can be said of it",
			holds: func(w *Workload, f facts) bool {
				return !w.Active.Known() || !w.Memory.Known() || f.capacity == 0
			}},
		{ID: "several-gpus", When: "a pod holds several GPUs", Mode: None,
			Because: "it spreads one job over whole GPUs; several replicas or instances are not several GPUs",
			holds:   func(w *Workload, _ facts) bool { return w.each > 1 }},
		{ID: "busy", When: "active for half of the time or more, or for 40 % with peaks of 90 %", Mode: None,
			Because: "it fills the GPU or instance that it has: whatever shares it takes time or SMs from it",
			holds: func(w *Workload, _ facts) bool {
				return w.Active.Mean >= busyMean || w.Active.P95 >= busyP95 && w.Active.Mean >= busyP95Mean
			}},
		{ID: "one-application", When: "its memory's peak is more than half of the GPU's", Mode: Streams,
			Because:  "no second one fits beside it, and the GPU is idle most of the time: only concurrency inside the application uses it better",
			Property: "Use it for", Way: "Streams",
			holds: func(w *Workload, f facts) bool { return w.Memory.Max > halfOfMemory*f.capacity }},
		{ID: "bandwidth-bound", When: "memory is as active as the SMs, at 20 % or more", Mode: MIG, Otherwise: None,
			Because:  "it is bound by memory bandwidth, of which MIG alone gives each pod a part of its own",
			Property: "Memory bandwidth QoS", Way: "MIG",
			holds: func(w *Workload, _ facts) bool { return w.bandwidthBound() }},
		{ID: "strangers", When: "those that could share are of several namespaces", Mode: MIG, Otherwise: TimeSlicing,
			Because:  "pods of different namespaces are not assumed to trust each other, and MIG isolates memory and errors",
			Property: "Error isolation", Way: "MIG",
			holds: func(_ *Workload, f facts) bool { return f.strangers }},
		{ID: "idle", When: "95 % of the time under 5 % active", Mode: TimeSlicing,
			Because:  "interactive pods tolerate jitter, and each has the whole GPU while the others are idle",
			Property: "Use it for", Way: "Time-slicing",
			holds: func(w *Workload, _ facts) bool { return w.Active.P95 < idleBelow }},
		{ID: "bursty", When: "peaks (95th percentile) of three times the mean or more", Mode: TimeSlicing,
			Because:  "each burst gets the whole GPU while the others are idle, which neither an instance nor a limit of threads gives",
			Property: "Use it for", Way: "Time-slicing",
			holds: func(w *Workload, _ facts) bool { return w.bursty() }},
		{ID: "small-steady", When: "95 % of the time under 35 % active, without bursts", Mode: MPS,
			Because:  "small work that does not wait for its turn: kernels of several pods run at the same time, and pods of one namespace can live with one fault domain",
			Property: "Use it for", Way: "MPS",
			holds: func(w *Workload, f facts) bool { return f.mps && w.Active.P95 <= smallP95 }},
		{ID: "small-steady-old", When: "the same, on a GPU before Volta", Mode: TimeSlicing,
			Because:  "before Volta MPS limits neither memory nor threads",
			Property: "Use it for", Way: "Time-slicing",
			holds: func(w *Workload, f facts) bool { return !f.mps && w.Active.P95 <= smallP95 }},
		{ID: "moderate", When: "everything else", Mode: MIG, Otherwise: None,
			Because:  "steady work of this size needs SMs of its own",
			Property: "SM performance isolation", Way: "MIG",
			holds: func(*Workload, facts) bool { return true }},
	}
}
