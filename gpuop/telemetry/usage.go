package telemetry

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ErrUnreachable is wrapped where no Prometheus or exporter answers, or where it refuses to: wrong
// address, refused connection, deadline, credentials, a failure of the server. The program ends with
// 3.
var ErrUnreachable = errors.New("no answer")

// ErrInput is wrapped where the address, the file or the selector is unusable. The program ends with
// 2.
var ErrInput = errors.New("unusable input")

// ErrNoSeries is wrapped where there is an answer without any series of a GPU exporter.
var ErrNoSeries = errors.New("no GPU series")

// ErrNoSamples is wrapped where there are such series, and none has a sample within the window.
var ErrNoSamples = errors.New("no samples")

// A Stat is what a series was over the window. With 0 samples it is unknown, and the rest is 0.
type Stat struct {
	Samples int     `json:"samples"`
	Mean    float64 `json:"mean"`
	P95     float64 `json:"p95"`
	Max     float64 `json:"max"`
}

// Known reports whether there is a sample.
func (s Stat) Known() bool { return s.Samples > 0 }

// MarshalJSON writes six digits: what follows differs between releases of Prometheus, which add up
// the same samples in other ways.
func (s Stat) MarshalJSON() ([]byte, error) {
	type plain Stat
	six := func(v float64) float64 {
		short, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 6, 64), 64)
		return short
	}
	return json.Marshal(plain{s.Samples, six(s.Mean), six(s.P95), six(s.Max)})
}

// join adds what another series of the same thing was. The 95th percentile is then an upper bound.
func (s Stat) join(o Stat) Stat {
	if n := s.Samples + o.Samples; n > 0 {
		s.Mean = (s.Mean*float64(s.Samples) + o.Mean*float64(o.Samples)) / float64(n)
		s.Samples = n
	}
	s.P95, s.Max = max(s.P95, o.P95), max(s.Max, o.Max)
	return s
}

// A Point is the mean of a series over one step, which ends at At. Points of different series with the
// same At are of the same time; of a scrape At only counts.
type Point struct {
	At time.Time
	V  float64
}

// A Pod is a pod on one device.
type Pod struct {
	Namespace, Name, Container string
	// Sharing is how it has the device: "time-slicing", "mps", "dra"; empty for alone or unknown.
	Sharing string
	// Replicas is into how many replicas the device is divided; 0 if unknown.
	Replicas int
	// Resource is the extended resource that it has of Kubernetes; empty if unknown.
	Resource string
	// Measured says that Active or Memory are the pod's own (dcgm_pod_gpu_*), not the device's.
	Measured bool
	// Active is a ratio of time, Memory in bytes, SM, Occupancy and DRAM are ratios of the device, known
	// where the device's series carry the pod: where it has the device alone.
	Active, Memory, SM, Occupancy, DRAM Stat
	// Steps is its activity by step, ascending.
	Steps []Point
}

// Shared reports whether Kubernetes shares the pod's device, as the device plugin's replicas or a claim
// say it.
func (p *Pod) Shared() bool { return p.Sharing != "" && p.Sharing != "none" || p.Replicas > 1 }

// Beside reports whether p and q had their device at the same time: two common steps, since in one the
// device may have gone from one to the other; a scrape has only one or two. Where the steps of one are
// not known, whether the device is shared decides.
func (p *Pod) Beside(q *Pod) bool {
	if len(p.Steps) == 0 || len(q.Steps) == 0 {
		return p.Shared() || q.Shared()
	}
	at := map[int64]bool{}
	for _, s := range p.Steps {
		at[s.At.UnixNano()] = true
	}
	common := 0
	for _, s := range q.Steps {
		if at[s.At.UnixNano()] {
			common++
		}
	}
	return common >= min(2, len(p.Steps), len(q.Steps)) && common > 0
}

