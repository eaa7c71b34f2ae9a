// Package node reads the GPUs of a Kubernetes Node from the output of kubectl: JSON or YAML of get node, or the text of
// describe node, which may have lost its indentation. It also finds labels and resources that contradict each other.
package node

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/mig"
)

// Checks for nodes.
var (
	NoResource = check.New("node-no-gpu-resource", check.Error,
		"The node has GPU labels but no nvidia.com resource: the device plugin has not registered.",
		"Read the device plugin's log.", "gpu-operator controllers/state_manager.go")
	NoLabels = check.New("node-no-gpu-labels", check.Warning, "GPU Feature Discovery has not labeled the node.",
		"Read its log.", "k8s-device-plugin internal/lm")
	MIGState = check.New("node-mig-state", check.Error,
		"A MIG change is in progress, has failed or is stuck, or the MIG strategy does not support the MIG devices.",
		"Read the MIG manager's log.", "mig-parted pkg/mig/reconfigure/reconfigure.go")
	OperandPaused = check.New("node-operand-paused", check.Error,
		"An operand is paused for a MIG change or a driver upgrade, or was never resumed.",
		"Find out what holds the GPUs.", "gpu-operator controllers/state_manager.go")
	CapacityDiffers = check.New("node-capacity-differs", check.Warning, "Some GPUs are unhealthy and not allocatable.",
		"Look for XIDs in the kernel log.", "Kubernetes device plugins, health")
)

// ErrNoGPUs is returned if the labels do not describe the node's GPUs.
var ErrNoGPUs = errors.New("the labels do not show which GPUs the node has")

// GPUs returns the node's GPUs according to its labels. Product names do not have the suffixes that sharing and MIG
// add. The labels show how many MIG devices exist, but not on which GPU. GPUs puts them all on the first GPU, which is
// enough to predict labels and resources. Errors wrap ErrNoGPUs.
func GPUs(n *corev1.Node) ([]mig.GPU, error) {
	label := func(name string) string { return n.Labels[mig.WholeGPU+"."+name] }
	product, suffix, _ := strings.Cut(strings.TrimSuffix(label("product"), "-SHARED"), "-MIG-")
	count, err := strconv.Atoi(label("count"))
	if product == "" || suffix == "INVALID" || err != nil || count < 1 || count > 1024 {
		return nil, fmt.Errorf("%w: nvidia.com/gpu.product is %q and nvidia.com/gpu.count %q",
			ErrNoGPUs, label("product"), label("count"))
	}
	gpu := mig.GPU{Product: product, Family: label("family")}
	if board, err := mig.FindBoard(product); err == nil {
		gpu = board.GPU(product)
	}
	if major, minor := label("compute.major"), label("compute.minor"); major != "" && minor != "" {
		gpu.ComputeCapability = major + "." + minor
	}
	if profile, single := mig.CanonicalProfile(suffix); single {
		gpu.Enabled, gpu.Instances = true, mig.Request{profile: count}
		return []mig.GPU{gpu}, nil
	}
	if memory, err := strconv.Atoi(label("memory")); err == nil && memory > 0 {
		gpu.MemoryMiB = memory
	}
	gpus := slices.Repeat([]mig.GPU{gpu}, count)
	instances := mig.Request{}
	for name, value := range n.Labels {
		name, isMIG := strings.CutPrefix(name, "nvidia.com/mig-")
		name, isCount := strings.CutSuffix(name, ".count")
		profile, known := mig.CanonicalProfile(strings.TrimSuffix(name, ".shared"))
		devices, err := strconv.Atoi(value)
		if isMIG && isCount && known && err == nil && devices > 0 && devices < 1<<16 {
			instances[profile] = devices
		}
	}
	if len(instances) == 0 || count == 0 {
		return gpus, nil
	}
	capacity := Resources(n.Status.Capacity)
	whole := capacity[mig.WholeGPU]
	if replicas, err := strconv.Atoi(label("replicas")); err == nil && replicas > 1 {
		whole = (whole + capacity[mig.WholeGPU+".shared"]) / replicas
	}
	for i := range max(1, count-whole) {
		gpus[i].Enabled, gpus[i].Instances = true, mig.Request{}
	}
	gpus[0].Instances = instances
	return gpus, nil
}

