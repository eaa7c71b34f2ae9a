package judge

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/node"
)

// nodeReport collects the findings about a node. Later checks depend on what earlier ones found.
type nodeReport struct {
	*view
	kube *corev1.Node
	// operandPods are the pods on the node in the operator's namespace.
	operandPods []*corev1.Pod

	findings []check.Finding
	// changing means that a MIG change or a driver upgrade is in progress. Differences are expected until it ends.
	changing bool
	// stuck means that a MIG change no longer makes progress.
	stuck bool
	// operands are the operands that the node runs or should run, in dependency order.
	operands []operand
}

// operand is the state of an operand on the node.
type operand struct {
	component string
	podState
	pod *corev1.Pod
}

// preflightNode checks a node before an installation.
func preflightNode(v *view, kube *corev1.Node) []check.Finding {
	n := newNodeReport(v, kube)
	n.ready()
	n.architecture()
	n.supported()
	n.cdi()
	n.taints()
	return n.findings
}

// verifyNode checks a node of an installation.
func verifyNode(v *view, kube *corev1.Node) *nodeReport {
	n := newNodeReport(v, kube)
	n.ready()
	n.cdi()
	if isManaged := n.discovered(); isManaged {
		n.upgrade()
		n.mig()
		n.checkOperands()
		n.sharing()
		n.resources()
	}
	return n
}

func newNodeReport(v *view, kube *corev1.Node) *nodeReport {
	n := &nodeReport{view: v, kube: kube}
	for _, p := range v.pods[kube.Name] {
		if p.Namespace == v.Namespace {
			n.operandPods = append(n.operandPods, p)
		}
	}
	return n
}

// add adds a finding about the node. A finding without evidence gets the label or resource named in its subject as
// evidence.
func (n *nodeReport) add(f check.Finding) { n.findings = append(n.findings, n.own(f)) }

func (n *nodeReport) own(f check.Finding) check.Finding {
	f.Node = n.kube.Name
	if f.Evidence.Text != "" {
		return f
	}
	allocatable, capacity := amount(n.kube.Status.Allocatable, f.Subject), amount(n.kube.Status.Capacity, f.Subject)
	switch _, labeled := n.kube.Labels[f.Subject]; {
	case allocatable+capacity != "", isDevice(f.Subject):
		f.Evidence = check.Seen("status", "Node/"+n.kube.Name, "%s: allocatable %s, capacity %s", f.Subject,
			cmp.Or(allocatable, "none"), cmp.Or(capacity, "none"))
	case labeled, strings.HasPrefix(f.Subject, "nvidia.com/"):
		f.Evidence = label(n.kube, f.Subject)
	}
	return f
}

// amount returns the quantity of a resource as Kubernetes prints it, or "" if the list does not have the resource.
func amount(list corev1.ResourceList, name string) string {
	if q, ok := list[corev1.ResourceName(name)]; ok {
		return q.String()
	}
	return ""
}

// ready checks that the node is ready and schedulable.
func (n *nodeReport) ready() {
	f := check.Finding{
		Check: nodeReady, Subject: "Node/" + n.kube.Name,
		Evidence: check.Seen("spec", "Node/"+n.kube.Name, "unschedulable: %t", n.kube.Spec.Unschedulable),
	}
	for _, c := range n.kube.Status.Conditions {
		if c.Type != corev1.NodeReady || c.Status == corev1.ConditionTrue {
			continue
		}
		f.Severity, f.Since = check.Error, c.LastTransitionTime.Time
		if n.before {
			// not an error before the install: the operands start when the node becomes ready
			f.Severity = check.Warning
		}
		f.Reason = "the kubelet is not ready" + because(c.Reason, c.Message)
		f.Fix = "kubectl describe node " + n.kube.Name
		f.Evidence = check.Seen("condition", "Node/"+n.kube.Name, "Ready=%s: %s: %s", c.Status, c.Reason, c.Message)
		f.Evidence.Time = c.LastHeartbeatTime.Time
		n.add(f)
		return
	}
	if !n.kube.Spec.Unschedulable {
		return
	}
	f.Say(check.Note, "the node is cordoned: it accepts only DaemonSet pods")
	f.Fix = "kubectl uncordon " + n.kube.Name
	if n.upgrading() {
		f.Reason, f.Fix = "the node is cordoned by the driver upgrade, which uncordons it when it ends", ""
	}
	n.add(f)
}

