package mig

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
)

// MIG strategies of the device plugin and GPU Feature Discovery.
const (
	StrategyNone   = "none"
	StrategySingle = "single"
	StrategyMixed  = "mixed"
)

// StrategyLabel is the label in which GPU Feature Discovery publishes the strategy of a node.
const StrategyLabel = "nvidia.com/mig.strategy"

// WholeGPU is the extended resource of whole GPUs. Under the strategy "single", MIG devices use it as well.
const WholeGPU = "nvidia.com/gpu"

// GPU is a GPU of a node as described by labels.
type GPU struct {
	// Product is the nvidia.com/gpu.product label without suffixes, such as "NVIDIA-A100-SXM4-40GB".
	Product string
	// MemoryMiB is the total memory; 0 if unknown.
	MemoryMiB int
	// Family and ComputeCapability are labels of GPU Feature Discovery, such as "ampere" and "8.0".
	Family, ComputeCapability string
	// Board is the geometry; nil for a GPU without MIG.
	Board *Board
	// Enabled is the MIG mode. Instances are the GPU instances.
	Enabled   bool
	Instances Request
}

// GPU returns a GPU of this board with MIG disabled. An empty product means the most common model.
func (b Board) GPU(product string) GPU {
	if product == "" {
		product = b.Typical
	}
	g := GPU{Product: product, MemoryMiB: b.MemoryMiB, Family: b.Family, ComputeCapability: b.ComputeCapability}
	if len(b.Profiles) > 0 {
		g.Board = &b
	}
	return g
}

// Replication is the effect of a sharing config on resources.
type Replication struct {
	// Strategy is "time-slicing", "mps", or "" for none.
	Strategy string
	// ByResource maps the full name of a resource to its replication.
	ByResource map[string]Replica
}

// Replica describes how a resource is replicated: the factor, and the new name if it is renamed.
type Replica struct {
	Factor int
	Rename string
}

// Prediction holds the predicted resources and labels of a node.
type Prediction struct {
	// Labels are the predicted labels that depend on the configuration. Labels that depend only on the driver or the
	// machine are not included.
	Labels map[string]string
	// Resources maps extended resources to their capacity. A resource that sharing has renamed is listed with 0: it
	// stays on the node until the kubelet restarts.
	Resources map[string]int
	// Findings are problems to expect.
	Findings []check.Finding
}

// Predict predicts the labels of GPU Feature Discovery and the resources of the device plugin. strategy is the MIG
// strategy. Predict follows k8s-device-plugin v0.18; if v0.20 behaves differently, a finding says so.
func Predict(gpus []GPU, strategy string, replication Replication) Prediction {
	p := predictor{
		Prediction: Prediction{Labels: map[string]string{}, Resources: map[string]int{}},
		sharing:    replication,
		kinds:      Request{},
	}
	capable := false
	for _, g := range gpus {
		capable = capable || g.Board != nil
		if !g.Enabled {
			p.disabled++
			continue
		}
		if p.enabled++; p.enabled == 1 {
			p.first = g
		}
		n := 0
		for name, count := range g.Instances {
			p.kinds[name] += count
			n += count
		}
		if n == 0 {
			p.empty++
		}
	}
	p.wholeGPUs(gpus)
	if strategy != StrategyNone {
		p.Labels[StrategyLabel] = strategy
	}
	p.Labels["nvidia.com/mig.capable"] = strconv.FormatBool(capable)
	p.Labels["nvidia.com/mps.capable"] = strconv.FormatBool(replication.Strategy == "mps" && p.enabled == 0)
	switch {
	case strategy == StrategyNone || p.enabled == 0:
		p.advertise(WholeGPU, len(gpus))
		if p.enabled > 0 {
			p.add(hidden, check.Warning, "mig.strategy",
				fmt.Sprintf("the node has %s in MIG mode, but the strategy none allocates whole GPUs: "+
					"CUDA can use at most one MIG device of each", check.Count(p.enabled, "GPU")),
				"use the strategy single or mixed, or disable MIG")
		}
	case strategy == StrategySingle:
		p.single()
	default:
		p.mixed()
	}
	if replication.Strategy == "mps" && p.enabled > 0 {
		p.add(mpsWithMIG, check.Error, "sharing.mps",
			"MPS is not supported while a GPU of the node is in MIG mode: "+
				"GPU Feature Discovery fails, and its labels become stale",
			"use time-slicing on MIG devices, or disable MIG")
	}
	return p.Prediction
}

