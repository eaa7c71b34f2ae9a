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

// nodeJudge checks one node.
type nodeJudge struct {
	*judge
	kube *corev1.Node
	// operandPods are the pods on the node in the operator's namespace.
	operandPods []*corev1.Pod
	// off means that the operator runs no operands on the node, so later checks are skipped.
	off bool
	// changing names a change in progress, such as "the MIG change". Differences are expected until it ends.
	changing string
	// stuck is the command that restarts a MIG change that no longer makes progress, or "".
	stuck string
	// operands are the operands that the node runs or should run, in dependency order.
	operands []operand
}

// operand is the state of an operand on the node.
type operand struct {
	component string
	podState
	pod *corev1.Pod
}

// nodes checks each node with GPUs.
func (j *judge) nodes() {
	for _, n := range j.gpu {
		w := j.node(n)
		for _, c := range nodeChecks {
			if c.by&j.by != 0 && !w.off {
				c.run(w)
			}
		}
	}
}

func (j *judge) node(n *corev1.Node) *nodeJudge {
	w := &nodeJudge{judge: j, kube: n}
	for _, p := range j.pods[n.Name] {
		if p.Namespace == j.Namespace {
			w.operandPods = append(w.operandPods, p)
		}
	}
	return w
}

// add adds a finding about the node. A finding without evidence gets the label or resource named in its subject as
// evidence.
func (w *nodeJudge) add(v check.Finding) { w.judge.add(w.own(v)) }

func (w *nodeJudge) own(v check.Finding) check.Finding {
	v.Node = w.kube.Name
	if v.Evidence.Text != "" {
		return v
	}
	allocatable, capacity := amount(w.kube.Status.Allocatable, v.Subject), amount(w.kube.Status.Capacity, v.Subject)
	switch _, labeled := w.kube.Labels[v.Subject]; {
	case allocatable+capacity != "", isDevice(v.Subject):
		v.Evidence = check.Seen("status", "Node/"+w.kube.Name, "%s: allocatable %s, capacity %s", v.Subject,
			cmp.Or(allocatable, "none"), cmp.Or(capacity, "none"))
	case labeled, strings.HasPrefix(v.Subject, "nvidia.com/"):
		v.Evidence = label(w.kube, v.Subject)
	}
	return v
}

// amount returns the quantity of a resource as Kubernetes prints it, or "" if the list does not have the resource.
func amount(list corev1.ResourceList, name string) string {
	if q, ok := list[corev1.ResourceName(name)]; ok {
		return q.String()
	}
	return ""
}

// ready checks that the node is ready and schedulable.
func (w *nodeJudge) ready() {
	v := check.Finding{
		Check: nodeReady, Subject: "Node/" + w.kube.Name,
		Evidence: check.Seen("spec", "Node/"+w.kube.Name, "unschedulable: %t", w.kube.Spec.Unschedulable),
	}
	for _, c := range w.kube.Status.Conditions {
		if c.Type != corev1.NodeReady || c.Status == corev1.ConditionTrue {
			continue
		}
		v.Severity, v.Since = check.Error, c.LastTransitionTime.Time
		if w.by == preflight {
			v.Severity = check.Warning // not an error before the install: the operands start when the node becomes ready
		}
		v.Reason = "the kubelet is not ready" + because(c.Reason, c.Message)
		v.Fix = "kubectl describe node " + w.kube.Name
		v.Evidence = check.Seen("condition", "Node/"+w.kube.Name, "Ready=%s: %s: %s", c.Status, c.Reason, c.Message)
		v.Evidence.Time = c.LastHeartbeatTime.Time
		w.add(v)
		return
	}
	if !w.kube.Spec.Unschedulable {
		return
	}
	v.Say(check.Note, "the node is cordoned: it accepts only DaemonSet pods")
	v.Fix = "kubectl uncordon " + w.kube.Name
	if w.upgrading() {
		v.Reason, v.Fix = "the node is cordoned by the driver upgrade, which uncordons it when it ends", ""
	}
	w.add(v)
}

// upgrading reports whether a driver upgrade of the node has started and not ended. A failed upgrade counts, because it
// resumes after the driver pod is fixed. The state of a node that needs no driver pod is ignored.
func (w *nodeJudge) upgrading() bool {
	switch w.kube.Labels[labelUpgrade] {
	case "", "upgrade-required", "upgrade-done":
		return false
	}
	return w.noDriverPod() == ""
}