// upgrading reports whether a driver upgrade of the node has started and not ended. A failed upgrade counts, because it
// resumes after the driver pod is fixed. The state of a node that needs no driver pod is ignored.
func (n *nodeReport) upgrading() bool {
	switch n.kube.Labels[labelUpgrade] {
	case "", "upgrade-required", "upgrade-done":
		return false
	}
	return n.noDriverPod() == ""
}

// discovered checks that the operator manages the node. It returns false if a label keeps the operands off the node.
func (n *nodeReport) discovered() bool {
	labels := n.kube.Labels
	switch {
	case labels[labelOperands] == "false":
		n.add(check.Finding{
			Check: operandsOff, Severity: check.Note, Subject: labelOperands,
			Reason: "the label is false: the operator keeps every operand off the node; the other checks are skipped",
			Fix:    "kubectl label node " + n.kube.Name + " " + labelOperands + "-",
		})
		return false
	case labels[labelPresent] != "true" && cluster.OperatorGPUNode(n.kube) &&
		(n.policy != nil || len(n.GPUClusters) > 0):
		n.add(check.Finding{
			Check: gpuPresent, Severity: check.Error, Subject: labelPresent,
			Reason: fmt.Sprintf("the label is %s although Node Feature Discovery found a GPU: "+
				"the operator has not labeled the node",
				shown(labels, labelPresent)),
			Fix: n.operatorLog(), Evidence: label(n.kube, labelPresent),
		})
	}
	return true
}

// useOfNodes lists the values of nvidia.com/gpu.workload.config.
var useOfNodes = []string{"container", "vm-passthrough", "vm-vgpu"}

// workload returns the workload type of a node. If sandboxWorkloads.enabled is set, it is the value of the node's label
// or, if that is invalid, sandboxWorkloads.defaultWorkload. Otherwise it is "container". Source: gpu-operator
// controllers/state_manager.go, getWorkloadConfig.
func (v *view) workload(n *corev1.Node) string {
	if v.is("sandboxWorkloads.enabled") {
		standard, _ := v.get("sandboxWorkloads.defaultWorkload").(string)
		for _, value := range []string{n.Labels[labelWorkload], standard} {
			if slices.Contains(useOfNodes, value) {
				return value
			}
		}
	}
	return useOfNodes[0]
}

// forMachines reports whether the node is for virtual machines. On such nodes, the device plugin names resources after
// the GPU model.
func (v *view) forMachines(n *corev1.Node) bool { return strings.HasPrefix(v.workload(n), "vm-") }

// upgrade checks the state of a driver upgrade.
func (n *nodeReport) upgrade() {
	state := n.kube.Labels[labelUpgrade]
	if state == "" {
		return
	}
	f := check.Finding{
		Check: driverUpgrade, Subject: labelUpgrade, Since: labelWritten(n.kube,
			labelUpgrade), Fix: n.operatorLog(),
	}
	switch none, step := n.noDriverPod(), upgradeSteps[state]; {
	case state == "upgrade-done":
		f.Reason, f.Fix = "no driver upgrade is in progress", ""
	case none != "":
		f.Say(check.Warning, "%s is left over: %s, and the upgrade controller ignores nodes without a driver pod",
			state, none)
		f.Fix = "kubectl label node " + n.kube.Name + " " + labelUpgrade + "-"
	case state != "upgrade-failed" && n.kube.Labels[labelSkip] == "true":
		f.Say(check.Note, "%s, and the label %s keeps the node out of driver upgrades", state, labelSkip)
		f.Fix = "kubectl label node " + n.kube.Name + " " + labelSkip + "-"
	case state == "upgrade-failed":
		f.Say(check.Error,
			"the driver upgrade failed: fix the driver pod, then remove the state label or restart the pod")
		f.Fix = fmt.Sprintf("kubectl get pods -n %s -o wide --field-selector spec.nodeName=%s",
			n.Namespace, n.kube.Name)
	case step == "":
		f.Say(check.Unknown, "unknown upgrade state %q", state)
	default:
		n.changing = true
		f.Say(check.Waiting, "a driver upgrade is in progress (%s): %s", state, step)
		f.Fix = "kubectl get pods -A -o wide --field-selector spec.nodeName=" + n.kube.Name
	}
	n.add(f)
}

