package mig

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
)

const (
	// StrategyNone, StrategySingle and StrategyMixed are MIG strategies. StrategyLabel is the label in which GPU
	// Feature Discovery publishes the strategy of a node.
	StrategyNone, StrategySingle, StrategyMixed = "none", "single", "mixed"
	StrategyLabel                               = "nvidia.com/mig.strategy"
	// WholeGPU is the extended resource of whole GPUs. Under the strategy "single", MIG devices use it as well.
	WholeGPU = "nvidia.com/gpu"
)

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
	g := GPU{Product: cmp.Or(product, b.Typical), MemoryMiB: b.MemoryMiB, Family: b.Family,
		ComputeCapability: b.ComputeCapability}
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

// Add adds a finding with the severity of its check, and returns it.
func (p *Prediction) Add(rule *check.Check, subject, fix, format string, args ...any) *check.Finding {
	p.Findings = append(p.Findings, check.Finding{Check: rule, Subject: subject, Fix: fix})
	f := &p.Findings[len(p.Findings)-1]
	f.Say(rule.Severity, format, args...)
	return f
}

// Predict predicts the labels of GPU Feature Discovery and the resources of the device plugin. strategy is the MIG
// strategy. Predict follows k8s-device-plugin v0.18; if v0.20 behaves differently, a finding says so.
func Predict(gpus []GPU, strategy string, sharing Replication) Prediction {
	p := predictor{sharing: sharing, kinds: Request{}}
	p.Labels, p.Resources = map[string]string{}, map[string]int{}
	whole, capable := 0, false
	for _, g := range gpus {
		capable = capable || g.Board != nil
		if !g.Enabled {
			whole++
			continue
		}
		if p.enabled++; p.enabled == 1 {
			p.first = g
		}
		if len(g.Instances.names()) == 0 {
			p.empty++
		}
		for name, n := range g.Instances {
			p.kinds[name] += n
		}
	}
	p.wholeGPUs(gpus)
	if strategy != StrategyNone {
		p.Labels[StrategyLabel] = strategy
	}
	p.Labels["nvidia.com/mig.capable"] = strconv.FormatBool(capable)
	p.Labels["nvidia.com/mps.capable"] = strconv.FormatBool(sharing.Strategy == "mps" && p.enabled == 0)
	switch {
	case strategy == StrategyNone || p.enabled == 0:
		p.advertise(WholeGPU, len(gpus))
		if p.enabled > 0 {
			p.Add(hidden, "mig.strategy", "use the strategy single or mixed, or disable MIG",
				"%s in MIG mode, but the strategy none offers whole GPUs: CUDA can use only one MIG device of each",
				check.Count(p.enabled, "GPU"))
		}
	case strategy == StrategySingle:
		p.single(whole)
	default:
		p.mixed(whole)
	}
	if sharing.Strategy == "mps" && p.enabled > 0 {
		p.Add(mpsWithMIG, "sharing.mps", "use time-slicing on MIG devices, or disable MIG",
			"MPS does not work while a GPU is in MIG mode: GPU Feature Discovery fails, and its labels become stale")
	}
	return p.Prediction
}

type predictor struct {
	Prediction
	sharing Replication
	// kinds counts MIG devices by profile.
	kinds Request
	// enabled counts the GPUs in MIG mode, and empty those of them without instances. first is the first of them.
	enabled, empty int
	first          GPU
}

// wholeGPUs sets the nvidia.com/gpu.* labels. They describe only one GPU model: that of the last GPU that is not in MIG
// mode or, if all are, of the first GPU. In the second case, replicas is 0.
func (p *predictor) wholeGPUs(gpus []GPU) {
	g := p.first
	counts := map[string]int{}
	for _, each := range gpus {
		counts[each.Product]++
		if !each.Enabled {
			g = each
		}
	}
	if len(counts) > 1 {
		p.Add(mixedModels, WholeGPU+".product", "select the node by its name or by your own label",
			"the node has %d GPU models (%s), but the labels describe only one, which may change",
			len(counts), strings.Join(slices.Sorted(maps.Keys(counts)), ", "))
	}
	if g.Enabled {
		p.label(WholeGPU, map[string]any{"product": g.Product, "count": counts[g.Product], "replicas": 0,
			"sharing-strategy": "none"})
	} else {
		p.shared(WholeGPU, g.Product, counts[g.Product])
	}
	if g.MemoryMiB > 0 {
		p.label(WholeGPU, map[string]any{"memory": g.MemoryMiB})
	}
	if major, minor, ok := strings.Cut(g.ComputeCapability, "."); ok {
		p.label(WholeGPU, map[string]any{"compute.major": major, "compute.minor": minor, "family": g.Family})
	}
}

// label sets labels whose names begin with a resource.
func (p *predictor) label(resource string, values map[string]any) {
	for name, value := range values {
		p.Labels[resource+"."+name] = fmt.Sprint(value)
	}
}

// shared sets the labels of a resource that may be replicated.
func (p *predictor) shared(resource, product string, count int) {
	r, strategy := p.sharing.ByResource[resource], "none"
	if r.Factor > 1 {
		strategy = p.sharing.Strategy
		if r.Rename == "" {
			product += "-SHARED"
		}
	}
	p.label(resource, map[string]any{"product": product, "count": count, "replicas": max(r.Factor, 1),
		"sharing-strategy": strategy})
}