// A GPU is a whole GPU, or a MIG instance of one.
type GPU struct {
	Node, Index, UUID, Model string
	// Instance and Profile are those of a MIG instance: "7", "1g.10gb"; empty for a whole GPU.
	Instance, Profile string
	// MemoryBytes is its size, 0 if unknown.
	MemoryBytes float64
	// Virtual says that it is a vGPU: the machine is a guest.
	Virtual bool
	// Active, SM, Occupancy and DRAM are ratios, Memory in bytes.
	Active, SM, Occupancy, DRAM, Memory Stat
	// Profiled says that Active is of the profiling fields, not of the driver's utilization.
	Profiled bool
	Pods     []Pod
}

// Usage is what the GPUs did. Callers own it.
type Usage struct {
	// Source is the address or the files.
	Source string
	// From and To bound the window; of a scrape they are the times of its first and last page, zero
	// where all are files.
	From, To time.Time
	// Step is how long a step of Pod.Steps is; 0 for a scrape.
	Step time.Duration
	// Covered is the part of the window's steps in which there is a sample, 0 to 1.
	Covered float64
	// Families are the names that were found.
	Families []string
	// Warnings are what the server said beside its answers.
	Warnings []string
	// GPUs are sorted by node, index and instance.
	GPUs []GPU
}

// Has reports whether a family of that name was found.
func (u *Usage) Has(name string) bool { return slices.Contains(u.Families, name) }

// A series is one that was read, with what is known of it.
type series struct {
	role   role
	labels map[string]string
	stat   Stat
	steps  []Point
}

// exporters are words in the name of an exporter's own container: its target labels are no owner.
var exporters = []string{"dcgm-exporter", "gpu-exporter"}

// owner is the pod that a series is about. Where Prometheus keeps its own labels (honor_labels:
// false), the workload's are called exported_…, and the plain ones are the exporter's own pod: renamed
// says that this is so for the target.
func owner(l map[string]string, renamed bool) (namespace, pod, container string) {
	if renamed {
		return l["exported_namespace"], l["exported_pod"], l["exported_container"]
	}
	for _, word := range exporters {
		if strings.Contains(l["container"], word) {
			return "", "", ""
		}
	}
	return l["namespace"], l["pod"], l["container"]
}

type deviceKey struct{ uuid, instance string }

// usage makes one Usage of all series.
func usage(all []series) []GPU {
	renamed := map[string]bool{}
	for _, s := range all {
		if s.labels["exported_pod"] != "" || s.labels["exported_namespace"] != "" {
			renamed[s.labels["instance"]] = true
		}
	}
	b := builder{gpus: map[deviceKey]*GPU{}, pods: map[podKey]*Pod{}, sizes: map[deviceKey]map[role]float64{}, renamed: renamed}
	// the profiled activity before the driver's own, and the pod's own after what its device says
	slices.SortStableFunc(all, func(a, b series) int { return cmp.Compare(order(a.role), order(b.role)) })
	for _, s := range all {
		b.add(s)
	}
	return b.finish()
}

func order(r role) int {
	if r <= podInfo {
		return int(card) + 1 + int(r)
	}
	return int(r)
}

type podKey struct {
	deviceKey
	namespace, name string
}

type builder struct {
	gpus    map[deviceKey]*GPU
	pods    map[podKey]*Pod
	sizes   map[deviceKey]map[role]float64
	renamed map[string]bool
}