// upgradeSteps describes the states of a driver upgrade in progress.
var upgradeSteps = map[string]string{
	"upgrade-required": "the driver pod is outdated, and the node waits for its turn (maxParallelUpgrades, " +
		"maxUnavailable)",
	"node-maintenance-required": "the node is handed over to an external maintenance operator",
	"cordon-required":           "the node will be cordoned",
	"wait-for-jobs-required":    "waiting for the jobs that driver.upgradePolicy.waitForCompletion selects",
	"pod-deletion-required":     "pods that hold GPUs are being deleted",
	"drain-required":            "the node is being drained",
	"pod-restart-required":      "the driver pod is being replaced",
	"validation-required":       "the validator is checking the new driver",
	"post-maintenance-required": "the maintenance is complete, and cleanup follows",
	"uncordon-required":         "the node will be uncordoned",
}

// noDriverPod returns why the node needs no driver pod, or "" if it needs one.
func (n *nodeReport) noDriverPod() string {
	switch value := n.kube.Labels[labelDriver]; {
	case value == preInstalled || value == "false":
		return fmt.Sprintf("%s is %s", labelDriver, value)
	case n.policy != nil && !n.is("driver.enabled") && !n.is("driver.nvidiaDriverCRD.enabled"):
		return "driver.enabled is false"
	}
	return ""
}

// migPatience is how long the MIG manager waits for operand pods to terminate: five waits of five minutes. Source:
// mig-parted pkg/mig/reconfigure/reconfigure.go, waitForPodsToBeDeleted.
const migPatience = 5 * 5 * time.Minute

// migReaction is how long the previous state can remain after a config is requested. The MIG manager compares the
// config with the GPUs before it sets the state to pending.
const migReaction = time.Minute

// mig checks the state of a MIG change. The resources after a successful change are checked by predicted.
func (n *nodeReport) mig() {
	config, state := n.kube.Labels[LabelMIG], n.kube.Labels[labelMIGState]
	f := check.Finding{
		Check: node.MIGState, Subject: labelMIGState, Since: labelWritten(n.kube, labelMIGState),
		Fix: n.migLog(), Evidence: label(n.kube, labelMIGState),
	}
	age := "for an unknown time"
	if !f.Since.IsZero() {
		age = "for " + n.At.Sub(f.Since).Round(time.Second).String()
	}
	requested := labelWritten(n.kube, LabelMIG)
	ended := state == "success" || state == "failed"
	switch {
	case config == "" && state == "":
		return
	case ended && requested.After(f.Since) && !f.Since.IsZero() && n.At.Sub(requested) < migReaction:
		f.Severity, n.changing, f.Since = check.Waiting, true, requested
		f.Reason = fmt.Sprintf("the MIG config %q is requested; the state %s is from the previous change",
			config, state)
	case state == "success":
		f.Reason, f.Fix = fmt.Sprintf("the MIG manager has applied %q", config), ""
	case state == "failed":
		f.Say(check.Error,
			"the MIG config %q could not be applied: "+
				"a client holds a GPU, the config does not fit the GPUs, or it leaves a GPU out", config)
	case state == "pending" && !f.Since.IsZero() && n.At.Sub(f.Since) > migPatience:
		f.Say(check.Error,
			"the MIG config %q has been pending %s; the MIG manager waits at most %s for pods, so it has "+
				"probably given up without changing the state", config, age, migPatience)
		n.stuck = true
		f.Fix = fmt.Sprintf("kubectl label node %s %s- && kubectl label node %s %s=%s",
			n.kube.Name, LabelMIG, n.kube.Name, LabelMIG, config)
	case state == "pending":
		f.Severity, n.changing = check.Waiting, true
		f.Reason = fmt.Sprintf("the MIG config %q has been pending %s; MIG manager v0.15.0 leaves the state pending "+
			"if it gives up waiting for a pod", config, age)
	case state == "rebooting":
		f.Severity, n.changing = check.Waiting, true
		f.Reason = fmt.Sprintf("the node restarts to change the MIG mode for %q; the state has been rebooting %s",
			config, age)
		f.Fix = "kubectl get node " + n.kube.Name
	case state == "" && n.kube.Labels[deployPrefix+"mig-manager"] == "" && n.kube.Labels[labelCapable] == "false":
		return
	case state == "":
		f.Say(check.Waiting, "the MIG config %q is requested, but the MIG manager has not set a state", config)
	default:
		f.Say(check.Unknown, "unknown MIG state %q", state)
	}
	n.add(f)
}

