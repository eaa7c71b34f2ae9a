package advise

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/mig"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/telemetry"
)

// A Workload is the evidence: pods of one owner on GPUs of one model.
type Workload struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Pods is how many there were at the same time at most, GPUs on how many GPUs within the window.
	Pods int `json:"pods"`
	GPUs int `json:"gpus"`
	// Active is a ratio of time of one pod on one GPU, Memory in bytes; SM, Occupancy and DRAM are
	// ratios of the GPU's, known where a pod had a GPU or instance alone. Means are over all pods,
	// percentiles and maxima those of the pod with the highest.
	Active    telemetry.Stat `json:"active"`
	Memory    telemetry.Stat `json:"memoryBytes"`
	SM        telemetry.Stat `json:"smActive"`
	Occupancy telemetry.Stat `json:"smOccupancy"`
	DRAM      telemetry.Stat `json:"dramActive"`
	// Shape is idle, bursty, steady or unknown.
	Shape string `json:"shape"`
	// Now is how it has its GPUs: alone, time-slicing, mps, dra, mig, shared.
	Now string `json:"now"`
	// With are the other workloads on its GPUs, as namespace/name.
	With []string `json:"with,omitempty"`
	// Measured says that activity and memory are those of its pods by their processes or devices of
	// their own, not those of a device that several share.
	Measured bool `json:"measured"`
	// Rule is the row of the decision table that holds.
	Rule string `json:"rule"`

	virtual bool
	each    int     // GPUs of one pod, at most
	part    float64 // of a GPU, that it has now: 1, or that of its MIG instance
	devices map[string]bool
	steps   [][]telemetry.Point
	mode    Mode
}

func (w *Workload) id() string { return w.Namespace + "/" + w.Name }

func (w *Workload) bursty() bool {
	return w.Active.P95 >= idleBelow && w.Active.P95 >= burstRatio*w.Active.Mean
}

func (w *Workload) bandwidthBound() bool {
	if !w.DRAM.Known() || w.DRAM.P95 < bandwidthP95 {
		return false
	}
	if w.SM.Known() {
		return w.DRAM.Mean >= w.SM.Mean
	}
	return w.DRAM.Mean >= bandwidthRatio*w.Active.Mean
}

func (w *Workload) shape() string {
	switch {
	case !w.Active.Known():
		return "unknown"
	case w.Active.P95 < idleBelow:
		return "idle"
	case w.bursty():
		return "bursty"
	}
	return "steady"
}

// The ends of names that controllers give: the alphabet is Kubernetes' own
// (k8s.io/apimachinery/pkg/util/rand), without vowels and what looks alike.
var (
	replicaSetEnd = regexp.MustCompile(`-[bcdfghjklmnpqrstvwxz2456789]{6,10}-[bcdfghjklmnpqrstvwxz2456789]{5}$`)
	generatedEnd  = regexp.MustCompile(`-[bcdfghjklmnpqrstvwxz2456789]{5}$`)
	ordinalEnd    = regexp.MustCompile(`-\d+$`)
)

// ownerName is the name of what owns the pod, read from its own name: without the ends that
// ReplicaSets, Jobs and StatefulSets add.
func ownerName(pod string) string {
	for _, end := range []*regexp.Regexp{replicaSetEnd, ordinalEnd, generatedEnd} {
		if loc := end.FindStringIndex(pod); loc != nil && loc[0] > 0 {
			return pod[:loc[0]]
		}
	}
	return pod
}

type workloadKey struct{ model, namespace, name string }

// workloads groups the pods by owner.
func workloads(gpus []telemetry.GPU) map[string][]*Workload {
	all := map[workloadKey]*Workload{}
	held := map[workloadKey]map[string]map[string]bool{} // pod → GPUs
	for i := range gpus {
		g := &gpus[i]
		for j := range g.Pods {
			p := &g.Pods[j]
			k := workloadKey{g.Model, p.Namespace, ownerName(p.Name)}
			w := all[k]
			if w == nil {
				w = &Workload{Namespace: k.namespace, Name: k.name, devices: map[string]bool{}, Measured: true, part: 1}
				all[k], held[k] = w, map[string]map[string]bool{}
			}
			if held[k][p.Name] == nil {
				held[k][p.Name] = map[string]bool{}
			}
			held[k][p.Name][g.UUID] = true
			w.add(g, p)
		}
	}
	by := map[string][]*Workload{}
	for k, w := range all {
		for _, devices := range held[k] {
			w.each = max(w.each, len(devices))
		}
		w.GPUs = len(w.devices)
		w.Pods = w.concurrent(len(held[k]))
		w.Shape = w.shape()
		slices.Sort(w.With)
		w.With = slices.DeleteFunc(slices.Compact(w.With), func(s string) bool { return s == w.id() })
		by[k.model] = append(by[k.model], w)
	}
	for _, list := range by {
		slices.SortFunc(list, func(a, b *Workload) int { return cmp.Compare(a.id(), b.id()) })
	}
	return by
}

