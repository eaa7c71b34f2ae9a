package node

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpuop/finding"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpuop/mig"
)

// ErrNode is returned for input that is not one Node.
var ErrNode = errors.New("not a Node")

// Node is what matters here of a Kubernetes Node.
type Node struct {
	Name                string
	Labels, Annotations map[string]string
	// Capacity and Allocatable hold the extended resources of nvidia.com only.
	Capacity, Allocatable map[string]int
}

type object struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name        string            `json:"name"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Status struct {
		Capacity    map[string]any `json:"capacity"`
		Allocatable map[string]any `json:"allocatable"`
	} `json:"status"`
	Items []object `json:"items"`
}

// Parse reads one Node from JSON, YAML, or the text of kubectl describe. Its errors wrap ErrNode.
func Parse(data []byte) (*Node, error) {
	var o object
	err := yaml.Unmarshal(data, &o)
	if err == nil && strings.HasSuffix(o.Kind, "List") {
		if len(o.Items) != 1 {
			return nil, fmt.Errorf("%w: a list of %d, want one (kubectl get node NAME -o json)", ErrNode, len(o.Items))
		}
		o = o.Items[0]
	}
	if err == nil && (o.Kind == "Node" || o.Kind == "" && o.Metadata.Labels != nil) {
		return &Node{
			Name: o.Metadata.Name, Labels: o.Metadata.Labels, Annotations: o.Metadata.Annotations,
			Capacity: resources(o.Status.Capacity), Allocatable: resources(o.Status.Allocatable),
		}, nil
	}
	if err == nil && o.Kind != "" {
		return nil, fmt.Errorf("%w but a %s", ErrNode, o.Kind)
	}
	if n, ok := described(string(data)); ok {
		return n, nil
	}
	return nil, fmt.Errorf("%w: want the output of kubectl get node NAME -o json (or yaml), or of kubectl describe node NAME", ErrNode)
}

func resources(quantities map[string]any) map[string]int {
	r := map[string]int{}
	for name, q := range quantities {
		if n, err := strconv.Atoi(fmt.Sprint(q)); err == nil && strings.HasPrefix(name, "nvidia.com/") {
			r[name] = n
		}
	}
	return r
}

// described reads the text of kubectl describe node. Sections are told by their headings, since the
// indentation is often lost when the text is pasted.
func described(text string) (*Node, bool) {
	n := &Node{Labels: map[string]string{}, Annotations: map[string]string{}, Capacity: map[string]int{}, Allocatable: map[string]int{}}
	section := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if heading, rest, ok := strings.Cut(line, ":"); ok && !strings.ContainsAny(heading, "/=. ") && heading != "" && heading[0] >= 'A' && heading[0] <= 'Z' {
			section, line = heading, strings.TrimSpace(rest)
			if heading == "Name" {
				n.Name = line
			}
		}
		switch section {
		case "Labels":
			if key, value, ok := strings.Cut(line, "="); ok {
				n.Labels[key] = value
			}
		case "Annotations":
			if key, value, ok := strings.Cut(line, ": "); ok {
				n.Annotations[key] = strings.TrimSpace(value)
			}
		case "Capacity", "Allocatable":
			key, value, _ := strings.Cut(line, ":")
			count, err := strconv.Atoi(strings.TrimSpace(value))
			if err != nil || !strings.HasPrefix(key, "nvidia.com/") {
				continue
			}
			if section == "Capacity" {
				n.Capacity[key] = count
			} else {
				n.Allocatable[key] = count
			}
		}
	}
	return n, n.Name != "" && len(n.Labels) > 0
}

// ErrNoGPUs is returned for a node whose labels do not say which GPUs it has.
var ErrNoGPUs = errors.New("the labels do not say which GPUs the node has")

// GPUs are the node's GPUs as its labels describe them, with sharing and MIG suffixes taken off. The
// labels tell how many MIG devices there are, not which GPU holds them: the first GPU in MIG mode
// carries them all, which is enough to predict labels and resources. The error wraps ErrNoGPUs.
func (n *Node) GPUs() ([]mig.GPU, error) {
	product := n.Labels[mig.WholeGPU+".product"]
	count, err := strconv.Atoi(n.Labels[mig.WholeGPU+".count"])
	if product == "" || err != nil || count < 0 || count > 1024 {
		return nil, fmt.Errorf("%w: nvidia.com/gpu.product is %q and nvidia.com/gpu.count %q", ErrNoGPUs, product, n.Labels[mig.WholeGPU+".count"])
	}
	product = strings.TrimSuffix(product, "-SHARED")
	profile := ""
	if before, after, ok := strings.Cut(product, "-MIG-"); ok {
		product = before
		if after == "INVALID" {
			return nil, fmt.Errorf("%w: the node is in the state MIG-INVALID", ErrNoGPUs)
		}
		profile, _ = mig.CanonicalProfile(after)
	}
	gpu := mig.GPU{Product: product, Family: n.Labels[mig.WholeGPU+".family"]}
	if board, err := mig.FindBoard(product); err == nil {
		gpu = board.GPU(product)
	}
	if profile == "" {
		if memory, err := strconv.Atoi(n.Labels[mig.WholeGPU+".memory"]); err == nil && memory > 0 {
			gpu.MemoryMiB = memory
		}
	}
	if major, minor := n.Labels[mig.WholeGPU+".compute.major"], n.Labels[mig.WholeGPU+".compute.minor"]; major != "" && minor != "" {
		gpu.ComputeCapability = major + "." + minor
	}
	if profile != "" {
		gpu.Enabled, gpu.Instances = true, mig.Request{profile: count}
		return []mig.GPU{gpu}, nil
	}
	gpus := slices.Repeat([]mig.GPU{gpu}, count)
	instances := mig.Request{}
	for name, value := range n.Labels {
		resource, ok := strings.CutSuffix(name, ".count")
		profile, known := mig.CanonicalProfile(strings.TrimSuffix(resource, ".shared"))
		if devices, err := strconv.Atoi(value); ok && known && err == nil && strings.HasPrefix(resource, "nvidia.com/mig-") && devices > 0 && devices < 1<<16 {
			instances[profile] = devices
		}
	}
	if len(instances) > 0 && count > 0 {
		whole := n.Capacity[mig.WholeGPU]
		if replicas, err := strconv.Atoi(n.Labels[mig.WholeGPU+".replicas"]); err == nil && replicas > 1 {
			whole = (whole + n.Capacity[mig.WholeGPU+".shared"]) / replicas
		}
		for i := range max(1, count-whole) {
			gpus[i].Enabled, gpus[i].Instances = true, mig.Request{}
		}
		gpus[0].Instances = instances
	}
	return gpus, nil
}

// The rules under which Check reports.
const (
	ruleNoResource = "node-no-gpu-resource"
	ruleNoLabels   = "node-no-gpu-labels"
	ruleState      = "node-mig-state"
	rulePaused     = "node-operand-paused"
	ruleCount      = "node-capacity-differs"
	sourceOperator = "gpu-operator controllers/state_manager.go"
	sourceMIG      = "mig-parted deployments/container (MIG manager)"
	sourceLabels   = "k8s-device-plugin internal/lm"
)

// Check reports where the node's labels and resources contradict each other.
func (n *Node) Check() []finding.Finding {
	var findings []finding.Finding
	add := func(id string, s finding.Severity, subject, reason, fix, source string) {
		findings = append(findings, finding.Finding{ID: id, Severity: s, Subject: subject, Reason: reason, Fix: fix, Source: source})
	}
	var deploys []string
	for _, name := range slices.Sorted(maps.Keys(n.Labels)) {
		component, ok := strings.CutPrefix(name, "nvidia.com/gpu.deploy.")
		if !ok {
			continue
		}
		switch value := n.Labels[name]; {
		case value == "true":
			deploys = append(deploys, component)
		case strings.HasPrefix(value, "paused-for-"):
			add(rulePaused, finding.Warning, name, fmt.Sprintf("the operand is %s, so its pod is away", value),
				"wait for the change to finish; if it stays, read the log of the MIG manager or the driver upgrade state", sourceOperator)
		}
	}
	if n.Labels["nvidia.com/gpu.present"] == "true" && len(n.Capacity) == 0 {
		subject := "nvidia.com/gpu"
		reason := "the node is labelled as a GPU node, and its capacity has no nvidia.com resource: the device plugin has not registered"
		if len(deploys) > 0 {
			reason = fmt.Sprintf("the operator wants %s on the node, and its capacity has no nvidia.com resource: the device plugin has not registered", strings.Join(deploys, ", "))
		}
		add(ruleNoResource, finding.Error, subject, reason,
			"look at the pods on the node in this order: driver, container-toolkit, operator-validator, device-plugin", sourceOperator)
	}
	if n.Labels["nvidia.com/gpu.present"] == "true" && n.Labels[mig.WholeGPU+".product"] == "" {
		add(ruleNoLabels, finding.Warning, mig.WholeGPU+".product", "GPU Feature Discovery has not labelled the node: its pod has not run, or found no driver",
			"look at the gpu-feature-discovery pod, and at NFD, which carries its labels to the node", sourceLabels)
	}
	if strings.HasSuffix(n.Labels[mig.WholeGPU+".product"], "-MIG-INVALID") {
		add(ruleState, finding.Error, mig.WholeGPU+".product", "the MIG devices of the node do not suit the strategy single, and no GPU is allocatable",
			"partition every GPU alike, or use mig.strategy=mixed", sourceLabels)
	}
	if state := n.Labels["nvidia.com/mig.config.state"]; state != "" && state != "success" {
		severity := finding.Warning
		if state == "failed" {
			severity = finding.Error
		}
		add(ruleState, severity, "nvidia.com/mig.config.state", fmt.Sprintf("the MIG config %q is in the state %s", n.Labels["nvidia.com/mig.config"], state),
			"kubectl logs -n gpu-operator -l app=nvidia-mig-manager -c nvidia-mig-manager", sourceMIG)
	}
	for _, resource := range slices.Sorted(maps.Keys(n.Capacity)) {
		if n.Allocatable[resource] < n.Capacity[resource] {
			add(ruleCount, finding.Warning, resource, fmt.Sprintf("%d of %d are allocatable: the others are unhealthy", n.Allocatable[resource], n.Capacity[resource]),
				"look for XID errors on the node", "Kubernetes device plugins, health")
		}
	}
	return findings
}