func (v *view) migLog() string { return v.logOf("nvidia-mig-manager", "nvidia-mig-manager") }

// ownedBy reports whether a pod belongs to a DaemonSet.
func ownedBy(p *corev1.Pod, set operandSet) bool {
	return slices.ContainsFunc(p.OwnerReferences, func(o metav1.OwnerReference) bool {
		return o.Kind == "DaemonSet" && o.Name == set.Name
	})
}

// checkOperands checks the operands that the node should run. Findings about operands that wait for the first broken
// one are merged into its finding.
func (n *nodeReport) checkOperands() {
	if n.lacks(cluster.DaemonSets) {
		return
	}
	done := map[string]bool{}
	before := n.findings
	n.findings = nil
	for _, set := range n.sets {
		n.checkOperand(set, done)
	}
	n.ownDriver()
	if value := n.kube.Labels[labelClient]; node.Paused(value) { // DaemonSets of other programs use this label
		n.paused(labelClient, value)
	}
	n.findings = append(before, foldChain(n.operands, foldPauses(n.findings))...)
}

// checkOperand checks the pod of a DaemonSet that selects the node. If only the deploy label differs, it explains the
// label's value. done holds the labels that are already explained.
func (n *nodeReport) checkOperand(set operandSet, done map[string]bool) {
	key := deployPrefix + set.component
	value, found := n.kube.Labels[key]
	selects := maps.Clone(set.Spec.Template.Spec.NodeSelector)
	delete(selects, key)
	switch {
	case !matches(selects, n.kube.Labels):
		return // the DaemonSet is for another pool, kernel or workload type
	case value == set.Spec.Template.Spec.NodeSelector[key]:
		n.pod(set)
		return
	case done[key]:
		return
	}
	done[key] = true
	f := check.Finding{Check: operandState, Severity: check.Warning, Subject: key}
	f.Fix = "kubectl label node " + n.kube.Name + " " + key + "-"
	switch {
	case node.Paused(value):
		n.paused(key, value)
		return
	case set.component == "driver" && value == preInstalled:
		f.Severity, f.Fix = check.OK, ""
		f.Reason = "the label is pre-installed: the node has its own driver and runs no driver container"
		n.add(f)
		return
	case value == "false":
		f.Say(check.Note, "the label is false: an administrator keeps the operand off the node")
		f.Fix = "kubectl label node " + n.kube.Name + " " + key + "=true --overwrite"
	case found && value == "":
		f.Reason = "the label is empty, so the operand does not run: " +
			"releases before v26.7 leave it empty after pausing an operand that did not run"
	case found:
		f.Reason = fmt.Sprintf("the label is %q, expected true, false or paused-for-…: "+
			"the operator does not correct it, and the operand does not run", value)
	case !n.wantsContainers() || !n.forContainers(set.component) && set.component != "mig-manager":
		return
	case set.component == "mig-manager" && n.kube.Labels[labelCapable] != "true":
		return
	default:
		f.Severity, f.Fix = check.Error, n.operatorLog()
		f.Reason = "the label is absent: the operator has not assigned the operand to the node"
	}
	f = n.own(f)
	n.operands = append(n.operands, operand{component: set.component, podState: podState{Finding: f}})
	n.add(f)
}

// wantsContainers reports whether the node should run the operands for containers: a ClusterPolicy is in force, the
// operator has labeled the node, and the node is not for virtual machines.
func (n *nodeReport) wantsContainers() bool {
	return n.policy != nil && n.kube.Labels[labelPresent] == "true" && !n.forMachines(n.kube)
}

