package judge

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/node"
)

// forContainers reports whether a component runs on nodes with container workloads. Other components are for virtual
// machines, MIG or DRA.
func (v *view) forContainers(component string) bool {
	i := v.order(component)
	return i < len(v.components) && slices.Contains(v.components[i].Workloads, "container")
}

// enabled reports whether the ClusterPolicy enables a component. With driver.nvidiaDriverCRD.enabled, the driver is
// enabled if an NVIDIADriver exists. Without a ClusterPolicy, known is false.
func (v *view) enabled(o chart.Operand) (on, known bool) {
	if v.policy == nil {
		return false, false
	}
	if o.Label == "driver" && v.is("driver.nvidiaDriverCRD.enabled") {
		return len(v.NVIDIADrivers) > 0, true
	}
	return !slices.ContainsFunc(o.When, func(c chart.Condition) bool {
		return !c.Holds(v.text(c.Key()), o.Standard)
	}), true
}

// daemonSets checks the DaemonSets of the operands. A missing DaemonSet is an error if the ClusterPolicy
// enables its operand and GPU nodes need it. notReady is the set of components that are not ready on some node.
func daemonSets(v *view, notReady map[string]bool) []check.Finding {
	if v.lacks(cluster.DaemonSets) {
		return nil
	}
	var findings []check.Finding
	present := slices.DeleteFunc(slices.Clone(v.gpu),
		func(n *corev1.Node) bool { return n.Labels[labelPresent] != "true" })
	sets := v.sets
	for _, o := range v.components {
		found := false
		for len(sets) > 0 && sets[0].component == o.Label {
			findings = append(findings, checkDaemonSet(v, sets[0], present, notReady)...)
			sets, found = sets[1:], true
		}
		if on, known := v.enabled(o); found || !known || !on || !o.Standard || len(present) == 0 {
			continue
		}
		if o.Label == "mig-manager" &&
			!slices.ContainsFunc(present, func(n *corev1.Node) bool { return n.Labels[labelCapable] == "true" }) {
			continue
		}
		setting := "the chart"
		if len(o.When) > 0 {
			setting = o.When[0].Key()
		}
		findings = append(findings, check.Finding{
			Check: daemonSet, Severity: check.Error, Subject: o.Label,
			Reason: fmt.Sprintf("%s enables the operand, but namespace %s has no DaemonSet that selects %s%s: "+
				"the operator has not created it", setting, v.Namespace, deployPrefix, o.Label),
			Fix: v.operatorLog(),
			Evidence: v.listed(cluster.DaemonSets, "no DaemonSet selects %s%s; DaemonSets of operands: %d",
				deployPrefix, o.Label, len(v.sets)),
		})
	}
	for _, set := range sets {
		findings = append(findings, checkDaemonSet(v, set, present, notReady)...)
	}
	return findings
}

// checkDaemonSet checks one DaemonSet. It returns nothing about unready pods if the component is not ready on some
// node, because that node has a finding about it.
func checkDaemonSet(v *view, set operandSet, present []*corev1.Node, notReady map[string]bool) []check.Finding {
	s := set.Status
	f := check.Finding{
		Check: daemonSet, Subject: "DaemonSet/" + set.Namespace + "/" + set.Name,
		Evidence: check.Seen("status", "DaemonSet/"+set.Name, "desired %d, current %d, ready %d, updated %d",
			s.DesiredNumberScheduled, s.CurrentNumberScheduled, s.NumberReady, s.UpdatedNumberScheduled),
	}
	// an older status in a gathered folder may lack numberUnavailable
	unavailable := max(s.NumberUnavailable, s.DesiredNumberScheduled-s.NumberReady)
	switch {
	case s.ObservedGeneration < set.Generation:
		f.Say(check.Waiting, "the DaemonSet controller has not processed the latest change")
		f.Fix = fmt.Sprintf("kubectl describe daemonset -n %s %s", set.Namespace, set.Name)
	case s.DesiredNumberScheduled == 0:
		desiresNone(v, &f, set, present)
	case s.CurrentNumberScheduled < s.DesiredNumberScheduled && v.refused(set) != nil:
		v.refused(set).explain(&f)
	case unavailable > 0 && notReady[set.component]:
		return nil
	case unavailable > 0:
		f.Say(check.Waiting, "%d of %d pods are ready", s.DesiredNumberScheduled-unavailable, s.DesiredNumberScheduled)
		f.Fix = fmt.Sprintf("kubectl get pods -n %s -o wide -l %s",
			set.Namespace, metav1.FormatLabelSelector(set.Spec.Selector))
	case s.UpdatedNumberScheduled < s.DesiredNumberScheduled && set.Spec.UpdateStrategy.Type == "OnDelete":
		f.Say(check.Waiting, "%d of %d pods run the current template; the others are replaced when the driver "+
			"upgrade reaches their node, or when they are deleted", s.UpdatedNumberScheduled, s.DesiredNumberScheduled)
		f.Fix = "kubectl get nodes -L " + labelUpgrade
	case s.UpdatedNumberScheduled < s.DesiredNumberScheduled:
		f.Say(check.Waiting, "%d of %d pods run the current template: a rollout is in progress",
			s.UpdatedNumberScheduled, s.DesiredNumberScheduled)
		f.Fix = fmt.Sprintf("kubectl rollout status -n %s daemonset/%s", set.Namespace, set.Name)
	default:
		f.Reason = fmt.Sprintf("%d of %d pods are ready", s.NumberReady, s.DesiredNumberScheduled)
	}
	return []check.Finding{f}
}