// Paused reports whether a deploy label's value pauses the operand. The driver manager appends its pause to an existing
// one: paused-for-mig-change_paused-for-driver-upgrade.
func Paused(value string) bool { return strings.Contains(value, "paused-for-") }

// Check reports problems that a node's labels and resources show, such as paused operands, missing GPU resources or
// labels, a MIG change that did not succeed, or unhealthy GPUs. Findings have no file.
func Check(n *corev1.Node) (findings []check.Finding) {
	capacity, allocatable := Resources(n.Status.Capacity), Resources(n.Status.Allocatable)
	add := func(id *check.Check, s check.Severity, subject, fix, format string, args ...any) {
		findings = append(findings,
			check.Finding{Check: id, Severity: s, Subject: subject, Fix: fix, Reason: fmt.Sprintf(format, args...)})
	}
	for _, name := range slices.Sorted(maps.Keys(n.Labels)) {
		if value := n.Labels[name]; strings.HasPrefix(name, "nvidia.com/gpu.deploy.") && Paused(value) {
			add(OperandPaused, check.Warning, name,
				"wait for the change to finish; if it does not, see the MIG manager's log or the driver upgrade state",
				"the operand is %s, so its pod does not run", value)
		}
	}
	isPresent, product := n.Labels["nvidia.com/gpu.present"] == "true", n.Labels[mig.WholeGPU+".product"]
	if isPresent && len(capacity) == 0 {
		add(NoResource, check.Error, mig.WholeGPU,
			"check the node's pods in this order: driver, container-toolkit, operator-validator, device-plugin",
			"the node is labeled as a GPU node, but its capacity has no nvidia.com resource: "+
				"the device plugin has not registered")
	}
	if isPresent && product == "" {
		add(NoLabels, check.Warning, mig.WholeGPU+".product",
			"check the gpu-feature-discovery pod, and NFD, which applies its labels",
			"GPU Feature Discovery has not labeled the node: its pod has not run or found no driver")
	}
	if strings.HasSuffix(product, "-MIG-INVALID") {
		add(MIGState, check.Error, mig.WholeGPU+".product", "partition every GPU alike, or use mig.strategy=mixed",
			"the strategy single does not support the node's MIG devices, so no GPU is allocatable")
	}
	if state := n.Labels["nvidia.com/mig.config.state"]; state != "" && state != "success" {
		severity := check.Warning
		if state == "failed" {
			severity = check.Error
		}
		add(MIGState, severity, "nvidia.com/mig.config.state",
			"kubectl logs -n gpu-operator -l app=nvidia-mig-manager -c nvidia-mig-manager",
			"the state of the MIG config %q is %q", n.Labels["nvidia.com/mig.config"], state)
	}
	for _, resource := range slices.Sorted(maps.Keys(capacity)) {
		if allocatable[resource] < capacity[resource] {
			add(CapacityDiffers, check.Warning, resource, "check the node for XID errors",
				"%d of %d are allocatable: the others are unhealthy", allocatable[resource], capacity[resource])
		}
	}
	return findings
}

// Resources returns the nvidia.com resources in a list.
func Resources(list corev1.ResourceList) map[string]int {
	out := map[string]int{}
	for name, q := range list {
		if strings.HasPrefix(string(name), "nvidia.com/") {
			out[string(name)] = int(q.Value())
		}
	}
	return out
}

// OperandTolerations returns daemonsets.tolerations or, if that is empty, the tolerations in the operands' manifests.
// Source: gpu-operator v26.7.0, applyCommonDaemonsetConfig in controllers/object_controls.go, and assets/.
func OperandTolerations(list []corev1.Toleration) []corev1.Toleration {
	if len(list) > 0 {
		return list
	}
	return []corev1.Toleration{{Key: mig.WholeGPU, Operator: corev1.TolerationOpExists,
		Effect: corev1.TaintEffectNoSchedule}}
}