// paused reports an operand that is paused by its label, for example with the value paused-for-mig-change. The driver
// manager appends paused-for-driver-upgrade to the value that the label already has.
func (n *nodeReport) paused(key, value string) {
	f := check.Finding{Check: node.OperandPaused, Severity: check.Waiting, Subject: key,
		Since: labelWritten(n.kube, key)}
	change, state := "the change", ""
	switch value {
	case "paused-for-mig-change":
		change, state, f.Fix = "the MIG change", n.kube.Labels[labelMIGState], n.migLog()
	case "paused-for-vgpu-change":
		change, state = "the vGPU change", n.kube.Labels[labelVGPUState]
	}
	upgrading := strings.Contains(value, "paused-for-driver-upgrade")
	if upgrading {
		change = "the driver upgrade"
	}
	f.Reason = fmt.Sprintf("the label is %s: the pod is paused until %s ends", value, change)
	switch {
	case upgrading && n.kube.Labels[labelUpgrade] == "upgrade-failed":
		f.Say(check.Error, "the label is %s, but the driver upgrade has failed: the operand stays paused", value)
		f.Fix = fmt.Sprintf("kubectl get pods -n %s -o wide --field-selector spec.nodeName=%s",
			n.Namespace, n.kube.Name)
	case upgrading:
		n.changing = true
		f.Fix = "kubectl logs -n " + n.Namespace +
			" -l app.kubernetes.io/component=nvidia-driver -c k8s-driver-manager --tail=100"
	case state == "success" || state == "failed":
		f.Say(check.Error, "the label is %s, but %s has ended (%s): nothing resumes the operand", value, change, state)
		f.Fix = "kubectl label node " + n.kube.Name + " " + key + "=true --overwrite"
	case change == "the MIG change" && n.stuck:
		return // mig has reported the stuck change
	default:
		n.changing = true
	}
	n.add(f)
}

// foldPauses merges findings about operands that are paused for the same reason.
func foldPauses(findings []check.Finding) []check.Finding {
	paused := map[string][]string{} // maps a reason to the labels
	var merged []check.Finding
	for _, f := range findings {
		if f.Check == node.OperandPaused {
			paused[f.Reason] = append(paused[f.Reason], f.Subject)
		}
		if f.Check != node.OperandPaused || len(paused[f.Reason]) == 1 {
			merged = append(merged, f)
		}
	}
	for i := range merged {
		f := &merged[i]
		if keys := paused[f.Reason]; f.Check == node.OperandPaused && len(keys) > 1 {
			f.Fix = strings.Replace(f.Fix, " "+f.Subject+"=true", " "+strings.Join(keys, "=true ")+"=true", 1)
			f.Reason += fmt.Sprintf("; %d operands are paused this way", len(keys))
		}
	}
	return merged
}

// pod checks the pod of a DaemonSet on the node.
func (n *nodeReport) pod(set operandSet) {
	if n.lacks(cluster.Pods) {
		return
	}
	l := operand{component: set.component}
	for _, p := range n.operandPods {
		// a terminating pod may already have a replacement
		if ownedBy(p, set) && (l.pod == nil || l.pod.DeletionTimestamp != nil) {
			l.pod, l.podState = p, podStateOf(p)
		}
	}
	l.Check, l.Subject = operandState, set.component
	if l.pod == nil {
		l.Say(check.Waiting, "the node has no pod of this operand")
		l.Fix = fmt.Sprintf("kubectl describe daemonset -n %s %s", set.Namespace, set.Name)
		l.Evidence = n.listed(cluster.Pods, "no pod of DaemonSet/%s on %s", set.Name, n.kube.Name)
		if taint := blocked(&l.Finding, set, n.kube); taint != "" {
			l.Reason = fmt.Sprintf("the node has the taint %s, which DaemonSet/%s does not tolerate", taint, set.Name)
		} else if d := n.refused(set); d != nil {
			d.explain(&l.Finding)
		}
	}
	switch {
	case l.pod != nil && l.unstarted:
		n.sandbox(&l)
	case l.pod != nil && set.component == "operator-validator":
		n.validated(&l)
	case l.pod != nil && set.component == "driver":
		n.driverSystem(&l)
		n.driverLog(&l)
	case set.component == "device-plugin" && l.blames == "":
		l.blames = mpsDaemon // with MPS, the plugin waits for the daemon
	}
	if l.pod != nil && strings.HasPrefix(l.Cause, "image ") {
		if e := n.event("Pod", l.pod.Name, "Failed"); e != nil && strings.Contains(e.Message, "pull image") {
			l.Evidence = evidenceOf(e)
		}
	}
	if set.Name == "nvidia-device-plugin-mps-control-daemon" {
		l.Subject, l.component = mpsDaemon, mpsDaemon
		if l.blames == mpsDaemon {
			l.blames = ""
		}
	}
	n.operands = append(n.operands, l)
	n.add(l.Finding)
}

