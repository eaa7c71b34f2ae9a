package advise

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/mig"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/sharing"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/telemetry"
)

const (
	high   = "high"
	medium = "medium"
	low    = "low"
)

// What a window must have for its confidence: a week has the rhythm of its days, a day that of its
// hours.
const (
	highWindow   = 6 * 24 * time.Hour
	mediumWindow = 20 * time.Hour
	highCovered  = 0.9
	someCovered  = 0.5
	fewSamples   = 60
)

// confidence says how well the recommendation is founded, and what is missing.
func (m *model) confidence(r *Recommendation, u *telemetry.Usage) {
	level := 2 // high
	lower := func(to int, missing string) {
		level = min(level, to)
		if !slices.Contains(r.Missing, missing) {
			r.Missing = append(r.Missing, missing)
		}
	}
	window := u.To.Sub(u.From)
	switch {
	case u.Step == 0:
		lower(0, "a window: this is what the GPUs did while they were scraped; --prometheus reads days")
	case window < mediumWindow:
		lower(0, fmt.Sprintf("a day at least: the window is %s", span(window)))
	case window < highWindow:
		lower(1, fmt.Sprintf("a week: the window is %s", span(window)))
	}
	switch {
	case u.Covered < someCovered:
		lower(0, fmt.Sprintf("samples for %.0f %% of the window", 100*(1-u.Covered)))
	case u.Covered < highCovered:
		lower(1, fmt.Sprintf("samples for %.0f %% of the window", 100*(1-u.Covered)))
	}
	r.Samples = math.MaxInt
	for _, w := range r.Workloads {
		r.Samples = min(r.Samples, w.Active.Samples)
	}
	for _, gap := range []struct {
		to   int
		what string
		of   func(*Workload) bool
	}{
		{0, "activity", func(w *Workload) bool { return !w.Active.Known() }},
		{0, "memory", func(w *Workload) bool { return !w.Memory.Known() }},
		{0, "shares of pods on shared devices (dcgm_pod_gpu_*, which this project's exporter makes; the device's values stand for each pod)", func(w *Workload) bool { return w.Active.Known() && !w.Measured }},
		{1, "DCGM_FI_PROF_DRAM_ACTIVE of a pod alone on its device (whether memory bandwidth binds)", func(w *Workload) bool { return w.Active.Known() && !w.DRAM.Known() }},
		{2, "DCGM_FI_PROF_SM_ACTIVE of a pod alone on its device (the time in which anything ran stands for the SMs it needs, which is at least as much)", func(w *Workload) bool { return w.Active.Known() && !w.SM.Known() }},
	} {
		var of []*Workload
		for _, w := range r.Workloads {
			if gap.of(w) {
				of = append(of, w)
			}
		}
		if len(of) > 0 {
			lower(gap.to, gap.what+": "+Names(of))
		}
	}
	if !u.Has("dcgm_pod_gpu_info") {
		lower(1, "dcgm_pod_gpu_info, with which this project's exporter names every pod of a shared GPU; NVIDIA's names one of them")
	}
	if r.Samples < fewSamples && u.Step != 0 {
		lower(0, fmt.Sprintf("samples: a workload has %d", r.Samples))
	}
	if m.board == nil {
		if _, err := sharing.FindGPU(m.Product); err != nil {
			lower(1, "the model: "+err.Error())
		}
	}
	r.Confidence = []string{low, medium, high}[level]
}

func span(d time.Duration) string {
	if d >= 48*time.Hour && d%(24*time.Hour) == 0 {
		return fmt.Sprintf("%d days", d/(24*time.Hour))
	}
	return d.Round(time.Minute).String()
}

// Names writes up to three workloads by name, and counts the others.
func Names(list []*Workload) string {
	var all []string
	for _, w := range list {
		all = append(all, w.id())
	}
	if len(all) > 3 {
		all = append(all[:2], fmt.Sprintf("%d more", len(all)-2))
	}
	return strings.Join(all, ", ")
}

// GiB writes bytes.
func GiB(bytes float64) string { return fmt.Sprintf("%.1f GiB", bytes/(1<<30)) }

