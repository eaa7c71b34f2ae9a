package lint

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/finding"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/node"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/sharing"
)

// A nodeState is a Node that a file has from a line on.
type nodeState struct {
	*node.Node
	file string
	line int
}

// node judges a Node object.
func (r *run) node(d *doc) {
	n := nodeState{node.Object(d.root), d.file, d.line}
	if config, has := n.Labels[sharing.ConfigLabel]; has {
		r.labels = append(r.labels, labelUse{config, finding.Finding{File: d.file, Line: n.Lines[sharing.ConfigLabel] + d.line, Subject: sharing.ConfigLabel + "=" + config}})
	}
	r.judgeNode(n)
}

const sourceLabels = "gpu-operator controllers/state_manager.go"

const managerLogs = "kubectl logs -n gpu-operator -l app=nvidia-mig-manager -c nvidia-mig-manager"

// labelRules are what a label of a node gives away, the first that applies alone.
var labelRules = []struct {
	id       string
	severity finding.Severity
	applies  func(label, value string, present bool) bool
	reason   func(n nodeState, label, value string) string
	fix      string
	source   string
}{
	{"paused", finding.Warning, func(label, value string, _ bool) bool {
		return strings.HasPrefix(label, deployLabel) && node.Paused(value)
	}, func(_ nodeState, label, value string) string {
		return fmt.Sprintf("%s is taken off the node (%s); if it stays so, the change did not end", strings.TrimPrefix(label, deployLabel), value)
	}, "look at nvidia.com/mig.config.state and nvidia.com/gpu-driver-upgrade-state", sourceLabels},
	{"disabled", finding.Info, func(label, value string, present bool) bool {
		return strings.HasPrefix(label, deployLabel) && value == "false" && present
	}, func(_ nodeState, label, _ string) string {
		return strings.TrimPrefix(label, deployLabel) + " is switched off on this node"
	}, "", sourceLabels},
	{"mig-failed", finding.Error, is("nvidia.com/mig.config.state", "failed"), func(n nodeState, _, _ string) string {
		return fmt.Sprintf("the MIG config %q could not be applied", n.Labels["nvidia.com/mig.config"])
	}, managerLogs, "mig-parted deployments/container"},
	{"mig-pending", finding.Warning, is("nvidia.com/mig.config.state", "pending", "rebooting"),
		always("the MIG config is being applied, or is stuck: up to v0.15.0 the manager leaves the state pending when it times out waiting for pods"), managerLogs, "mig-parted#485"},
	{"upgrade-failed", finding.Error, is("nvidia.com/gpu-driver-upgrade-state", "upgrade-failed"), always("the driver upgrade of this node failed"),
		"read the driver pod's logs, then delete the pod", "k8s-operator-libs pkg/upgrade"},
	{"mig-invalid", finding.Error, func(label, value string, _ bool) bool {
		return label == "nvidia.com/gpu.product" && strings.HasSuffix(value, "-MIG-INVALID")
	}, always("mig.strategy=single wants every GPU in MIG mode with instances of one profile; this node has something else, and offers no GPU"),
		"use mig.strategy=mixed, or a config with one profile", "k8s-device-plugin internal/lm"},
}

const deployLabel = "nvidia.com/gpu.deploy."

func is(label string, values ...string) func(string, string, bool) bool {
	return func(l, v string, _ bool) bool { return l == label && slices.Contains(values, v) }
}

func always(reason string) func(nodeState, string, string) string {
	return func(nodeState, string, string) string { return reason }
}

// judgeNode compares the labels of a node with its resources.
func (r *run) judgeNode(n nodeState) {
	add := func(id string, severity finding.Severity, line int, subject, reason, fix, source string) {
		if line > 0 {
			line += n.line
		}
		r.findings = append(r.findings, finding.Finding{ID: id, Severity: severity, File: n.file, Line: line, Subject: subject, Reason: reason, Fix: fix, Source: source})
	}
	for name, amount := range n.Capacity {
		if strings.HasPrefix(name, "nvidia.com/") && n.Allocatable[name] == "0" && amount != "0" {
			add("not-allocatable", finding.Warning, n.Lines[name], name, fmt.Sprintf("capacity %s, allocatable 0: the device plugin reports every device unhealthy or has gone", amount),
				"read the logs of the device plugin's pod on "+n.called(), "Kubernetes device plugin API")
		}
		if name == "amd.com/gpu" || strings.HasPrefix(name, "gpu.intel.com/") {
			add("second-vendor", finding.Info, n.Lines[name], name, "another vendor's device plugin serves this node too; NVIDIA's operands do not touch its devices", "", "device plugins of Intel and AMD")
		}
	}
	present, gpus := n.Labels["nvidia.com/gpu.present"] == "true", len(n.GPUResources())
	if present && gpus == 0 && n.Labels["nvidia.com/gpu.deploy.device-plugin"] == "true" {
		add("labels-without-resource", finding.Error, n.CapacityLine, "Capacity",
			"the node is labeled for the device plugin, but offers no nvidia.com/ resource: driver, toolkit or plugin is not ready",
			"kubectl get pods -n gpu-operator -o wide --field-selector spec.nodeName="+n.called()+"; the first operand that is not Running is the cause", sourceLabels)
	}
	for label, value := range n.Labels {
		for _, rule := range labelRules {
			if rule.applies(label, value, present) {
				add(rule.id, rule.severity, n.Lines[label], label, rule.reason(n, label, value), rule.fix, rule.source)
				break
			}
		}
	}
	if gpus > 0 && len(n.Taints) == 0 {
		add("no-taint", finding.Info, n.CapacityLine, n.called(), "nothing keeps pods without a GPU off this node", "kubectl taint node "+n.called()+" nvidia.com/gpu=present:NoSchedule", sourceKubernetes)
	}
}

func (n nodeState) called() string { return cmp.Or(n.Name, "NODE") }