// imageSystem matches the operating system at the end of a driver image's tag.
var imageSystem = regexp.MustCompile(`:[^/]*-([a-z]+)([0-9][0-9.]*)$`)

// driverSystem explains a failed driver container whose image is for another operating system. On OpenShift, images are
// not compared, because the driver toolkit builds the driver.
func (n *nodeReport) driverSystem(l *operand) {
	const container = "nvidia-driver-ctr"
	os := systemOf(n.kube)
	built := imageSystem.FindStringSubmatch(image(l.pod, container))
	if l.Severity != check.Error || built == nil || os.id == "" || os.id == "rhcos" || built[1] == os.id &&
		(strings.HasPrefix(os.version, built[2]) || strings.HasPrefix(built[2], os.version)) {
		return
	}
	l.Reason = fmt.Sprintf("its image is for %s%s, but the node runs %s: %s", built[1], built[2], os, l.Reason)
	l.Fix = driverForEachSystem(n.kube.Name)
}

// mpsDaemon is the component of the MPS control daemon, whose DaemonSet has the deploy label of the device plugin.
const mpsDaemon = "mps-control-daemon"

// isBroken reports whether an operand fails or waits.
func isBroken(l operand) bool { return l.Severity == check.Error || l.Severity == check.Waiting }

// sandboxPatience is how long the kubelet may take to create a pod's sandbox.
const sandboxPatience = 5 * time.Minute

// sandbox explains why a pod has no sandbox. It looks for a missing ConfigMap, for an event that names the cause, and
// for a broken container-toolkit. If it finds none, the container runtime probably has no handler for the RuntimeClass.
// The toolkit installs that handler.
func (n *nodeReport) sandbox(l *operand) {
	if name := n.missingConfigMap(l.pod); name != "" {
		l.Severity = check.Error
		l.Reason += fmt.Sprintf(": it mounts ConfigMap/%s, which does not exist in namespace %s",
			name, l.pod.Namespace)
		l.Fix = fmt.Sprintf("kubectl get configmaps -n %s", l.pod.Namespace)
		l.Evidence = n.listed(cluster.ConfigMaps, "no %s among the %d ConfigMaps in namespace %s",
			name, len(n.maps), n.Namespace)
		return
	}
	// append the cause that an event names
	explain := func(d *diagnosis) {
		reason := l.Reason
		d.explain(&l.Finding)
		l.Reason = reason + ": " + d.reason
	}
	var d *diagnosis
	if e := n.event("Pod", l.pod.Name, "FailedCreatePodSandBox", "FailedMount", "FailedAttachVolume"); e != nil {
		d = n.diagnose(e, sandboxes)
	}
	if d != nil && !strings.HasPrefix(d.cause, "handler ") {
		explain(d)
		return
	}
	if l.pod.Spec.RuntimeClassName == nil || *l.pod.Spec.RuntimeClassName == "" {
		return
	}
	class := *l.pod.Spec.RuntimeClassName
	if i := slices.IndexFunc(n.operands, func(o operand) bool { return o.component == "container-toolkit" }); i >= 0 &&
		isBroken(n.operands[i]) {
		l.blames = "container-toolkit"
		l.Reason += ": it waits for the RuntimeClass " + class +
			", which container-toolkit sets up in the container runtime"
		return
	}
	if d != nil {
		explain(d)
		return
	}
	l.Fix += "  # see its events"
	if slices.ContainsFunc(n.operandPods, func(p *corev1.Pod) bool { return runsWith(p, class) }) {
		l.Reason += fmt.Sprintf(", but other pods with the RuntimeClass %s run: "+
			"probably a volume or the network is missing", class)
		return
	}
	l.Fix += "; on the node, sudo gpuop node checks the runtime's configuration"
	l.Reason += fmt.Sprintf(": the container runtime probably has no handler for RuntimeClass %s, "+
		"or has not been restarted since the handler was added", class)
	late := n.At.Sub(l.Since) > sandboxPatience
	switch {
	case n.policy != nil && !n.is("toolkit.enabled"):
		l.Reason += "; toolkit.enabled is false, so the node must have its own toolkit"
	case late:
		l.Reason += "; no problem with container-toolkit was found"
	}
	if late {
		l.Severity = check.Error
	}
}