// risks adds what the mode does not protect from, with what was seen of it.
func (m *model) risks(r *Recommendation, pods int) {
	add := func(id, format string, args ...any) {
		r.Risks = append(r.Risks, Note{id, fmt.Sprintf(format, args...)})
	}
	largest, namespaces := 0.0, map[string]bool{}
	for _, w := range r.Workloads {
		largest = max(largest, w.Memory.Max)
		namespaces[w.Namespace] = true
	}
	overlap := together(r.Workloads, false).overlap
	n := float64(r.Replicas)
	switch r.Mode {
	case TimeSlicing:
		add("isolation", "none of memory or errors: a pod can take all the memory, and its fault can end its neighbors")
		add("oom", "%d pods at the highest peak seen (%s) are %s of %s; nothing limits them", r.Replicas, GiB(largest), GiB(n*largest), GiB(m.capacity))
		add("jitter", "two or more pods were active in %.0f %% of the steps: they then take turns, and each is slower by their number", 100*overlap)
	case MPS:
		limits := sharing.MPSLimits(mig.GPU{Product: m.gpu.Product, MemoryMiB: int(m.capacity / (1 << 20))}, r.Replicas)
		add("isolation", "one fault domain: a fatal fault of one client can end all %d on the GPU", r.Replicas)
		add("oom", "each client gets %d MiB; the highest peak seen is %s", limits.MemoryMiB, GiB(largest))
		add("threads", "each client gets %d %% of the threads; the most that a pod used is %.0f %%", limits.ThreadPercent, 100*m.mostCompute(r.Workloads))
	case MIG:
		for _, w := range r.Workloads {
			if p, ok := m.board.Profile(r.Slices[w.id()]); ok {
				size := m.capacity * float64(p.Memory) / float64(m.board.MemorySlices) * usable
				if w.Memory.Max*1.5 > size {
					add("oom", "%s peaks at %s of the %s of %s", w.id(), GiB(w.Memory.Max), GiB(size), p.Name)
				}
				if (w.bursty() || w.Shape == "idle") && float64(p.Compute)/float64(m.board.ComputeSlices) < w.compute() {
					add("burst", "bursts of %s run on %d of %d slices, and take longer for it", w.id(), p.Compute, m.board.ComputeSlices)
				}
			}
		}
		add("reconfigure", "a GPU must be idle to be partitioned, and again for every other geometry: pods are evicted first")
		add("resource", "pods request %s in place of %s", strings.Join(m.resources(r), ", "), mig.WholeGPU)
		if m.board.Evidence != mig.Attested {
			add("assumed", "the placements of %s are assumed from the pattern of other boards; nvidia-smi mig -lgipp prints the board's own", m.board.Name)
		}
	}
	if len(namespaces) > 1 && r.Mode != MIG {
		add("namespaces", "pods of %d namespaces share a GPU, as --trusted allows", len(namespaces))
	}
	if pods < r.Needed*r.Replicas && r.Mode != MIG {
		add("room", "%d replicas stay free", r.Needed*r.Replicas-pods)
	}
}

// resources are the extended resources of the instances: under the strategy single they are
// called as whole GPUs are.
func (m *model) resources(r *Recommendation) []string {
	single := !slices.ContainsFunc(r.Partitions, func(p Partition) bool { return p.Strategy != mig.StrategySingle })
	var names []string
	for _, profile := range r.Slices {
		name := mig.ResourceName(profile)
		if single {
			name += " (or " + mig.WholeGPU + " under mig.strategy=single)"
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (m *model) mostCompute(list []*Workload) float64 {
	most := 0.0
	for _, w := range list {
		most = max(most, w.compute())
	}
	return most
}

// alternatives says of the other ways what speaks against them here.
func (m *model) alternatives(r *Recommendation, pods int) {
	add := func(mode Mode, text string) { r.NotChosen = append(r.NotChosen, Note{string(mode), text}) }
	if r.Mode != TimeSlicing {
		switch {
		case r.Mode == MPS:
			add(TimeSlicing, "pods take turns: latency grows with the number of pods that are active")
		case slices.Contains(r.Rules, "bandwidth-bound"):
			add(TimeSlicing, "memory bandwidth goes to whichever pod runs, without a share for each")
		default:
			add(TimeSlicing, "no isolation of memory or errors between namespaces; --trusted says that they trust each other")
		}
	}
	if r.Mode != MPS {
		switch {
		case r.Mode == TimeSlicing:
			add(MPS, "its limit of threads caps each burst, and it makes one fault domain of pods that need no concurrency")
		case slices.Contains(r.Rules, "bandwidth-bound"):
			add(MPS, "limits threads and memory, not memory bandwidth")
		default:
			add(MPS, "one fault domain for all clients")
		}
	}
	if r.Mode != MIG {
		switch n := m.instances(r.Workloads); {
		case m.board == nil:
			add(MIG, "this model has none that is known")
		case n == 0:
			add(MIG, "no slice of half a GPU or less holds each of the pods")
		default:
			add(MIG, fmt.Sprintf("holds them too, with isolation, on %s in place of %d; bursts are held to the slice", counted(n), r.Needed))
		}
	}
	add(Streams, "work inside one process only; these are "+fmt.Sprint(pods)+" pods")
	add(VGPU, "for virtual machines; no GPU here is a vGPU")
}

// instances is how many GPUs the workloads would take under MIG, 0 where some fit no slice.
func (m *model) instances(list []*Workload) int {
	if m.board == nil {
		return 0
	}
	for _, w := range list {
		if m.slice(w) == nil {
			return 0
		}
	}
	r := Recommendation{Workloads: list}
	m.partition(&r)
	return r.Needed
}

// counted counts GPUs: "1 GPU", "3 GPUs".
func counted(n int) string {
	if n == 1 {
		return "1 GPU"
	}
	return fmt.Sprintf("%d GPUs", n)
}