// advertise adds n devices to a resource, replicated and renamed as configured.
func (p *predictor) advertise(resource string, n int) {
	if n == 0 {
		return
	}
	r := p.sharing.ByResource[resource]
	if r.Rename != "" && r.Factor > 1 {
		p.Resources[resource] += 0
		resource = r.Rename
	}
	p.Resources[resource] += n * max(r.Factor, 1)
}

// single adds the MIG devices under the strategy single, in which all GPUs of the node must have the same devices.
// whole is the number of GPUs that are not in MIG mode.
func (p *predictor) single(whole int) {
	if p.empty+whole > 0 || len(p.kinds) > 1 {
		p.label(WholeGPU, map[string]any{"product": p.first.Product + "-MIG-INVALID", "count": 0, "replicas": 0,
			"sharing-strategy": "", "memory": 0})
		has := check.Count(p.empty+whole, "GPU") + " without a MIG device"
		fix := "use mixed, or partition every GPU alike"
		if len(p.kinds) > 1 {
			has = fmt.Sprintf("%d kinds of MIG device (%s)", len(p.kinds), p.kinds)
			fix = "use mixed, or a config with one profile"
		}
		p.Add(singleInvalid, "mig.strategy=single", fix,
			"the node has %s: the device plugin fails, and no GPU is allocatable", has)
		return
	}
	delete(p.Labels, WholeGPU+".memory")
	for name := range p.kinds {
		p.device(WholeGPU, name)
	}
}

// mixed adds the MIG devices, and the GPUs that are not in MIG mode, under the strategy mixed.
func (p *predictor) mixed(whole int) {
	p.advertise(WholeGPU, whole)
	if whole > 0 {
		p.Add(besideWhole, "mig.strategy=mixed", "use another driver version, or partition every GPU",
			"the node has whole GPUs and MIG devices: with drivers 570.124.06 to 570.158.01, GPU pods stay Pending")
	}
	for _, name := range p.kinds.names() {
		resource := ResourceName(name)
		p.device(resource, name)
		if n, _ := parseName(name); n.attribute != "" {
			p.Add(variantResource, resource, "use device plugin v0.20.0 or later if the difference matters",
				"device plugin versions before v0.20.0 count %s devices as %s, so a pod may get either",
				name, ResourceName(strings.TrimSuffix(name, n.attribute)))
		}
	}
	if p.empty > 0 {
		p.Add(enabledEmpty, "mig.strategy=mixed", "partition them, or disable MIG on them",
			"the node has %s in MIG mode without an instance, not allocatable at all", check.Count(p.empty, "GPU"))
	}
}

// device adds the resources and labels of the MIG devices of a profile.
func (p *predictor) device(resource, profile string) {
	p.advertise(resource, p.kinds[profile])
	p.shared(resource, p.first.Product+"-MIG-"+strings.ReplaceAll(profile, "+", "."), p.kinds[profile])
	n, _ := parseName(profile)
	p.label(resource, map[string]any{"slices.gi": n.compute, "slices.ci": n.compute})
	if b := p.first.Board; b != nil {
		if row, _ := b.Profile(profile); row.SMs > 0 {
			p.label(resource, map[string]any{"multiprocessors": row.SMs})
		}
	}
}

// Apply returns the GPUs as they are after the MIG manager has applied the config. gpus are in node order. The findings
// are about entries that do not fit, GPUs that do not exist, and GPUs that no entry covers.
func (n NamedConfig) Apply(gpus []GPU) ([]GPU, []check.Finding) {
	var p Prediction
	after, covered := slices.Clone(gpus), map[int]bool{}
	for _, e := range n.Entries {
		refused := false // a node's GPUs are usually alike: one finding is enough
		for i := range after {
			if !e.All && !slices.Contains(e.Indices, i) || !e.matches(after[i].Board) {
				continue
			}
			covered[i] = true
			if err := e.apply(&after[i]); err != nil && !refused {
				refused = true
				p.Add(DoesNotFit, n.Name, "", "GPU %d: %v", i, err).Line = e.Line
			}
		}
		for _, i := range e.Indices {
			if i >= len(gpus) {
				p.Add(Coverage, n.Name, "", "the entry lists GPU %d of only %d GPUs", i, len(gpus)).Line = e.Line
			}
		}
	}
	for i, g := range gpus {
		if !covered[i] {
			p.Add(Coverage, n.Name, "add an entry for it, or widen the device-filter",
				"no entry covers GPU %d (%s), so the change never completes", i, g.Product).Line = n.Line
		}
	}
	return after, p.Findings
}

// apply partitions a GPU as the entry describes.
func (e Entry) apply(g *GPU) error {
	g.Enabled, g.Instances = e.Enabled && g.Board != nil, nil
	switch {
	case !e.Enabled:
		return nil
	case g.Board == nil:
		return fmt.Errorf("%w: %s", ErrNoMIG, g.Product)
	}
	_, err := Fit(*g.Board, e.Devices)
	if err == nil {
		g.Instances = maps.Clone(e.Devices)
		maps.DeleteFunc(g.Instances, func(_ string, n int) bool { return n == 0 })
	}
	return err
}

// matches reports whether the entry's filter matches the board. A nil board is a GPU without MIG.
func (e Entry) matches(b *Board) bool {
	return len(e.DeviceFilter) == 0 || b != nil && slices.ContainsFunc(b.PCIIDs, func(own string) bool {
		return slices.ContainsFunc(e.DeviceFilter, func(id string) bool { return strings.EqualFold(own, id) })
	})
}
