package verify

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/node"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/verdict"
)

// operandsOf are the operands of a release, each of its components once: those behind the label nvidia.com/gpu.deploy.
func operandsOf(v chart.Version) []chart.Operand {
	var out []chart.Operand
	for _, o := range chart.Load().Operands(v) {
		if o.Label != "" && !slices.ContainsFunc(out, func(other chart.Operand) bool { return other.Label == o.Label }) {
			out = append(out, o)
		}
	}
	return out
}

// order is a component's place among the operands; components of other releases come last.
func (j *judge) order(component string) int {
	if i := slices.IndexFunc(j.operands, func(o chart.Operand) bool { return o.Label == component }); i >= 0 {
		return i
	}
	return len(j.operands)
}

// forContainers reports whether a node for containers has the component's label; the other components are for virtual
// machines, for MIG alone, or of the DRA stack.
func (j *judge) forContainers(component string) bool {
	i := j.order(component)
	return i < len(j.operands) && slices.Contains(j.operands[i].Workloads, "container")
}

// An awaited is what an init container waits for, and the component that brings it about; the
// component is empty where no operand does.
type awaited struct{ what, component string }

// awaits are the init containers of the operands. Source: gpu-operator assets/, the init containers
// of each DaemonSet, and cmd/nvidia-validator/main.go.
var awaits = map[string]awaited{
	"driver-validation":         {"the driver to be loaded", "driver"},
	"toolkit-validation":        {"toolkit-ready, which the operator-validator writes when containers see the GPU", "operator-validator"},
	"cuda-validation":           {"a CUDA workload in a pod", "container-toolkit"},
	"plugin-validation":         {"the node to offer a GPU as a resource", "device-plugin"},
	"k8s-driver-manager":        {"the old driver to be unloaded, which no process on the node may hold", ""},
	"config-manager-init":       {"the config that the node's label or the default names", ""},
	"mofed-validation":          {"the network driver (MOFED) that the Network Operator or the host brings", ""},
	"nvidia-fs-validation":      {"the module nvidia-fs of GPUDirect Storage", "driver"},
	"gdrcopy-validation":        {"the module gdrdrv of GDRCopy", "driver"},
	"vgpu-manager-validation":   {"the vGPU host driver", "vgpu-manager"},
	"vgpu-devices-validation":   {"vGPU devices", "vgpu-device-manager"},
	"vfio-pci-validation":       {"the GPUs to be bound to vfio-pci", "vfio-manager"},
	"cc-manager-validation":     {"the confidential computing mode", "cc-manager"},
	"mps-control-daemon-mounts": {"the shared memory of the MPS control daemon", ""},
}

// enabled reports whether the ClusterPolicy in force installs a component; known is false without
// a ClusterPolicy.
func (j *judge) enabled(o chart.Operand) (on, known bool) {
	if j.policy == nil {
		return false, false
	}
	if o.Label == "driver" && j.boolean(false, "driver", "useNvidiaDriverCRD") {
		return len(j.NVIDIADrivers) > 0, true
	}
	return !slices.ContainsFunc(o.When, func(c chart.Condition) bool { return !c.Holds(j.said(c.Key()), o.Standard) }), true
}

// daemonSets is a row for each operand's DaemonSet, and for each that is meant to be there.
func (j *judge) daemonSets() {
	if j.lacks(cluster.DaemonSets) {
		return
	}
	var gpuNodes []*corev1.Node
	for i := range j.Nodes {
		if j.Nodes[i].Labels[labelPresent] == "true" {
			gpuNodes = append(gpuNodes, &j.Nodes[i])
		}
	}
	sets := j.sets
	for _, o := range j.operands {
		found := false
		for len(sets) > 0 && sets[0].component == o.Label {
			j.daemonSet(sets[0], gpuNodes)
			sets, found = sets[1:], true
		}
		if on, known := j.enabled(o); found || !known || !on || !o.Standard || len(gpuNodes) == 0 {
			continue
		}
		if o.Label == "mig-manager" && !slices.ContainsFunc(gpuNodes, func(n *corev1.Node) bool { return n.Labels["nvidia.com/mig.capable"] == "true" }) {
			continue
		}
		setting := "every release"
		if len(o.When) > 0 {
			setting = o.When[0].Key()
		}
		j.add(verdict.Verdict{
			ID: "daemonset", State: verdict.Failed, Subject: o.Label,
			Reason: fmt.Sprintf("%s enables the operand, and namespace %s has no DaemonSet that selects %s%s: the operator has not created it", setting, j.Namespace, deployPrefix, o.Label),
			Next:   fmt.Sprintf("kubectl logs -n %s -l app=gpu-operator --tail=100", j.Namespace), Source: sourceDaemonSet,
		})
	}
	for _, set := range sets {
		j.daemonSet(set, gpuNodes)
	}
}

