package node

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/mig"
)

// ErrNoGPUs is returned if the labels do not describe the node's GPUs.
var ErrNoGPUs = errors.New("the labels do not show which GPUs the node has")

// GPUs returns the node's GPUs according to its labels. Product names do not have the suffixes that sharing and MIG
// add. The labels show how many MIG devices exist, but not on which GPU. GPUs puts them all on the first GPU, which is
// enough to predict labels and resources. Errors wrap ErrNoGPUs.
func GPUs(n *corev1.Node) ([]mig.GPU, error) {
	label := func(name string) string { return n.Labels[mig.WholeGPU+"."+name] }
	product := label("product")
	count, err := strconv.Atoi(label("count"))
	if product == "" || err != nil || count < 0 || count > 1024 {
		return nil, fmt.Errorf("%w: nvidia.com/gpu.product is %q and nvidia.com/gpu.count %q",
			ErrNoGPUs, product, label("count"))
	}
	product, suffix, _ := strings.Cut(strings.TrimSuffix(product, "-SHARED"), "-MIG-")
	if suffix == "INVALID" {
		return nil, fmt.Errorf("%w: nvidia.com/gpu.product ends in -MIG-INVALID", ErrNoGPUs)
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
		resource, ok := strings.CutSuffix(name, ".count")
		profile, known := mig.CanonicalProfile(strings.TrimSuffix(resource, ".shared"))
		if devices, err := strconv.Atoi(value); ok && known && err == nil &&
			strings.HasPrefix(resource, "nvidia.com/mig-") && devices > 0 && devices < 1<<16 {
			instances[profile] = devices
		}
	}
	if len(instances) > 0 && count > 0 {
		capacity := Resources(n.Status.Capacity)
		whole := capacity[mig.WholeGPU]
		if replicas, err := strconv.Atoi(label("replicas")); err == nil && replicas > 1 {
			whole = (whole + capacity[mig.WholeGPU+".shared"]) / replicas
		}
		for i := range max(1, count-whole) {
			gpus[i].Enabled, gpus[i].Instances = true, mig.Request{}
		}
		gpus[0].Instances = instances
	}
	return gpus, nil
}

// Paused reports whether a deploy label's value pauses the operand. The driver manager appends its pause to an existing
// one: paused-for-mig-change_paused-for-driver-upgrade.
func Paused(value string) bool { return strings.Contains(value, "paused-for-") }

// Check reports problems that a node's labels and resources show, such as paused operands, missing GPU resources or
// labels, a MIG change that did not succeed, or unhealthy GPUs. Findings have no file.
func Check(n *corev1.Node) []check.Finding {
	var findings []check.Finding
	capacity, allocatable := Resources(n.Status.Capacity), Resources(n.Status.Allocatable)
	add := func(id *check.Check, s check.Severity, subject, reason, fix string) {
		findings = append(findings, check.Finding{Check: id, Severity: s, Subject: subject, Reason: reason, Fix: fix})
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
		case Paused(value):
			add(OperandPaused, check.Warning, name, fmt.Sprintf("the operand is %s, so its pod does not run", value),
				"wait for the change to finish; "+
					"if it does not, see the log of the MIG manager or the driver upgrade state")
		}
	}
	if n.Labels["nvidia.com/gpu.present"] == "true" && len(capacity) == 0 {
		subject := "nvidia.com/gpu"
		reason := "the node is labeled as a GPU node, but its capacity has no nvidia.com resource: " +
			"the device plugin has not registered"
		if len(deploys) > 0 {
			reason = fmt.Sprintf("the operator deploys %s on the node, but its capacity has no nvidia.com resource: "+
				"the device plugin has not registered", strings.Join(deploys, ", "))
		}
		add(NoResource, check.Error, subject, reason,
			"check the node's pods in this order: driver, container-toolkit, operator-validator, device-plugin")
	}
	if n.Labels["nvidia.com/gpu.present"] == "true" && n.Labels[mig.WholeGPU+".product"] == "" {
		add(NoLabels, check.Warning, mig.WholeGPU+".product",
			"GPU Feature Discovery has not labeled the node: its pod has not run or found no driver",
			"check the gpu-feature-discovery pod, and NFD, which applies its labels")
	}
	findings = append(findings, migStates(n)...)
	for _, resource := range slices.Sorted(maps.Keys(capacity)) {
		if allocatable[resource] < capacity[resource] {
			add(CapacityDiffers, check.Warning, resource,
				fmt.Sprintf("%d of %d are allocatable: the others are unhealthy",
					allocatable[resource], capacity[resource]),
				"check the node for XID errors")
		}
	}
	return findings
}

// migStates returns findings about the MIG labels of a node.
func migStates(n *corev1.Node) []check.Finding {
	var findings []check.Finding
	if strings.HasSuffix(n.Labels[mig.WholeGPU+".product"], "-MIG-INVALID") {
		findings = append(findings, check.Finding{
			Check: MIGState, Severity: check.Error, Subject: mig.WholeGPU + ".product",
			Reason: "the strategy single does not support the node's MIG devices, so no GPU is allocatable",
			Fix:    "partition every GPU alike, or use mig.strategy=mixed",
		})
	}
	if state := n.Labels["nvidia.com/mig.config.state"]; state != "" && state != "success" {
		severity := check.Warning
		if state == "failed" {
			severity = check.Error
		}
		findings = append(findings, check.Finding{
			Check: MIGState, Severity: severity, Subject: "nvidia.com/mig.config.state",
			Reason: fmt.Sprintf("the state of the MIG config is %q; its label nvidia.com/mig.config is %q",
				state, n.Labels["nvidia.com/mig.config"]),
			Fix: "kubectl logs -n gpu-operator -l app=nvidia-mig-manager -c nvidia-mig-manager",
		})
	}
	return findings
}

// OperandTolerations returns the operands' tolerations for the list in daemonsets.tolerations. If the list is empty,
// the operands keep the tolerations of their manifests. Source: gpu-operator v26.7.0, applyCommonDaemonsetConfig in
// controllers/object_controls.go, and assets/.
func OperandTolerations(list []corev1.Toleration) []corev1.Toleration {
	if len(list) == 0 {
		return []corev1.Toleration{{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists,
			Effect: corev1.TaintEffectNoSchedule}}
	}
	return list
}

// Covered reports whether pods with the tolerations can run in spite of a taint. PreferNoSchedule never keeps pods
// away.
func Covered(tolerations []corev1.Toleration, taint corev1.Taint) bool {
	return taint.Effect == corev1.TaintEffectPreferNoSchedule ||
		slices.ContainsFunc(tolerations, func(t corev1.Toleration) bool {
			// the API server rejects an empty key without Exists, and a value with Exists
			valid := t.Key != "" && t.Operator != corev1.TolerationOpExists ||
				t.Operator == corev1.TolerationOpExists && t.Value == ""
			return valid && t.ToleratesTaint(klog.Background(), &taint, false)
		})
}