// Covered reports whether pods with the tolerations can run in spite of a taint. PreferNoSchedule keeps no pod away.
func Covered(tolerations []corev1.Toleration, taint corev1.Taint) bool {
	return taint.Effect == corev1.TaintEffectPreferNoSchedule ||
		slices.ContainsFunc(tolerations, func(t corev1.Toleration) bool {
			// the API server rejects an empty key without Exists, and a value with Exists
			isExists := t.Operator == corev1.TolerationOpExists
			valid := isExists && t.Value == "" || !isExists && t.Key != ""
			return valid && t.ToleratesTaint(klog.Background(), &taint, false)
		})
}

// Stays reports whether a taint is permanent. Kubernetes sets and removes the taints below node.kubernetes.io/ and
// node.cloudprovider.kubernetes.io/ as the node's condition changes.
func Stays(t corev1.Taint) bool {
	group, _, _ := strings.Cut(t.Key, "/")
	return !slices.Contains([]string{"", "node.kubernetes.io", "node.cloudprovider.kubernetes.io"}, group)
}

// ErrNode is returned if the input is not exactly one Node.
var ErrNode = errors.New("not a Node")

// Parse parses a Node from JSON, YAML or the text of kubectl describe. Errors wrap ErrNode.
func Parse(data []byte) (*corev1.Node, error) {
	var object struct {
		corev1.Node
		Items []corev1.Node `json:"items"`
	}
	err := yaml.Unmarshal(data, &object)
	n := &object.Node
	if strings.HasSuffix(n.Kind, "List") && len(object.Items) == 1 {
		n = &object.Items[0]
	}
	switch described, ok := Described(data); {
	case err == nil && (n.Kind == "Node" || n.Kind == "" && n.Labels != nil):
		return n, nil
	case ok && len(described.Labels) > 0:
		return described, nil
	}
	return nil, fmt.Errorf("%w: expected the output of kubectl get node NAME -o json (or yaml), "+
		"or of kubectl describe node NAME", ErrNode)
}

var (
	// section matches a heading of kubectl describe. Pasted text often has no indentation, so only headings separate
	// sections.
	section   = regexp.MustCompile(`^([A-Z][A-Za-z -]*):\s*(.*)$`)
	taintText = regexp.MustCompile(`^([A-Za-z0-9./_-]+)(?:=([A-Za-z0-9._-]*))?:` +
		`(NoSchedule|PreferNoSchedule|NoExecute)$`)
)

// Described parses the text of kubectl describe node. It returns false if the text has no name, Labels or Capacity.
func Described(data []byte) (*corev1.Node, bool) {
	n := &corev1.Node{}
	n.Labels = map[string]string{}
	n.Status.Capacity, n.Status.Allocatable = corev1.ResourceList{}, corev1.ResourceList{}
	lists := map[string]corev1.ResourceList{"Capacity": n.Status.Capacity, "Allocatable": n.Status.Allocatable}
	seen := map[string]bool{}
	in := ""
	for line := range strings.Lines(string(data)) {
		rest := strings.TrimSpace(line)
		if m := section.FindStringSubmatch(rest); m != nil {
			in, rest = m[1], strings.TrimSpace(m[2])
			seen[in] = true
		} else if in == "" && rest != "" {
			break // not the output of kubectl describe
		}
		// the headings of the NodeInfo are the names of its fields, with spaces
		field := reflect.ValueOf(&n.Status.NodeInfo).Elem().FieldByName(strings.ReplaceAll(in, " ", ""))
		switch {
		case in == "Name" && n.Name == "":
			n.Name = rest
		case field.Kind() == reflect.String && field.IsZero():
			field.SetString(rest)
		case in == "Labels":
			if key, value, found := strings.Cut(rest, "="); found {
				n.Labels[key] = value
			}
		case lists[in] != nil:
			name, amount, _ := strings.Cut(rest, ":")
			if q, err := resource.ParseQuantity(strings.TrimSpace(amount)); err == nil {
				lists[in][corev1.ResourceName(name)] = q
			}
		case in == "Taints":
			if m := taintText.FindStringSubmatch(rest); m != nil {
				n.Spec.Taints = append(n.Spec.Taints,
					corev1.Taint{Key: m[1], Value: m[2], Effect: corev1.TaintEffect(m[3])})
			}
		}
	}
	return n, n.Name != "" && seen["Labels"] && seen["Capacity"]
}