func (w *Workload) add(g *telemetry.GPU, p *telemetry.Pod) {
	shared := p.Shared()
	for i := range g.Pods {
		if q := &g.Pods[i]; q.Name != p.Name && p.Beside(q) {
			shared = true
			w.With = append(w.With, q.Namespace+"/"+ownerName(q.Name))
		}
	}
	w.devices[g.UUID] = true
	w.virtual = w.virtual || g.Virtual
	w.Active = highest(w.Active, p.Active)
	w.Memory = highest(w.Memory, p.Memory)
	w.SM = highest(w.SM, p.SM)
	w.Occupancy = highest(w.Occupancy, p.Occupancy)
	w.DRAM = highest(w.DRAM, p.DRAM)
	w.Measured = w.Measured && (p.Measured || !shared)
	if len(p.Steps) > 0 {
		w.steps = append(w.steps, p.Steps)
	}
	now := "alone"
	switch {
	case p.Sharing != "" && p.Sharing != "none":
		now = p.Sharing
	case shared:
		now = "shared"
	case g.Instance != "":
		now = "mig"
	}
	if w.Now == "" || w.Now == "alone" {
		w.Now = now
	}
	w.part = min(w.part, part(g))
}

// part is how much of its GPU's SMs an instance has, 1 for a whole GPU or an unknown profile.
func part(g *telemetry.GPU) float64 {
	if g.Profile == "" {
		return 1
	}
	board, err := mig.FindBoard(g.Model)
	if err != nil {
		return 1
	}
	p, ok := board.Profile(g.Profile)
	if !ok {
		return 1
	}
	return float64(p.Compute) / float64(board.ComputeSlices)
}

// highest joins what two pods of a workload were.
func highest(a, b telemetry.Stat) telemetry.Stat {
	if n := a.Samples + b.Samples; n > 0 {
		a.Mean = (a.Mean*float64(a.Samples) + b.Mean*float64(b.Samples)) / float64(n)
		a.Samples = n
	}
	a.P95, a.Max = max(a.P95, b.P95), max(a.Max, b.Max)
	return a
}

// concurrent is how many pods there were at the same time at most; pods without steps count always.
func (w *Workload) concurrent(pods int) int {
	if len(w.steps) < pods {
		return pods
	}
	at := map[time.Time]int{}
	for _, s := range w.steps {
		for _, p := range s {
			at[p.At]++
		}
	}
	most := 0
	for _, n := range at {
		most = max(most, n)
	}
	return max(1, (most+w.each-1)/max(1, w.each))
}

// A load is the activity of several pods together, in GPUs.
type load struct {
	mean, p95 float64
	// overlap is the part of the steps in which two or more of them are active.
	overlap float64
}

// together adds up the activity of all pods of the workloads at each step: of time, or, where they run
// at the same time, of the SMs as far as these are known.
func together(list []*Workload, concurrent bool) load {
	sum, busy := map[time.Time]float64{}, map[time.Time]int{}
	for _, w := range list {
		part := w.part
		if concurrent && w.SM.Known() && w.Active.Mean > 0 {
			part *= min(1, w.SM.Mean/w.Active.Mean)
		}
		for _, s := range w.steps {
			for _, p := range s {
				sum[p.At] += p.V * part
				if p.V >= idleBelow {
					busy[p.At]++
				}
			}
		}
	}
	values := slices.Sorted(maps.Values(sum))
	n := len(values)
	if n == 0 {
		return load{}
	}
	l := load{p95: values[min(n-1, n*95/100)]}
	for _, v := range values {
		l.mean += v / float64(n)
	}
	for _, pods := range busy {
		if pods > 1 {
			l.overlap += 1 / float64(n)
		}
	}
	return l
}