type predictor struct {
	Prediction
	sharing Replication
	// kinds counts MIG devices by profile.
	kinds Request
	// enabled and disabled count GPUs by MIG mode. empty counts those in MIG mode without instances.
	enabled, disabled, empty int
	// first is the first GPU in MIG mode.
	first GPU
}

func (p *predictor) add(rule *check.Check, s check.Severity, subject, reason, fix string) {
	p.Findings = append(p.Findings, check.Finding{Check: rule, Severity: s, Subject: subject, Reason: reason, Fix: fix})
}

// wholeGPUs sets the nvidia.com/gpu.* labels. They describe only one GPU model: that of the last GPU that is not in MIG
// mode or, if all are, of the first GPU. In the second case, replicas is 0.
func (p *predictor) wholeGPUs(gpus []GPU) {
	described := p.first
	counts := map[string]int{}
	for _, g := range gpus {
		counts[g.Product]++
		if !g.Enabled {
			described = g
		}
	}
	if len(counts) > 1 {
		p.add(mixedModels, check.Warning, WholeGPU+".product",
			fmt.Sprintf("the node has %d GPU models (%s), but the labels describe only one, which may change",
				len(counts), strings.Join(slices.Sorted(maps.Keys(counts)), ", ")),
			"select the node by its name or by your own label")
	}
	p.base(WholeGPU, described.Product, counts[described.Product])
	if described.Enabled {
		p.Labels[WholeGPU+".product"] = described.Product
		p.Labels[WholeGPU+".replicas"] = "0"
		p.Labels[WholeGPU+".sharing-strategy"] = "none"
	}
	if described.MemoryMiB > 0 {
		p.Labels[WholeGPU+".memory"] = strconv.Itoa(described.MemoryMiB)
	}
	if major, minor, ok := strings.Cut(described.ComputeCapability, "."); ok {
		p.Labels[WholeGPU+".compute.major"] = major
		p.Labels[WholeGPU+".compute.minor"] = minor
		p.Labels[WholeGPU+".family"] = described.Family
	}
}

// base sets the four labels that GPU Feature Discovery sets for every resource.
func (p *predictor) base(resource, product string, count int) {
	replicas, strategy := 1, "none"
	if r := p.sharing.ByResource[resource]; r.Factor > 1 {
		replicas, strategy = r.Factor, p.sharing.Strategy
		if r.Rename == "" {
			product += "-SHARED"
		}
	}
	p.Labels[resource+".product"] = product
	p.Labels[resource+".count"] = strconv.Itoa(count)
	p.Labels[resource+".replicas"] = strconv.Itoa(replicas)
	p.Labels[resource+".sharing-strategy"] = strategy
}

// advertise adds n devices to a resource, replicated and renamed as configured.
func (p *predictor) advertise(resource string, n int) {
	if n == 0 {
		return
	}
	r := p.sharing.ByResource[resource]
	if r.Factor < 2 {
		p.Resources[resource] += n
		return
	}
	if r.Rename != "" {
		p.Resources[resource] += 0
		resource = r.Rename
	}
	p.Resources[resource] += n * r.Factor
}

func (p *predictor) single() {
	reason, fix := "", "use mixed"
	switch {
	case p.empty > 0:
		reason, fix = fmt.Sprintf("the node has %s in MIG mode without an instance", check.Count(p.empty, "GPU")),
			"partition every GPU, or use mixed"
	case p.disabled > 0:
		reason, fix = fmt.Sprintf("the node has %s in MIG mode and %d not in MIG mode",
			check.Count(p.enabled, "GPU"), p.disabled), "partition every GPU alike, or use mixed"
	case len(p.kinds) > 1:
		reason = fmt.Sprintf("the node has %d kinds of MIG device (%s)", len(p.kinds), p.kinds)
	}
	if reason != "" {
		p.Labels[WholeGPU+".product"] = p.first.Product + "-MIG-INVALID"
		for _, l := range []string{"count", "replicas", "memory"} {
			p.Labels[WholeGPU+"."+l] = "0"
		}
		p.Labels[WholeGPU+".sharing-strategy"] = ""
		p.add(singleInvalid, check.Error, "mig.strategy=single",
			reason+": the device plugin fails, and no GPU is allocatable", fix)
		return
	}
	delete(p.Labels, WholeGPU+".memory")
	for name := range p.kinds {
		p.device(WholeGPU, name)
	}
}