// desiresNone explains why a DaemonSet wants no pods. The operator considers such a DaemonSet ready.
func desiresNone(v *view, f *check.Finding, set operandSet, present []*corev1.Node) {
	say := func(state check.Severity, next, format string, args ...any) {
		f.Severity, f.Fix = state, next
		f.Reason = "its desired number of pods is 0, so the operator counts it as ready: " +
			fmt.Sprintf(format, args...)
	}
	describe := fmt.Sprintf("kubectl describe daemonset -n %s %s", set.Namespace, set.Name)
	if v.lacks(cluster.Nodes) {
		say(check.Unknown, "", "the cause is unknown because the nodes could not be read")
		return
	}
	if len(present) == 0 {
		say(check.Note, "", "no node is labeled %s=true", labelPresent)
		return
	}
	meant := slices.DeleteFunc(slices.Clone(present), func(n *corev1.Node) bool { return !v.meant(set.component, n) })
	if len(meant) == 0 {
		if set.component == "driver" &&
			slices.ContainsFunc(present, func(n *corev1.Node) bool { return !v.forMachines(n) }) {
			say(check.OK, "", "every GPU node for containers has a preinstalled driver")
		} else {
			say(check.OK, "", "every GPU node is reserved for virtual machines")
		}
		return
	}
	var matching []*corev1.Node
	for _, n := range meant {
		if matches(set.Spec.Template.Spec.NodeSelector, n.Labels) {
			matching = append(matching, n)
		}
	}
	for _, n := range matching {
		if taint := blocked(f, set, n); taint != "" {
			say(f.Severity, f.Fix, "its pods do not tolerate the taint %s of %s", taint, n.Name)
			return
		}
	}
	if len(matching) > 0 {
		say(check.Error, describe, "%s matches the nodeSelector: the DaemonSet controller may be "+
			"behind, or an affinity excludes the node", matching[0].Name)
		return
	}
	state, next, reason := unmatched(v, f, set, meant)
	say(state, next, "%s", reason)
}

// unmatched describes the first label whose selected value none of the nodes has. The label becomes the evidence of f.
func unmatched(
	v *view, f *check.Finding, set operandSet, nodes []*corev1.Node,
) (state check.Severity, next, reason string) {
	wanted := set.Spec.Template.Spec.NodeSelector
	for _, key := range slices.SortedFunc(maps.Keys(wanted), deployFirst) {
		values := map[string]int{}
		for _, n := range nodes {
			values[shown(n.Labels, key)]++
		}
		if values[shown(wanted, key)] > 0 {
			continue
		}
		var found []string
		for _, value := range slices.Sorted(maps.Keys(values)) {
			found = append(found, value+" on "+check.Count(values[value], "GPU node"))
		}
		f.Evidence = label(nodes[0], key)
		state, next = check.Error, "kubectl get nodes -L "+key
		switch {
		case slices.ContainsFunc(nodes, func(n *corev1.Node) bool { return node.Paused(n.Labels[key]) }):
			state = check.Waiting
		case key == "nvidia.com/mps.capable":
			return check.OK, "", "no node uses MPS"
		case set.component == "mig-manager" && values["absent"] == len(nodes):
			return check.OK, "", "no node has a GPU with MIG support"
		case !v.forContainers(set.component), set.component == "driver" && key != labelDriver:
			// not an error: the cluster may have no VM nodes, or no nodes for a driver DaemonSet of one kernel, OS or
			// pool. The node checks report missing drivers.
			state, next = check.Note, ""
		}
		return state, next, fmt.Sprintf("it selects %s=%s, but the label is %s", key, wanted[key], some(found))
	}
	describe := fmt.Sprintf("kubectl describe daemonset -n %s %s", set.Namespace, set.Name)
	return check.Error, describe, "no node has all labels of its nodeSelector: " + join(wanted)
}

// meant reports whether a node should run a component. Nodes for virtual machines do not run the MIG manager or
// operands for containers. Nodes with a preinstalled driver do not run the driver container. Any node may run the other
// components.
func (v *view) meant(component string, n *corev1.Node) bool {
	if !v.forContainers(component) && component != "mig-manager" {
		return true
	}
	return !v.forMachines(n) && (component != "driver" || n.Labels[labelDriver] != preInstalled)
}

// deployFirst sorts the deploy label before other labels.
func deployFirst(a, b string) int {
	if x, y := strings.HasPrefix(a, deployPrefix), strings.HasPrefix(b, deployPrefix); x != y {
		return map[bool]int{true: -1, false: 1}[x]
	}
	return strings.Compare(a, b)
}

func join(all map[string]string) string { return labels.Set(all).String() }

func matches(wanted, have map[string]string) bool {
	return labels.SelectorFromSet(wanted).Matches(labels.Set(have))
}

// blocked returns the first permanent taint of the node that the DaemonSet's pods do not tolerate, or "". If there is
// one, blocked makes v an error, with the taint as evidence and a fix.
func blocked(f *check.Finding, set operandSet, n *corev1.Node) string {
	for _, taint := range taintsOf(n) {
		if node.Covered(set.Spec.Template.Spec.Tolerations, taint) {
			continue
		}
		text := taint.ToString()
		f.Severity, f.Cause, f.Evidence = check.Error, "taint "+text, check.Seen("taint", "Node/"+n.Name, "%s", text)
		f.Together = fmt.Sprintf("the pods do not tolerate the taint %s", text)
		f.Fix = fmt.Sprintf("kubectl taint node %s %s:%s-  # or add a toleration to daemonsets.tolerations in the "+
			"operator's values",
			n.Name, taint.Key, taint.Effect)
		return text
	}
	return ""
}