// runsWith reports whether a pod runs with a RuntimeClass.
func runsWith(p *corev1.Pod, class string) bool {
	return p.Status.Phase == corev1.PodRunning && p.Spec.RuntimeClassName != nil && *p.Spec.RuntimeClassName == class
}

// missingConfigMap returns the name of a ConfigMap that the pod mounts and that does not exist, or "".
func (n *nodeReport) missingConfigMap(p *corev1.Pod) string {
	if n.lacks(cluster.ConfigMaps) {
		return ""
	}
	for _, volume := range p.Spec.Volumes {
		m := volume.ConfigMap
		if m != nil && (m.Optional == nil || !*m.Optional) && n.maps[m.Name] == nil {
			return m.Name
		}
	}
	return ""
}

// validatorPods maps init containers of the validator to the workload pods that they start and wait for.
var validatorPods = map[string]string{"cuda-validation": "nvidia-cuda-validator",
	"plugin-validation": "nvidia-device-plugin-validator"}

// validated explains why a validator waits: it reports the state of the newest workload pod that has not succeeded.
func (n *nodeReport) validated(l *operand) {
	var newest *corev1.Pod
	for _, p := range n.operandPods {
		if app := validatorPods[l.in]; app != "" && p.Labels["app"] == app && p.Status.Phase != corev1.PodSucceeded &&
			(newest == nil || newest.CreationTimestamp.Before(&p.CreationTimestamp)) {
			newest = p
		}
	}
	if newest == nil {
		return
	}
	s := podStateOf(newest)
	l.Reason, l.Evidence = fmt.Sprintf("init container %s waits for the pod %s: %s", l.in, newest.Name, s.Reason),
		s.Evidence
	if s.Severity == check.Error {
		l.Severity, l.Fix, l.blames = s.Severity, s.Fix, ""
	}
}

// ownDriver inserts a finding about a missing driver at the front, if operands wait for the driver and no DaemonSet
// installs it. If the driver's deploy label is the reason, the finding replaces those about the label.
func (n *nodeReport) ownDriver() {
	waits := slices.IndexFunc(n.operands, func(l operand) bool { return l.blames == "driver" && isBroken(l) })
	if waits < 0 || n.policy == nil || slices.ContainsFunc(n.operands, func(l operand) bool {
		return l.component == "driver" && (l.pod != nil || isBroken(l))
	}) {
		return
	}
	f := check.Finding{Check: operandState, Severity: check.Error, Subject: "driver",
		Since: n.operands[waits].Since, Evidence: label(n.kube, labelDriver)}
	if why := n.noDriverPod(); why != "" {
		f.Reason = fmt.Sprintf("%s, so the node needs its own driver, but %s finds none",
			why, n.operands[waits].component)
		f.Fix = "sudo gpuop node  # on " + n.kube.Name
		if strings.HasPrefix(why, labelDriver) {
			f.Fix = fmt.Sprintf("kubectl label node %s %s=true --overwrite  # to install the operator's driver; "+
				"sudo gpuop node checks the node's own driver", n.kube.Name, labelDriver)
			isReplaced := func(other check.Finding) bool { return other.Subject == labelDriver }
			n.findings = slices.DeleteFunc(n.findings, isReplaced)
		} else {
			f.Evidence = n.setting("driver.enabled")
		}
	} else {
		f.Fix = n.operatorLog()
		f.Reason = "no DaemonSet of the driver selects the node"
		for _, set := range n.sets {
			if set.component == "driver" {
				f.Reason += "; " + n.unlike(set)
			}
		}
	}
	f = n.own(f)
	n.findings = slices.Insert(n.findings, 0, f)
	n.operands = slices.Insert(n.operands, 0, operand{component: "driver", podState: podState{Finding: f}})
}

