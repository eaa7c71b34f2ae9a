package judge

import (
	"fmt"
	"maps"
	"slices"

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

// expects reports whether the operator must have created an operand that is on by default: a ClusterPolicy enables it,
// and GPU nodes need it. With driver.nvidiaDriverCRD.enabled, the driver is enabled if an NVIDIADriver exists.
func (v *view) expects(o chart.Operand, present []*corev1.Node) bool {
	capable := func(n *corev1.Node) bool { return n.Labels[labelCapable] == "true" }
	switch {
	case v.policy == nil || !o.Standard || len(present) == 0,
		o.Label == "mig-manager" && !slices.ContainsFunc(present, capable):
		return false
	case o.Label == "driver" && v.is("driver.nvidiaDriverCRD.enabled"):
		return len(v.NVIDIADrivers) > 0
	}
	return !slices.ContainsFunc(o.When, func(c chart.Condition) bool { return !c.Holds(v.text(c.Key()), o.Standard) })
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
	sets := v.sets // in the order of the components, as the findings are
	for _, o := range v.components {
		exists := false
		for ; len(sets) > 0 && sets[0].component == o.Label; sets = sets[1:] {
			exists = true
			findings = append(findings, checkDaemonSet(v, sets[0], present, notReady)...)
		}
		if exists || !v.expects(o, present) {
			continue
		}
		setting := "the chart"
		if len(o.When) > 0 {
			setting = o.When[0].Key()
		}
		f := check.Finding{Check: daemonSet, Subject: o.Label,
			Evidence: v.listed(cluster.DaemonSets, "DaemonSets of operands: %d", len(v.sets))}
		say(&f, check.Error, v.operatorLog(), "%s enables the operand, but namespace %s has no DaemonSet that selects "+
			"%s%s: the operator has not created it", setting, v.Namespace, deployPrefix, o.Label)
		findings = append(findings, f)
	}
	for _, set := range sets {
		findings = append(findings, checkDaemonSet(v, set, present, notReady)...)
	}
	return findings
}

// describe returns the command that describes the DaemonSet.
func (s operandSet) describe() string {
	return fmt.Sprintf("kubectl describe daemonset -n %s %s", s.Namespace, s.Name)
}

// checkDaemonSet checks one DaemonSet. It returns nothing about unready pods if the component is not ready on some
// node, because that node has a finding about it.
func checkDaemonSet(v *view, set operandSet, present []*corev1.Node, notReady map[string]bool) []check.Finding {
	s := set.Status
	desired := s.DesiredNumberScheduled
	f := check.Finding{Check: daemonSet, Subject: "DaemonSet/" + set.Namespace + "/" + set.Name,
		Evidence: check.Seen("status", "DaemonSet/"+set.Name, "desired %d, current %d, ready %d, updated %d",
			desired, s.CurrentNumberScheduled, s.NumberReady, s.UpdatedNumberScheduled)}
	// an older status in a gathered folder may lack numberUnavailable
	unavailable := max(s.NumberUnavailable, desired-s.NumberReady)
	switch {
	case s.ObservedGeneration < set.Generation:
		say(&f, check.Waiting, set.describe(), "the DaemonSet controller has not processed the latest change")
	case desired == 0:
		v.desiresNone(&f, set, present)
	case s.CurrentNumberScheduled < desired && v.refused(&f, set):
	case unavailable > 0 && notReady[set.component]:
		return nil
	case unavailable > 0:
		say(&f, check.Waiting, fmt.Sprintf("kubectl get pods -n %s -o wide -l %s", set.Namespace,
			metav1.FormatLabelSelector(set.Spec.Selector)), "%d of %d pods are ready", desired-unavailable, desired)
	case s.UpdatedNumberScheduled < desired:
		say(&f, check.Waiting, fmt.Sprintf("kubectl rollout status -n %s daemonset/%s", set.Namespace, set.Name),
			"%d of %d pods run the current template: a rollout is in progress", s.UpdatedNumberScheduled, desired)
		if set.Spec.UpdateStrategy.Type == "OnDelete" {
			f.Fix = "kubectl get nodes -L " + labelUpgrade
			f.Reason += ", and a pod is replaced when the driver upgrade reaches its node"
		}
	default:
		f.Reason = fmt.Sprintf("%d of %d pods are ready", s.NumberReady, desired)
	}
	return []check.Finding{f}
}

// desiresNone explains why a DaemonSet desires no pods. The operator considers such a DaemonSet ready.
func (v *view) desiresNone(f *check.Finding, set operandSet, present []*corev1.Node) {
	var meant, matching []*corev1.Node
	for _, n := range present {
		if v.meant(set.component, n) {
			meant = append(meant, n)
			if matches(set.Spec.Template.Spec.NodeSelector, n.Labels) {
				matching = append(matching, n)
			}
		}
	}
	switch {
	case v.lacks(cluster.Nodes):
		f.Say(check.Unknown, "the cause is unknown because the nodes could not be read")
	case len(present) == 0:
		f.Say(check.Note, "no node is labeled %s=true", labelPresent)
	case len(meant) == 0:
		f.Reason = "every GPU node has its own driver or is for virtual machines"
	case len(matching) == 0:
		v.unmatched(f, set, meant)
	default:
		say(f, check.Error, set.describe(), "%s matches the nodeSelector: the DaemonSet controller may be behind, or "+
			"an affinity excludes the node", matching[0].Name)
		for _, n := range matching {
			if taint := blocked(f, set, n); taint != "" {
				f.Reason = fmt.Sprintf("its pods do not tolerate the taint %s of %s", taint, n.Name)
				break
			}
		}
	}
	f.Reason = "its desired number of pods is 0, so the operator counts it as ready: " + f.Reason
}

// unmatched describes the first label whose selected value none of the nodes has. The label becomes the evidence of f.
func (v *view) unmatched(f *check.Finding, set operandSet, nodes []*corev1.Node) {
	wanted := set.Spec.Template.Spec.NodeSelector
	for _, key := range append([]string{deployPrefix + set.component}, slices.Sorted(maps.Keys(wanted))...) {
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
		say(f, check.Error, "kubectl get nodes -L "+key,
			"it selects %s=%s, but the label is %s", key, wanted[key], some(found))
		switch {
		case slices.ContainsFunc(nodes, func(n *corev1.Node) bool { return node.Paused(n.Labels[key]) }):
			f.Severity = check.Waiting
		case key == "nvidia.com/mps.capable":
			say(f, check.OK, "", "no node uses MPS")
		case set.component == "mig-manager" && values["absent"] == len(nodes):
			say(f, check.OK, "", "no node has a GPU with MIG support")
		case !v.forContainers(set.component), set.component == "driver" && key != labelDriver:
			// not an error: the cluster may have no VM nodes, or no nodes for a driver DaemonSet of one kernel, OS or
			// pool. The node checks report missing drivers.
			f.Severity, f.Fix = check.Note, ""
		}
		return
	}
	say(f, check.Error, set.describe(), "no node has all labels of its nodeSelector: %s", join(wanted))
}

// meant reports whether a node should run a component. Nodes for virtual machines do not run the MIG manager or
// operands for containers. Nodes with a preinstalled driver do not run the driver container. Any node may run the other
// components.
func (v *view) meant(component string, n *corev1.Node) bool {
	return !v.forContainers(component) && component != "mig-manager" ||
		!v.forMachines(n) && (component != "driver" || n.Labels[labelDriver] != preInstalled)
}

func join(all map[string]string) string { return labels.Set(all).String() }

func matches(wanted, have map[string]string) bool {
	return labels.SelectorFromSet(wanted).Matches(labels.Set(have))
}

// blocked returns the first permanent taint of the node that the DaemonSet's pods do not tolerate, or "". If there is
// one, blocked makes f an error, with the taint as evidence and a fix.
func blocked(f *check.Finding, set operandSet, n *corev1.Node) string {
	for _, taint := range n.Spec.Taints {
		// DaemonSet pods tolerate the taints that Kubernetes adds while a node has problems
		if !node.Stays(taint) || node.Covered(set.Spec.Template.Spec.Tolerations, taint) {
			continue
		}
		text := taint.ToString()
		f.Severity, f.Cause, f.Evidence = check.Error, "taint "+text, check.Seen("taint", "Node/"+n.Name, "%s", text)
		f.Together = "the pods do not tolerate the taint " + text
		f.Fix = fmt.Sprintf("kubectl taint node %s %s:%s-  # or add a toleration to daemonsets.tolerations in the "+
			"operator's values", n.Name, taint.Key, taint.Effect)
		return text
	}
	return ""
}