func (b *builder) add(s series) {
	key := deviceKey{s.labels["UUID"], s.labels["GPU_I_ID"]}
	if key.uuid == "" || s.labels["GPU_CI_ID"] != "" && s.role > podInfo {
		return
	}
	g := b.gpus[key]
	if g == nil {
		g = &GPU{UUID: key.uuid, Instance: key.instance}
		b.gpus[key] = g
	}
	l := s.labels
	g.Index = cmp.Or(g.Index, l["gpu"])
	g.Model = cmp.Or(g.Model, l["modelName"])
	g.Profile = cmp.Or(g.Profile, l["GPU_I_PROFILE"])
	if s.role > podInfo { // the series of pods don't say the node: their target may be anything
		g.Node = cmp.Or(g.Node, l["hostname"], l["Hostname"], l["node"], l["instance"])
	}
	namespace, name, container := owner(l, b.renamed[l["instance"]])
	var p *Pod
	if name != "" {
		k := podKey{key, namespace, name}
		if p = b.pods[k]; p == nil {
			p = &Pod{Namespace: namespace, Name: name, Container: container}
			b.pods[k] = p
		}
	}
	switch s.role {
	case podActive:
		if p != nil {
			p.Active, p.Steps, p.Measured = s.stat, s.steps, true
		}
	case podMemory:
		if p != nil {
			p.Memory, p.Measured = s.stat, true
		}
	case podInfo:
		if p != nil {
			p.Sharing, p.Resource = l["sharing"], l["resource"]
			p.Replicas, _ = strconv.Atoi(l["replicas"])
		}
	case active:
		g.Profiled = true
		g.Active = g.Active.join(s.stat)
		if p != nil {
			p.Active, p.Steps = p.Active.join(s.stat), merged(p.Steps, s.steps)
		}
	case utilized:
		if g.Profiled {
			return
		}
		g.Active = g.Active.join(s.stat)
		if p != nil {
			p.Active, p.Steps = p.Active.join(s.stat), merged(p.Steps, s.steps)
		}
	case sm, occupancy, dram:
		mine := map[role]*Stat{sm: &g.SM, occupancy: &g.Occupancy, dram: &g.DRAM}[s.role]
		*mine = mine.join(s.stat)
		if p != nil {
			theirs := map[role]*Stat{sm: &p.SM, occupancy: &p.Occupancy, dram: &p.DRAM}[s.role]
			*theirs = theirs.join(s.stat)
		}
	case used:
		g.Memory = g.Memory.join(s.stat)
		b.size(key, used, s.stat.Mean)
		if p != nil {
			p.Memory = p.Memory.join(s.stat)
		}
	case free, reserved, total:
		b.size(key, s.role, s.stat.Mean)
	case license:
		g.Virtual = g.Virtual || s.stat.Max == 1
	}
}

func (b *builder) size(key deviceKey, r role, v float64) {
	if b.sizes[key] == nil {
		b.sizes[key] = map[role]float64{}
	}
	b.sizes[key][r] = v
}

// merged are the points of both, by time: a pod may have had a device twice.
func merged(a, b []Point) []Point {
	all := slices.Concat(a, b)
	slices.SortFunc(all, func(x, y Point) int { return x.At.Compare(y.At) })
	return slices.CompactFunc(all, func(x, y Point) bool { return x.At.Equal(y.At) })
}

func (b *builder) finish() []GPU {
	parts := map[string]bool{} // UUIDs of GPUs that have instances
	nodes := map[string]*GPU{}
	for k, g := range b.gpus {
		parts[k.uuid] = parts[k.uuid] || k.instance != ""
		if g.Node != "" {
			nodes[k.uuid] = g
		}
	}
	for k, p := range b.pods {
		g := b.gpus[k.deviceKey]
		g.Pods = append(g.Pods, *p)
	}
	var all []GPU
	for k, g := range b.gpus {
		if known := nodes[k.uuid]; known != nil {
			g.Node, g.Model = cmp.Or(g.Node, known.Node), cmp.Or(g.Model, known.Model)
		}
		sizes := b.sizes[k]
		if g.MemoryBytes = sizes[total]; g.MemoryBytes == 0 && sizes[free]+sizes[used] > 0 {
			g.MemoryBytes = math.Round(sizes[free] + sizes[used] + sizes[reserved])
		}
		slices.SortFunc(g.Pods, func(a, b Pod) int {
			return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
		})
		// the GPU that is cut into instances has nothing of its own
		if k.instance == "" && parts[k.uuid] && len(g.Pods) == 0 {
			continue
		}
		all = append(all, *g)
	}
	number := func(s string) int { n, _ := strconv.Atoi(s); return n }
	slices.SortFunc(all, func(a, b GPU) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(number(a.Index), number(b.Index)), cmp.Compare(a.UUID, b.UUID), cmp.Compare(number(a.Instance), number(b.Instance)))
	})
	return all
}

// found are the names of a set, sorted.
func found(names map[string]bool) []string { return slices.Sorted(maps.Keys(names)) }