// unlike describes the labels in the DaemonSet's nodeSelector that the node lacks or has with a different value.
func (n *nodeReport) unlike(set operandSet) string {
	var terms []string
	selector := set.Spec.Template.Spec.NodeSelector
	for _, key := range slices.Sorted(maps.Keys(selector)) {
		if n.kube.Labels[key] != selector[key] {
			terms = append(terms,
				fmt.Sprintf("%s=%s, but on the node the label is %s", key, selector[key], shown(n.kube.Labels, key)))
		}
	}
	return fmt.Sprintf("DaemonSet/%s selects %s", set.Name, strings.Join(terms, "; "))
}

// firstBroken returns the broken operand that causes others to wait, or nil if no operand is broken.
func firstBroken(operands []operand) *operand {
	i := slices.IndexFunc(operands, isBroken)
	if i < 0 {
		return nil
	}
	// the first one can wait for a later one: the validator's last step waits for the device plugin
	for range operands {
		at := slices.IndexFunc(operands,
			func(l operand) bool { return l.component == operands[i].blames && isBroken(l) })
		if at < 0 || operands[i].Severity == check.Error && operands[i].blames == "" {
			break
		}
		i = at
	}
	return &operands[i]
}

// resources reports labels and resources of the node that contradict each other or the prediction.
func (n *nodeReport) resources() {
	if n.policy == nil && len(n.GPUClusters) > 0 {
		return // DRA uses ResourceSlices, and needs no GPU Feature Discovery
	}
	follows := n.unsettled()
	missing := false
	for _, found := range node.Check(n.kube) {
		f := withoutPlace(found)
		f.Fix = strings.ReplaceAll(found.Fix, "-n gpu-operator", "-n "+n.Namespace)
		depends := false // depends means that a broken operand can be the cause of the finding
		switch {
		case found.Check == node.OperandPaused, found.Check == node.MIGState && found.Subject == labelMIGState:
			continue // checkOperands and mig report these
		case found.Check == node.NoLabels && (n.forMachines(n.kube) || !n.is("gfd.enabled")):
			continue // GPU Feature Discovery is not meant to run on this node
		case found.Check == node.NoResource, found.Check == node.NoLabels:
			missing = missing || found.Check == node.NoResource
			depends = true
		case found.Check == node.CapacityDiffers:
			f.Fix = n.logOf("nvidia-device-plugin-daemonset", "nvidia-device-plugin") + "  # names the XID"
			if depends = amount(n.kube.Status.Allocatable, found.Subject) == "0"; depends {
				f.Say(check.Error,
					"none of %s is allocatable: the device plugin is not running, or every GPU is unhealthy",
					amount(n.kube.Status.Capacity, found.Subject))
			}
		}
		if depends && follows {
			continue
		}
		n.add(f)
	}
	if !n.forMachines(n.kube) {
		n.predicted(follows, missing)
	}
}

// withoutPlace copies the check, severity, subject, reason and fix of a finding, but not its place in a file.
func withoutPlace(f check.Finding) check.Finding {
	return check.Finding{Check: f.Check, Severity: f.Severity, Subject: f.Subject, Reason: f.Reason, Fix: f.Fix}
}

// unsettled reports whether wrong resources are expected: the node is being changed, or an operand that provides
// resources is broken.
func (n *nodeReport) unsettled() bool {
	makers := []string{"driver", "device-plugin", "gpu-feature-discovery", mpsDaemon}
	return n.changing || n.stuck ||
		slices.ContainsFunc(n.operands,
			func(l operand) bool { return isBroken(l) && slices.Contains(makers, l.component) })
}