func (j *judge) daemonSet(set operandSet, gpuNodes []*corev1.Node) {
	status := set.Status
	v := verdict.Verdict{ID: "daemonset", Subject: "DaemonSet/" + set.Name, Source: sourceDaemonSet}
	// a folder may hold an older status that lacks numberUnavailable
	unavailable := max(status.NumberUnavailable, status.DesiredNumberScheduled-status.NumberReady)
	switch {
	case status.ObservedGeneration < set.Generation:
		v.State, v.Reason = verdict.Waiting, "the DaemonSet was changed, and its controller has not looked at the change"
	case status.DesiredNumberScheduled == 0:
		v.State, v.Reason, v.Next, v.Source = j.desiresNone(set, gpuNodes)
		if v.Source == sourceTaints {
			v.Cause, v.Together, v.Evidence = j.tainted(set, gpuNodes)
		}
	case status.CurrentNumberScheduled < status.DesiredNumberScheduled && j.refused(set) != nil:
		d := j.refused(set)
		v.State, v.Reason, v.Next, v.Source, v.Cause, v.Evidence = verdict.Failed, d.reason, d.next, d.source, d.cause, d.evidence
	case unavailable > 0:
		v.State = verdict.Waiting
		v.Reason = fmt.Sprintf("%d of %d pods are ready; the rows of the nodes say what the others wait for", status.DesiredNumberScheduled-unavailable, status.DesiredNumberScheduled)
		v.Next = fmt.Sprintf("kubectl get pods -n %s -o wide -l %s", set.Namespace, selector(set))
	case status.UpdatedNumberScheduled < status.DesiredNumberScheduled && set.Spec.UpdateStrategy.Type == "OnDelete":
		v.State = verdict.Waiting
		v.Reason = fmt.Sprintf("%d of %d pods run the DaemonSet's present form; the others are replaced when the driver upgrade reaches their node, or when they are deleted", status.UpdatedNumberScheduled, status.DesiredNumberScheduled)
		v.Next, v.Source = "kubectl get nodes -L "+labelUpgrade, sourceUpgrade
	case status.UpdatedNumberScheduled < status.DesiredNumberScheduled:
		v.State = verdict.Waiting
		v.Reason = fmt.Sprintf("%d of %d pods run the DaemonSet's present form: a rollout is under way", status.UpdatedNumberScheduled, status.DesiredNumberScheduled)
		v.Next = fmt.Sprintf("kubectl rollout status -n %s daemonset/%s", set.Namespace, set.Name)
	default:
		v.Reason = fmt.Sprintf("%d of %d pods are ready", status.NumberReady, status.DesiredNumberScheduled)
	}
	j.add(v)
}

func selector(set operandSet) string {
	if set.Spec.Selector == nil {
		return "app=" + set.Name
	}
	var terms []string
	for _, key := range slices.Sorted(maps.Keys(set.Spec.Selector.MatchLabels)) {
		terms = append(terms, key+"="+set.Spec.Selector.MatchLabels[key])
	}
	return strings.Join(terms, ",")
}

// desiresNone says why a DaemonSet wants no pod at all. The operator takes such a DaemonSet for
// ready.
func (j *judge) desiresNone(set operandSet, gpuNodes []*corev1.Node) (state verdict.State, reason, next, source string) {
	const ready = "no node is to run it, and the operator takes that for ready: "
	if j.lacks(cluster.Nodes) {
		return verdict.Unknown, ready + "the nodes could not be read, so the cause is not known", "", sourceDaemonSet
	}
	if len(gpuNodes) == 0 {
		return verdict.Note, ready + "no node is labeled " + labelPresent + "=true", "", sourceLabels
	}
	meant := slices.DeleteFunc(slices.Clone(gpuNodes), func(n *corev1.Node) bool { return !j.meant(set.component, n) })
	if len(meant) == 0 {
		if set.component == "driver" && slices.ContainsFunc(gpuNodes, func(n *corev1.Node) bool { return !j.forMachines(n) }) {
			return verdict.OK, ready + "every GPU node brings its own driver", "", sourceManager
		}
		return verdict.OK, ready + "every GPU node is for virtual machines", "", sourceLabels
	}
	gpuNodes = meant
	wanted := set.Spec.Template.Spec.NodeSelector
	var matching []*corev1.Node
	for _, n := range gpuNodes {
		if matches(wanted, n.Labels) {
			matching = append(matching, n)
		}
	}
	if len(matching) > 0 {
		for _, n := range matching {
			if taint := blockingTaint(set, n); taint != nil {
				return verdict.Failed, fmt.Sprintf("%sthe taint %s keeps its pod off %s, and its tolerations do not cover it", ready, taint.ToString(), n.Name),
					untaint(n, taint), sourceTaints
			}
		}
		return verdict.Failed, fmt.Sprintf("%s%s has the labels that it selects: the DaemonSet controller may be behind, or an affinity excludes the node", ready, matching[0].Name),
			fmt.Sprintf("kubectl describe daemonset -n %s %s", set.Namespace, set.Name), sourceDaemonSet
	}
	// the first key that no node satisfies is the cause
	for _, key := range slices.SortedFunc(maps.Keys(wanted), deployFirst) {
		values := map[string]int{}
		for _, n := range gpuNodes {
			value, found := n.Labels[key]
			if !found {
				value = "absent"
			}
			values[value]++
		}
		if values[wanted[key]] > 0 {
			continue
		}
		var found []string
		for _, value := range slices.Sorted(maps.Keys(values)) {
			found = append(found, fmt.Sprintf("%q on %d", value, values[value]))
		}
		reason = fmt.Sprintf("%sit selects %s=%s, and the label of the GPU nodes is %s", ready, key, wanted[key], listed(found))
		switch {
		case slices.ContainsFunc(gpuNodes, func(n *corev1.Node) bool { return node.Paused(n.Labels[key]) }):
			return verdict.Waiting, reason, "", sourceLabels
		case key == "nvidia.com/mps.capable":
			return verdict.OK, ready + "no node shares GPUs by MPS", "", sourceAssets
		case set.component == "mig-manager" && values["absent"] == len(gpuNodes):
			return verdict.OK, ready + "no node has a GPU with MIG", "", sourceLabels
		case !j.forContainers(set.component):
			return verdict.Note, reason, "", sourceLabels
		case set.component == "driver" && key != deployPrefix+set.component:
			// of a kernel, a system or a pool that no node is of now; a node without a driver has a row of its own
			return verdict.Note, reason, "", sourceLabels
		}
		return verdict.Failed, reason, "kubectl get nodes -L " + key, sourceLabels
	}
	return verdict.Failed, ready + "no node has all labels that it selects: " + join(wanted), fmt.Sprintf("kubectl describe daemonset -n %s %s", set.Namespace, set.Name), sourceLabels
}

