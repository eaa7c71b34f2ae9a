package lint

import (
	"bufio"
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpuop/finding"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpuop/sharing"
)

// A nodeState is what a Node object or its description says about GPUs. Maps are from a name to its value; lines are
// those of the labels and of the section capacity.
type nodeState struct {
	file                          string
	line                          int
	name                          string
	labels, capacity, allocatable map[string]string
	lines                         map[string]int
	capacityLine                  int
	taints                        []taint
}

var section = regexp.MustCompile(`^([A-Z][A-Za-z ]*):\s*(.*)$`)

// parseDescription reads what kubectl describe node prints, also when its indentation is lost.
func parseDescription(data []byte) (*nodeState, bool) {
	if !bytes.HasPrefix(bytes.TrimSpace(data), []byte("Name:")) || !bytes.Contains(data, []byte("Capacity:")) || !bytes.Contains(data, []byte("Labels:")) {
		return nil, false
	}
	n := &nodeState{labels: map[string]string{}, capacity: map[string]string{}, allocatable: map[string]string{}, lines: map[string]int{}}
	scanner := bufio.NewScanner(bytes.NewReader(data))
	scanner.Buffer(nil, 1<<20)
	in, number := "", 0
	for scanner.Scan() {
		number++
		rest := strings.TrimSpace(scanner.Text())
		if m := section.FindStringSubmatch(scanner.Text()); m != nil {
			in, rest = m[1], strings.TrimSpace(m[2])
			if in == "Capacity" {
				n.capacityLine = number
			}
		}
		n.described(in, rest, number)
	}
	return n, true
}

// described reads one line of a section.
func (n *nodeState) described(in, rest string, number int) {
	switch in {
	case "Name":
		if rest != "" && n.name == "" {
			n.name = rest
		}
	case "Labels":
		if key, value, found := strings.Cut(rest, "="); found {
			n.labels[key], n.lines[key] = value, number
		}
	case "Capacity", "Allocatable":
		if key, value, found := cutLast(rest, ":"); found {
			m := n.capacity
			if in == "Allocatable" {
				m = n.allocatable
			}
			m[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
	case "Taints":
		if t, err := parseTaint(rest); err == nil {
			n.taints = append(n.taints, t)
		}
	}
}

func (r *run) describedNode(n *nodeState) {
	r.judged++
	r.taints = append(r.taints, n.taints...)
	r.findings = append(r.findings, n.judge()...)
}

// node judges a Node object.
func (r *run) node(d *doc) {
	n := &nodeState{file: d.file, line: d.line, name: str(d.root, "metadata", "name"), lines: map[string]int{}, taints: nodeTaints(d.root)}
	read := func(m *yaml.Node) map[string]string {
		out := map[string]string{}
		for _, f := range plain(m) {
			if f.Value.Kind == yaml.ScalarNode {
				out[f.Name], n.lines[f.Name] = f.Value.Value, f.Key.Line
			}
		}
		return out
	}
	n.capacity = read(get(d.root, "status", "capacity"))
	n.allocatable = read(get(d.root, "status", "allocatable"))
	n.labels = read(get(d.root, "metadata", "labels"))
	if config, has := n.labels[sharing.ConfigLabel]; has {
		r.labels = append(r.labels, labelUse{config, finding.Finding{File: d.file, Line: n.lines[sharing.ConfigLabel] + d.line, Subject: sharing.ConfigLabel + "=" + config}})
	}
	if c := get(d.root, "status", "capacity"); c != nil {
		n.capacityLine = fields.Resolve(c).Line
	}
	r.findings = append(r.findings, n.judge()...)
}

const sourceLabels = "gpu-operator controllers/state_manager.go"

const managerLogs = "kubectl logs -n gpu-operator -l app=nvidia-mig-manager -c nvidia-mig-manager"

// labelRules are what a label of a node gives away, the first that applies alone.
var labelRules = []struct {
	id       string
	severity finding.Severity
	applies  func(label, value string, present bool) bool
	reason   func(n *nodeState, label, value string) string
	fix      string
	source   string
}{
	{"paused", finding.Warning, func(label, value string, _ bool) bool {
		return strings.HasPrefix(label, deployLabel) && (value == "paused-for-mig-change" || value == "paused-for-driver-upgrade")
	}, func(_ *nodeState, label, value string) string {
		return fmt.Sprintf("%s is taken off the node (%s); if it stays so, the change did not end", strings.TrimPrefix(label, deployLabel), value)
	}, "look at nvidia.com/mig.config.state and nvidia.com/gpu-driver-upgrade-state", sourceLabels},
	{"disabled", finding.Info, func(label, value string, present bool) bool {
		return strings.HasPrefix(label, deployLabel) && value == "false" && present
	}, func(_ *nodeState, label, _ string) string {
		return strings.TrimPrefix(label, deployLabel) + " is switched off on this node"
	}, "", sourceLabels},
	{"mig-failed", finding.Error, is("nvidia.com/mig.config.state", "failed"), func(n *nodeState, _, _ string) string {
		return fmt.Sprintf("the MIG config %q could not be applied", n.labels["nvidia.com/mig.config"])
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

func always(reason string) func(*nodeState, string, string) string {
	return func(*nodeState, string, string) string { return reason }
}

// judge compares the labels of a node with its resources.
func (n *nodeState) judge() []finding.Finding {
	var out []finding.Finding
	add := func(id string, severity finding.Severity, line int, subject, reason, fix, source string) {
		if line > 0 {
			line += n.line
		}
		out = append(out, finding.Finding{ID: id, Severity: severity, File: n.file, Line: line, Subject: subject, Reason: reason, Fix: fix, Source: source})
	}
	gpus := 0
	for name, amount := range n.capacity {
		if strings.HasPrefix(name, "nvidia.com/") {
			gpus++
			if n.allocatable[name] == "0" && amount != "0" {
				add("not-allocatable", finding.Warning, n.lines[name], name, fmt.Sprintf("capacity %s, allocatable 0: the device plugin reports every device unhealthy or has gone", amount),
					"read the logs of the device plugin's pod on "+n.called(), "Kubernetes device plugin API")
			}
		}
		if name == "amd.com/gpu" || strings.HasPrefix(name, "gpu.intel.com/") {
			add("second-vendor", finding.Info, n.lines[name], name, "another vendor's device plugin serves this node too; NVIDIA's operands do not touch its devices", "", "device plugins of Intel and AMD")
		}
	}
	present := n.labels["nvidia.com/gpu.present"] == "true"
	if present && gpus == 0 && n.labels["nvidia.com/gpu.deploy.device-plugin"] == "true" {
		add("labels-without-resource", finding.Error, n.capacityLine, "Capacity",
			"the node is labelled for the device plugin, but offers no nvidia.com/ resource: driver, toolkit or plugin is not ready",
			"kubectl get pods -n gpu-operator -o wide --field-selector spec.nodeName="+n.called()+"; the first operand that is not Running is the cause", sourceLabels)
	}
	for label, value := range n.labels {
		for _, rule := range labelRules {
			if rule.applies(label, value, present) {
				add(rule.id, rule.severity, n.lines[label], label, rule.reason(n, label, value), rule.fix, rule.source)
				break
			}
		}
	}
	if gpus > 0 && len(n.taints) == 0 {
		add("no-taint", finding.Info, n.capacityLine, n.called(), "nothing keeps pods without a GPU off this node", "kubectl taint node "+n.called()+" nvidia.com/gpu=present:NoSchedule", sourceKubernetes)
	}
	return out
}

func (n *nodeState) called() string {
	if n.name == "" {
		return "NODE"
	}
	return n.name
}