// discovered checks that the operator manages the node.
func (w *nodeJudge) discovered() {
	labels := w.kube.Labels
	switch {
	case labels[labelOperands] == "false":
		w.add(check.Finding{
			Check: operandsOff, Severity: check.Note, Subject: labelOperands,
			Reason: "the label is false: the operator keeps every operand off the node; the other checks are skipped",
			Fix:    "kubectl label node " + w.kube.Name + " " + labelOperands + "-",
		})
		w.off = true
	case labels[labelPresent] != "true" && cluster.OperatorGPUNode(w.kube) && (w.policy != nil || len(w.GPUClusters) > 0):
		w.add(check.Finding{
			Check: gpuPresent, Severity: check.Error, Subject: labelPresent,
			Reason: fmt.Sprintf("the label is %s although Node Feature Discovery found a GPU: the operator has not labeled the node",
				shown(labels, labelPresent)),
			Fix: w.operatorLog(), Evidence: label(w.kube, labelPresent),
		})
	}
}

// useOfNodes lists the values of nvidia.com/gpu.workload.config.
var useOfNodes = []string{"container", "vm-passthrough", "vm-vgpu"}

// workload returns the workload type of a node. If sandboxWorkloads.enabled is set, it is the value of the node's label
// or, if that is invalid, sandboxWorkloads.defaultWorkload. Otherwise it is "container". Source: gpu-operator
// controllers/state_manager.go, getWorkloadConfig.
func (j *judge) workload(n *corev1.Node) string {
	if j.is("sandboxWorkloads.enabled") {
		standard, _ := j.get("sandboxWorkloads.defaultWorkload").(string)
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
func (j *judge) forMachines(n *corev1.Node) bool { return strings.HasPrefix(j.workload(n), "vm-") }

// upgrade checks the state of a driver upgrade.
func (w *nodeJudge) upgrade() {
	state := w.kube.Labels[labelUpgrade]
	if state == "" {
		return
	}
	v := check.Finding{
		Check: driverUpgrade, Subject: labelUpgrade, Since: labelWritten(w.kube,
			labelUpgrade), Fix: w.operatorLog(),
	}
	switch none, step := w.noDriverPod(), upgradeSteps[state]; {
	case state == "upgrade-done":
		v.Reason, v.Fix = "no driver upgrade is in progress", ""
	case none != "":
		v.Say(check.Warning, "%s is left over: %s, and the upgrade controller ignores nodes without a driver pod", state, none)
		v.Fix = "kubectl label node " + w.kube.Name + " " + labelUpgrade + "-"
	case state != "upgrade-failed" && w.kube.Labels[labelSkip] == "true":
		v.Say(check.Note, "%s, and the label %s keeps the node out of driver upgrades", state, labelSkip)
		v.Fix = "kubectl label node " + w.kube.Name + " " + labelSkip + "-"
	case state == "upgrade-failed":
		v.Say(check.Error, "the driver upgrade failed: fix the driver pod, then remove the state label or restart the pod")
		v.Fix = fmt.Sprintf("kubectl get pods -n %s -o wide --field-selector spec.nodeName=%s", w.Namespace, w.kube.Name)
	case step == "":
		v.Say(check.Unknown, "unknown upgrade state %q", state)
	default:
		w.changing = "the driver upgrade"
		v.Say(check.Waiting, "a driver upgrade is in progress (%s): %s", state, step)
		v.Fix = "kubectl get pods -A -o wide --field-selector spec.nodeName=" + w.kube.Name
	}
	w.add(v)
}

// upgradeSteps describes the states of a driver upgrade in progress.
var upgradeSteps = map[string]string{
	"upgrade-required":          "the driver pod is outdated, and the node waits for its turn (maxParallelUpgrades, maxUnavailable)",
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
func (w *nodeJudge) noDriverPod() string {
	switch value := w.kube.Labels[labelDriver]; {
	case value == preInstalled || value == "false":
		return fmt.Sprintf("%s is %s", labelDriver, value)
	case w.policy != nil && !w.is("driver.enabled") && !w.is("driver.nvidiaDriverCRD.enabled"):
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
func (w *nodeJudge) mig() {
	config, state := w.kube.Labels[LabelMIG], w.kube.Labels[labelMIGState]
	v := check.Finding{
		Check: node.MIGState, Subject: labelMIGState, Since: labelWritten(w.kube, labelMIGState),
		Fix: w.migLog(), Evidence: label(w.kube, labelMIGState),
	}
	age := "for an unknown time"
	if !v.Since.IsZero() {
		age = "for " + w.At.Sub(v.Since).Round(time.Second).String()
	}
	requested := labelWritten(w.kube, LabelMIG)
	ended := state == "success" || state == "failed"
	switch {
	case config == "" && state == "":
		return
	case ended && requested.After(v.Since) && !v.Since.IsZero() && w.At.Sub(requested) < migReaction:
		v.Severity, w.changing, v.Since = check.Waiting, "the MIG change", requested
		v.Reason = fmt.Sprintf("the MIG config %q is requested; the state %s is from the previous change", config, state)
	case state == "success":
		v.Reason, v.Fix = fmt.Sprintf("the MIG manager has applied %q", config), ""
	case state == "failed":
		v.Say(check.Error, "the MIG config %q could not be applied: a client holds a GPU, the config does not fit the GPUs, or it leaves a GPU out", config)
	case state == "pending" && !v.Since.IsZero() && w.At.Sub(v.Since) > migPatience:
		v.Say(check.Error, "the MIG config %q has been pending %s; the MIG manager waits at most %s for pods, so it has "+
			"probably given up without changing the state", config, age, migPatience)
		w.stuck = fmt.Sprintf("kubectl label node %s %s- && kubectl label node %s %s=%s", w.kube.Name, LabelMIG, w.kube.Name, LabelMIG, config)
		v.Fix = w.stuck
	case state == "pending":
		v.Severity, w.changing = check.Waiting, "the MIG change"
		v.Reason = fmt.Sprintf("the MIG config %q has been pending %s; MIG manager v0.15.0 leaves the state pending "+
			"if it gives up waiting for a pod", config, age)
	case state == "rebooting":
		v.Severity, w.changing = check.Waiting, "the MIG change"
		v.Reason = fmt.Sprintf("the node restarts to change the MIG mode for %q; the state has been rebooting %s", config, age)
		v.Fix = "kubectl get node " + w.kube.Name
	case state == "" && w.kube.Labels[deployPrefix+"mig-manager"] == "" && w.kube.Labels[labelCapable] == "false":
		return
	case state == "":
		v.Say(check.Waiting, "the MIG config %q is requested, but the MIG manager has not set a state", config)
	default:
		v.Say(check.Unknown, "unknown MIG state %q", state)
	}
	w.add(v)
}

func (j *judge) migLog() string { return j.logOf("nvidia-mig-manager", "nvidia-mig-manager") }

// ownedBy reports whether a pod belongs to a DaemonSet.
func ownedBy(p *corev1.Pod, set operandSet) bool {
	return slices.ContainsFunc(p.OwnerReferences, func(o metav1.OwnerReference) bool {
		return o.Kind == "DaemonSet" && o.Name == set.Name
	})
}

// checkOperands checks the operands that the node should run. Findings about operands that wait for the first broken
// one are merged into its finding.
func (w *nodeJudge) checkOperands() {
	if w.lacks(cluster.DaemonSets) {
		return
	}
	done := map[string]bool{}
	at := len(w.findings)
	for _, set := range w.sets {
		w.checkOperand(set, done)
	}
	w.ownDriver(at)
	if value := w.kube.Labels[labelClient]; node.Paused(value) { // DaemonSets of other programs use this label
		w.paused(labelClient, value)
	}
	w.foldPauses(at)
	w.foldChain(at)
}

// checkOperand checks the pod of a DaemonSet that selects the node. If only the deploy label differs, it explains the
// label's value. done holds the labels that are already explained.
func (w *nodeJudge) checkOperand(set operandSet, done map[string]bool) {
	key := deployPrefix + set.component
	value, found := w.kube.Labels[key]
	selects := maps.Clone(set.Spec.Template.Spec.NodeSelector)
	delete(selects, key)
	switch {
	case !matches(selects, w.kube.Labels):
		return // the DaemonSet is for another pool, kernel or workload type
	case value == set.Spec.Template.Spec.NodeSelector[key]:
		w.pod(set)
		return
	case done[key]:
		return
	}
	done[key] = true
	v := check.Finding{Check: operandState, Severity: check.Warning, Subject: key, Fix: "kubectl label node " + w.kube.Name + " " + key + "-"}
	switch {
	case node.Paused(value):
		w.paused(key, value)
		return
	case set.component == "driver" && value == preInstalled:
		v.Severity, v.Fix = check.OK, ""
		v.Reason = "the label is pre-installed: the node has its own driver and runs no driver container"
		w.add(v)
		return
	case value == "false":
		v.Say(check.Note, "the label is false: an administrator keeps the operand off the node")
		v.Fix = "kubectl label node " + w.kube.Name + " " + key + "=true --overwrite"
	case found && value == "":
		v.Reason = "the label is empty, so the operand does not run: " +
			"releases before v26.7 leave it empty after pausing an operand that did not run"
	case found:
		v.Reason = fmt.Sprintf("the label is %q, expected true, false or paused-for-…: the operator does not correct it, and the operand does not run", value)
	case !w.wantsContainers() || !w.forContainers(set.component) && set.component != "mig-manager":
		return
	case set.component == "mig-manager" && w.kube.Labels[labelCapable] != "true":
		return
	default:
		v.Severity, v.Fix = check.Error, w.operatorLog()
		v.Reason = "the label is absent: the operator has not assigned the operand to the node"
	}
	v = w.own(v)
	w.operands = append(w.operands, operand{component: set.component, podState: podState{Finding: v}})
	w.add(v)
}

// wantsContainers reports whether the node should run the operands for containers: a ClusterPolicy is in force, the
// operator has labeled the node, and the node is not for virtual machines.
func (w *nodeJudge) wantsContainers() bool {
	return w.policy != nil && w.kube.Labels[labelPresent] == "true" && !w.forMachines(w.kube)
}

// paused reports an operand that is paused by its label, for example with the value paused-for-mig-change. The driver
// manager appends paused-for-driver-upgrade to the value that the label already has.
func (w *nodeJudge) paused(key, value string) {
	v := check.Finding{Check: node.OperandPaused, Severity: check.Waiting, Subject: key, Since: labelWritten(w.kube, key)}
	change, state := "the change", ""
	switch value {
	case "paused-for-mig-change":
		change, state, v.Fix = "the MIG change", w.kube.Labels[labelMIGState], w.migLog()
	case "paused-for-vgpu-change":
		change, state = "the vGPU change", w.kube.Labels[labelVGPUState]
	}
	upgrading := strings.Contains(value, "paused-for-driver-upgrade")
	if upgrading {
		change = "the driver upgrade"
	}
	v.Reason = fmt.Sprintf("the label is %s: the pod is paused until %s ends", value, change)
	switch {
	case upgrading && w.kube.Labels[labelUpgrade] == "upgrade-failed":
		v.Say(check.Error, "the label is %s, but the driver upgrade has failed: the operand stays paused", value)
		v.Fix = fmt.Sprintf("kubectl get pods -n %s -o wide --field-selector spec.nodeName=%s", w.Namespace, w.kube.Name)
	case upgrading:
		w.changing = change
		v.Fix = "kubectl logs -n " + w.Namespace + " -l app.kubernetes.io/component=nvidia-driver -c k8s-driver-manager --tail=100"
	case state == "success" || state == "failed":
		v.Say(check.Error, "the label is %s, but %s has ended (%s): nothing resumes the operand", value, change, state)
		v.Fix = "kubectl label node " + w.kube.Name + " " + key + "=true --overwrite"
	case change == "the MIG change" && w.stuck != "":
		return // mig has reported the stuck change
	default:
		w.changing = change
	}
	w.add(v)
}

// foldPauses merges findings about operands that are paused for the same reason, beginning at index from.
func (w *nodeJudge) foldPauses(from int) {
	first := map[string]int{}
	keys := map[string][]string{}
	findings := w.findings[:from]
	for _, v := range w.findings[from:] {
		if v.Check != node.OperandPaused {
			findings = append(findings, v)
			continue
		}
		if _, again := first[v.Reason]; !again {
			first[v.Reason] = len(findings)
			findings = append(findings, v)
		}
		keys[v.Reason] = append(keys[v.Reason], v.Subject)
	}
	for reason, i := range first {
		v, all := &findings[i], keys[reason]
		if len(all) < 2 {
			continue
		}
		v.Fix = strings.Replace(v.Fix, " "+v.Subject+"=true", " "+strings.Join(all, "=true ")+"=true", 1)
		v.Reason += fmt.Sprintf("; %d operands are paused this way", len(all))
	}
	w.findings = findings
}

// pod checks the pod of a DaemonSet on the node.
func (w *nodeJudge) pod(set operandSet) {
	if w.lacks(cluster.Pods) {
		return
	}
	l := operand{component: set.component}
	for _, p := range w.operandPods {
		// a terminating pod may already have a replacement
		if ownedBy(p, set) && (l.pod == nil || l.pod.DeletionTimestamp != nil) {
			l.pod, l.podState = p, podStateOf(p)
		}
	}
	l.Check, l.Subject = operandState, set.component
	if l.pod == nil {
		l.Say(check.Waiting, "the node has no pod of this operand")
		l.Fix = fmt.Sprintf("kubectl describe daemonset -n %s %s", set.Namespace, set.Name)
		l.Evidence = w.listed(cluster.Pods, "no pod of DaemonSet/%s on %s", set.Name, w.kube.Name)
		if taint := blocked(&l.Finding, set, w.kube); taint != "" {
			l.Reason = fmt.Sprintf("the node has the taint %s, which DaemonSet/%s does not tolerate", taint, set.Name)
		} else if d := w.refused(set); d != nil {
			d.explain(&l.Finding)
		}
	}
	switch {
	case l.pod != nil && l.unstarted:
		w.sandbox(&l)
	case l.pod != nil && set.component == "operator-validator":
		w.validated(&l)
	case l.pod != nil && set.component == "driver":
		w.driverSystem(&l)
		w.driverLog(&l)
	case set.component == "device-plugin" && l.blames == "":
		l.blames = mpsDaemon // with MPS, the plugin waits for the daemon
	}
	if l.pod != nil && strings.HasPrefix(l.Cause, "image ") {
		if e := w.event("Pod", l.pod.Name, "Failed"); e != nil && strings.Contains(e.Message, "pull image") {
			l.Evidence = evidenceOf(e)
		}
	}
	if set.Name == "nvidia-device-plugin-mps-control-daemon" {
		l.Subject, l.component = mpsDaemon, mpsDaemon
		if l.blames == mpsDaemon {
			l.blames = ""
		}
	}
	w.operands = append(w.operands, l)
	w.add(l.Finding)
}

// imageSystem matches the operating system at the end of a driver image's tag.
var imageSystem = regexp.MustCompile(`:[^/]*-([a-z]+)([0-9][0-9.]*)$`)

// driverSystem explains a failed driver container whose image is for another operating system. On OpenShift, images are
// not compared, because the driver toolkit builds the driver.
func (w *nodeJudge) driverSystem(l *operand) {
	const container = "nvidia-driver-ctr"
	os, _ := systemOf(w.kube)
	built := imageSystem.FindStringSubmatch(image(l.pod, container))
	if l.Severity != check.Error || built == nil || os.id == "" || os.id == "rhcos" || built[1] == os.id &&
		(strings.HasPrefix(os.version, built[2]) || strings.HasPrefix(built[2], os.version)) {
		return
	}
	l.Reason = fmt.Sprintf("its image is for %s%s, but the node runs %s: %s", built[1], built[2], os, l.Reason)
	l.Fix = driverForEachSystem(w.kube.Name)
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
func (w *nodeJudge) sandbox(l *operand) {
	for _, v := range l.pod.Spec.Volumes {
		if m := v.ConfigMap; m != nil && (m.Optional == nil || !*m.Optional) && w.maps[m.Name] == nil && !w.lacks(cluster.ConfigMaps) {
			l.Severity = check.Error
			l.Reason += fmt.Sprintf(": it mounts ConfigMap/%s, which does not exist in namespace %s", m.Name, l.pod.Namespace)
			l.Fix = fmt.Sprintf("kubectl get configmaps -n %s", l.pod.Namespace)
			l.Evidence = w.listed(cluster.ConfigMaps, "no %s among the %d ConfigMaps in namespace %s", m.Name, len(w.maps), w.Namespace)
			return
		}
	}
	// append the cause that an event names
	explain := func(d *diagnosis) {
		reason := l.Reason
		d.explain(&l.Finding)
		l.Reason = reason + ": " + d.reason
	}
	var d *diagnosis
	if e := w.event("Pod", l.pod.Name, "FailedCreatePodSandBox", "FailedMount", "FailedAttachVolume"); e != nil {
		d = w.diagnose(e, sandboxes)
	}
	if d != nil && !strings.HasPrefix(d.cause, "handler ") {
		explain(d)
		return
	}
	if l.pod.Spec.RuntimeClassName == nil || *l.pod.Spec.RuntimeClassName == "" {
		return
	}
	class := *l.pod.Spec.RuntimeClassName
	if i := slices.IndexFunc(w.operands, func(o operand) bool { return o.component == "container-toolkit" }); i >= 0 && isBroken(w.operands[i]) {
		l.blames = "container-toolkit"
		l.Reason += ": it waits for the RuntimeClass " + class + ", which container-toolkit sets up in the container runtime"
		return
	}
	if d != nil {
		explain(d)
		return
	}
	l.Fix += "  # see its events"
	if slices.ContainsFunc(w.operandPods, func(p *corev1.Pod) bool {
		return p.Spec.RuntimeClassName != nil && *p.Spec.RuntimeClassName == class && p.Status.Phase == corev1.PodRunning
	}) {
		l.Reason += fmt.Sprintf(", but other pods with the RuntimeClass %s run: probably a volume or the network is missing", class)
		return
	}
	l.Fix += "; on the node, sudo gpuop node checks the runtime's configuration"
	l.Reason += fmt.Sprintf(": the container runtime probably has no handler for RuntimeClass %s, or has not been restarted since the handler was added", class)
	late := w.At.Sub(l.Since) > sandboxPatience
	switch {
	case w.policy != nil && !w.is("toolkit.enabled"):
		l.Reason += "; toolkit.enabled is false, so the node must have its own toolkit"
	case late:
		l.Reason += "; no problem with container-toolkit was found"
	}
	if late {
		l.Severity = check.Error
	}
}

// validatorPods maps init containers of the validator to the workload pods that they start and wait for.
var validatorPods = map[string]string{"cuda-validation": "nvidia-cuda-validator", "plugin-validation": "nvidia-device-plugin-validator"}

// validated explains why a validator waits: it reports the state of the newest workload pod that has not succeeded.
func (w *nodeJudge) validated(l *operand) {
	var newest *corev1.Pod
	for _, p := range w.operandPods {
		if app := validatorPods[l.in]; app != "" && p.Labels["app"] == app && p.Status.Phase != corev1.PodSucceeded &&
			(newest == nil || newest.CreationTimestamp.Before(&p.CreationTimestamp)) {
			newest = p
		}
	}
	if newest == nil {
		return
	}
	s := podStateOf(newest)
	l.Reason, l.Evidence = fmt.Sprintf("init container %s waits for the pod %s: %s", l.in, newest.Name, s.Reason), s.Evidence
	if s.Severity == check.Error {
		l.Severity, l.Fix, l.blames = s.Severity, s.Fix, ""
	}
}

// ownDriver inserts a finding about a missing driver at index first, if operands wait for the driver and no DaemonSet
// installs it. If the driver's deploy label is the reason, the finding replaces those about the label.
func (w *nodeJudge) ownDriver(first int) {
	waits := slices.IndexFunc(w.operands, func(l operand) bool { return l.blames == "driver" && isBroken(l) })
	if waits < 0 || w.policy == nil || slices.ContainsFunc(w.operands, func(l operand) bool {
		return l.component == "driver" && (l.pod != nil || isBroken(l))
	}) {
		return
	}
	v := check.Finding{Check: operandState, Severity: check.Error, Subject: "driver", Since: w.operands[waits].Since, Evidence: label(w.kube, labelDriver)}
	if why := w.noDriverPod(); why != "" {
		v.Reason = fmt.Sprintf("%s, so the node needs its own driver, but %s finds none", why, w.operands[waits].component)
		v.Fix = "sudo gpuop node  # on " + w.kube.Name
		if strings.HasPrefix(why, labelDriver) {
			v.Fix = fmt.Sprintf("kubectl label node %s %s=true --overwrite  # to install the operator's driver; sudo gpuop node "+
				"checks the node's own driver", w.kube.Name, labelDriver)
			own := slices.DeleteFunc(w.findings[first:], func(r check.Finding) bool { return r.Subject == labelDriver })
			w.findings = w.findings[:first+len(own)]
		} else {
			v.Evidence = w.setting("driver.enabled")
		}
	} else {
		v.Fix = w.operatorLog()
		v.Reason = "no DaemonSet of the driver selects the node"
		for _, set := range w.sets {
			if set.component == "driver" {
				v.Reason += "; " + w.unlike(set)
			}
		}
	}
	v = w.own(v)
	w.findings = slices.Insert(w.findings, first, v)
	w.operands = slices.Insert(w.operands, 0, operand{component: "driver", podState: podState{Finding: v}})
}

// unlike describes the labels in the DaemonSet's nodeSelector that the node lacks or has with a different value.
func (w *nodeJudge) unlike(set operandSet) string {
	var terms []string
	selector := set.Spec.Template.Spec.NodeSelector
	for _, key := range slices.Sorted(maps.Keys(selector)) {
		if w.kube.Labels[key] != selector[key] {
			terms = append(terms, fmt.Sprintf("%s=%s, but on the node the label is %s", key, selector[key], shown(w.kube.Labels, key)))
		}
	}
	return fmt.Sprintf("DaemonSet/%s selects %s", set.Name, strings.Join(terms, "; "))
}

// firstBroken returns the broken operand that causes others to wait, or nil if no operand is broken.
func (w *nodeJudge) firstBroken() *operand {
	i := slices.IndexFunc(w.operands, isBroken)
	if i < 0 {
		return nil
	}
	// the first one can wait for a later one: the validator's last step waits for the device plugin
	for range w.operands {
		at := slices.IndexFunc(w.operands, func(l operand) bool { return l.component == w.operands[i].blames && isBroken(l) })
		if at < 0 || w.operands[i].Severity == check.Error && w.operands[i].blames == "" {
			break
		}
		i = at
	}
	return &w.operands[i]
}

// resources reports labels and resources of the node that contradict each other or the prediction.
func (w *nodeJudge) resources() {
	if w.policy == nil && len(w.GPUClusters) > 0 {
		return // DRA uses ResourceSlices, and needs no GPU Feature Discovery
	}
	follows := w.unsettled()
	missing := false
	for _, f := range node.Check(w.kube) {
		v := withoutPlace(f)
		v.Fix = strings.ReplaceAll(f.Fix, "-n gpu-operator", "-n "+w.Namespace)
		depends := false // depends means that a broken operand can be the cause of the finding
		switch {
		case f.Check == node.OperandPaused, f.Check == node.MIGState && f.Subject == labelMIGState:
			continue // checkOperands and mig report these
		case f.Check == node.NoLabels && (w.forMachines(w.kube) || !w.is("gfd.enabled")):
			continue // GPU Feature Discovery is not meant to run on this node
		case f.Check == node.NoResource, f.Check == node.NoLabels:
			missing = missing || f.Check == node.NoResource
			depends = true
		case f.Check == node.CapacityDiffers:
			v.Fix = w.logOf("nvidia-device-plugin-daemonset", "nvidia-device-plugin") + "  # names the XID"
			if depends = amount(w.kube.Status.Allocatable, f.Subject) == "0"; depends {
				v.Say(check.Error, "none of %s is allocatable: the device plugin is not running, or every GPU is unhealthy", amount(w.kube.Status.Capacity, f.Subject))
			}
		}
		if depends && follows {
			continue
		}
		w.add(v)
	}
	if !w.forMachines(w.kube) {
		w.predicted(follows, missing)
	}
}

// withoutPlace copies the check, severity, subject, reason and fix of a finding, but not its place in a file.
func withoutPlace(f check.Finding) check.Finding {
	return check.Finding{Check: f.Check, Severity: f.Severity, Subject: f.Subject, Reason: f.Reason, Fix: f.Fix}
}

// unsettled reports whether wrong resources are expected: the node is being changed, or an operand that provides
// resources is broken.
func (w *nodeJudge) unsettled() bool {
	makers := []string{"driver", "device-plugin", "gpu-feature-discovery", mpsDaemon}
	return w.changing != "" || w.stuck != "" ||
		slices.ContainsFunc(w.operands, func(l operand) bool { return isBroken(l) && slices.Contains(makers, l.component) })
}