// meant reports whether a node of this use is to run a component: nodes for virtual machines run no
// operand of containers, and those that bring their own driver no driver container.
func (j *judge) meant(component string, n *corev1.Node) bool {
	if !j.forContainers(component) && component != "mig-manager" {
		return true
	}
	return !j.forMachines(n) && (component != "driver" || n.Labels[deployPrefix+component] != preInstalled)
}

// deployFirst sorts the deploy label before the others.
func deployFirst(a, b string) int {
	if x, y := strings.HasPrefix(a, deployPrefix), strings.HasPrefix(b, deployPrefix); x != y {
		return map[bool]int{true: -1, false: 1}[x]
	}
	return strings.Compare(a, b)
}

func join(labels map[string]string) string {
	var terms []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		terms = append(terms, key+"="+labels[key])
	}
	return strings.Join(terms, ",")
}

func matches(wanted, labels map[string]string) bool {
	for key, value := range wanted {
		if found, ok := labels[key]; !ok || found != value {
			return false
		}
	}
	return true
}

// blockingTaint is the first taint of a node that keeps the DaemonSet's pod off it; nil where none
// does. The DaemonSet controller adds tolerations for the taints that Kubernetes sets on trouble.
func blockingTaint(set operandSet, n *corev1.Node) *corev1.Taint {
	for i := range n.Spec.Taints {
		taint := &n.Spec.Taints[i]
		if taint.Effect == corev1.TaintEffectPreferNoSchedule || strings.HasPrefix(taint.Key, "node.kubernetes.io/") {
			continue
		}
		tolerated := slices.ContainsFunc(set.Spec.Template.Spec.Tolerations, func(t corev1.Toleration) bool { return tolerates(t, taint) })
		if !tolerated {
			return taint
		}
	}
	return nil
}

// tainted is the cause of a DaemonSet whose pods a taint keeps off the nodes.
func (j *judge) tainted(set operandSet, nodes []*corev1.Node) (cause, together string, evidence verdict.Evidence) {
	for _, n := range nodes {
		if taint := blockingTaint(set, n); taint != nil {
			return causeOf(n, taint)
		}
	}
	return "", "", verdict.Evidence{}
}

func causeOf(n *corev1.Node, taint *corev1.Taint) (cause, together string, evidence verdict.Evidence) {
	return "taint " + taint.ToString(), fmt.Sprintf("the taint %s keeps the pods off, and the tolerations of their DaemonSets do not cover it", taint.ToString()),
		verdict.Evidence{Kind: "taint", Object: "Node/" + n.Name, Text: taint.ToString()}
}

// untaint is the next step where a taint keeps an operand off a node.
func untaint(n *corev1.Node, taint *corev1.Taint) string {
	return fmt.Sprintf("kubectl taint node %s %s:%s-  # or cover it with daemonsets.tolerations in the operator's values", n.Name, taint.Key, taint.Effect)
}

// tolerates follows Kubernetes: an empty key with Exists covers every taint, an empty effect every
// effect.
func tolerates(t corev1.Toleration, taint *corev1.Taint) bool {
	if t.Effect != "" && t.Effect != taint.Effect {
		return false
	}
	if t.Operator == corev1.TolerationOpExists {
		return t.Key == "" || t.Key == taint.Key
	}
	return t.Key == taint.Key && t.Value == taint.Value
}