func (p *predictor) mixed() {
	p.advertise(WholeGPU, p.disabled)
	if p.disabled > 0 {
		p.add(besideWhole, check.Note, "mig.strategy=mixed",
			"the node has whole GPUs and MIG devices: with drivers 570.124.06 to 570.158.01, GPU pods stay Pending",
			"use another driver version, or partition every GPU")
	}
	for _, name := range slices.SortedFunc(maps.Keys(p.kinds), bySize) {
		resource := ResourceName(name)
		p.device(resource, name)
		if n, _ := parseName(name); n.attribute != "" {
			plain := ResourceName(strings.TrimSuffix(name, n.attribute))
			p.add(variantResource, check.Warning, resource,
				fmt.Sprintf("device plugin versions before v0.20.0 count %s devices as %s, so a pod may get either",
					name, plain),
				"use device plugin v0.20.0 or later if the difference matters")
		}
	}
	if p.empty > 0 {
		p.add(enabledEmpty, check.Warning, "mig.strategy=mixed",
			fmt.Sprintf("the node has %s in MIG mode without an instance, not allocatable at all",
				check.Count(p.empty, "GPU")), "partition them, or disable MIG on them")
	}
}

// device adds the resources and labels of the MIG devices of a profile.
func (p *predictor) device(resource, profile string) {
	p.advertise(resource, p.kinds[profile])
	p.base(resource, p.first.Product+"-MIG-"+strings.ReplaceAll(profile, "+", "."), p.kinds[profile])
	if n, ok := parseName(profile); ok {
		p.Labels[resource+".slices.gi"] = strconv.Itoa(n.compute)
		p.Labels[resource+".slices.ci"] = strconv.Itoa(n.compute)
	}
	if p.first.Board != nil {
		if row, ok := p.first.Board.Profile(profile); ok && row.SMs > 0 {
			p.Labels[resource+".multiprocessors"] = strconv.Itoa(row.SMs)
		}
	}
}

// Apply returns the GPUs as they are after the MIG manager has applied the config. gpus are in node order. The findings
// are about entries that do not fit, GPUs that do not exist, and GPUs that no entry covers.
func (n NamedConfig) Apply(gpus []GPU) ([]GPU, []check.Finding) {
	after := slices.Clone(gpus)
	var findings []check.Finding
	add := func(rule *check.Check, line int, reason, fix string) {
		findings = append(findings,
			check.Finding{Check: rule, Severity: check.Error, Line: line, Subject: n.Name, Reason: reason, Fix: fix})
	}
	covered := make([]bool, len(gpus))
	for _, e := range n.Entries {
		refused := false // a node's GPUs are usually alike: one finding is enough
		for i := range after {
			if !e.All && !slices.Contains(e.Indices, i) || !e.matches(after[i].Board) {
				continue
			}
			covered[i] = true
			if err := e.apply(&after[i]); err != nil && !refused {
				refused = true
				add(DoesNotFit, e.Line, fmt.Sprintf("GPU %d%v", i, err), "")
			}
		}
		for _, i := range e.Indices {
			if i >= len(gpus) {
				add(Coverage, e.Line,
					fmt.Sprintf("the entry lists GPU %d, but the node has only %d GPUs", i, len(gpus)), "")
			}
		}
	}
	for i, ok := range covered {
		if !ok {
			add(Coverage, n.Line,
				fmt.Sprintf("no entry covers GPU %d (%s), so the change never completes", i, gpus[i].Product),
				"add an entry for it, or widen the device-filter")
		}
	}
	return after, findings
}

// apply partitions a GPU as the entry describes. The error text is meant to follow "GPU 0", for example " (Tesla T4)
// has no MIG".
func (e Entry) apply(g *GPU) error {
	g.Enabled, g.Instances = e.Enabled && g.Board != nil, nil
	if !e.Enabled {
		return nil
	}
	if g.Board == nil {
		return fmt.Errorf(" (%s) has no MIG", g.Product)
	}
	if _, err := Fit(*g.Board, e.Devices); err != nil {
		return fmt.Errorf(": %w", err)
	}
	g.Instances = maps.Clone(e.Devices)
	maps.DeleteFunc(g.Instances, func(_ string, n int) bool { return n == 0 })
	return nil
}

// matches reports whether the entry's filter matches the board. A nil board is a GPU without MIG.
func (e Entry) matches(b *Board) bool {
	if len(e.DeviceFilter) == 0 || b == nil {
		return len(e.DeviceFilter) == 0
	}
	return slices.ContainsFunc(e.DeviceFilter, func(id string) bool {
		return slices.ContainsFunc(b.PCIIDs, func(own string) bool { return strings.EqualFold(own, id) })
	})
}
