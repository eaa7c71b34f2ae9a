package verify

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/explain"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/finding"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/node"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/verdict"
)

// A nodeJudge judges one node.
type nodeJudge struct {
	*judge
	kube *corev1.Node
	// of is what package node reads of it.
	of *node.Node
	// changing says what is under way on the node, so that what differs may come right by itself:
	// "the MIG change", "the driver upgrade"; empty where nothing is.
	changing string
	// stuck is the command that starts a MIG change again that has stopped; empty where none has.
	stuck string
	// links are the operands in the order of dependence.
	links []link
}

// A link is an operand on the node.
type link struct {
	component string
	podState
	pod *corev1.Pod
}

func (j *judge) node(n *corev1.Node) {
	w := &nodeJudge{judge: j, kube: n, of: cluster.JudgedNode(n)}
	first := len(j.rows)
	w.kubelet()
	if w.discovered() {
		w.workloads()
		w.upgrade()
		w.mig()
		w.vgpu()
		w.operands()
		w.sharing()
		w.resources()
	}
	for i := first; i < len(j.rows); i++ {
		j.rows[i].Node = n.Name
	}
}

// kubelet is a row for a node that is not ready, or takes no pods.
func (w *nodeJudge) kubelet() {
	v := verdict.Verdict{ID: "node-ready", Subject: "Node/" + w.kube.Name, Source: "Kubernetes documentation, node status"}
	i := slices.IndexFunc(w.kube.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	switch {
	case i >= 0 && w.kube.Status.Conditions[i].Status != corev1.ConditionTrue:
		c := w.kube.Status.Conditions[i]
		v.State, v.Since = verdict.Failed, c.LastTransitionTime.Time
		v.Reason = "the kubelet is not ready" + because(c.Reason, c.Message)
		v.Next = "kubectl describe node " + w.kube.Name
	case w.kube.Spec.Unschedulable && w.upgrading():
		v.State = verdict.Note
		v.Reason = "the node is cordoned: the driver upgrade did that, and takes it back at its end"
	case w.kube.Spec.Unschedulable:
		v.State = verdict.Note
		v.Reason = "the node is cordoned: it takes no new pods but those of DaemonSets"
		v.Next = "kubectl uncordon " + w.kube.Name
	default:
		return
	}
	w.add(v)
}

// upgrading reports whether a driver upgrade has the node: from its cordon to its end, a failure
// included, after which a corrected driver pod lets it go on. Up to then pods on the GPUs would keep
// the old driver loaded.
func (w *nodeJudge) upgrading() bool {
	switch w.kube.Labels[labelUpgrade] {
	case "", "upgrade-required", "upgrade-done":
		return false
	}
	return w.noDriverPod() == ""
}

// discovered judges whether the operator works on the node at all, and reports whether to go on.
func (w *nodeJudge) discovered() bool {
	labels := w.kube.Labels
	switch {
	case labels[labelOperands] == "false":
		w.add(verdict.Verdict{
			ID: "operands-off", State: verdict.Note, Subject: labelOperands,
			Reason: "the label is false: the operator keeps every operand off the node, and nothing else is judged",
			Next:   "kubectl label node " + w.kube.Name + " " + labelOperands + "-", Source: sourceLabels,
		})
		return false
	case labels[labelPresent] != "true" && cluster.OperatorGPUNode(w.kube) && (w.policy != nil || len(w.GPUClusters) > 0):
		w.add(verdict.Verdict{
			ID: "gpu-present", State: verdict.Failed, Subject: labelPresent,
			Reason: fmt.Sprintf("the label is %q, and Node Feature Discovery found a GPU: the operator has not labeled the node", labels[labelPresent]),
			Next:   fmt.Sprintf("kubectl logs -n %s -l app=gpu-operator --tail=100", w.Namespace), Source: sourceLabels,
		})
	}
	return true
}

// workloads judges a label that names what the node is for and is not followed.
func (w *nodeJudge) workloads() {
	value, found := w.kube.Labels[labelWorkload]
	if !found || w.policy == nil || value == w.workload(w.kube) {
		return
	}
	v := verdict.Verdict{ID: "workload-config", State: verdict.Warning, Subject: labelWorkload, Source: sourceLabels}
	if w.boolean(false, "sandboxWorkloads", "enabled") {
		v.Reason = fmt.Sprintf("the label is %q, want %s: the operator takes the default, %s", value, strings.Join(useOfNodes, ", "), w.workload(w.kube))
		v.Next = fmt.Sprintf("kubectl label node %s %s=%s --overwrite", w.kube.Name, labelWorkload, w.workload(w.kube))
	} else {
		v.Reason = fmt.Sprintf("the label is %q, and sandboxWorkloads.enabled is not true: the node is for containers all the same", value)
		v.Next = "helm upgrade … --set sandboxWorkloads.enabled=true  # or kubectl label node " + w.kube.Name + " " + labelWorkload + "-"
	}
	w.add(v)
}

// useOfNodes are the values of the label that names what a node is for.
var useOfNodes = []string{"container", "vm-passthrough", "vm-vgpu"}

// workload is what a node is for: its label where it is a known value, and else the default.
// Source: gpu-operator controllers/state_manager.go, getWorkloadConfig.
func (j *judge) workload(n *corev1.Node) string {
	if !j.boolean(false, "sandboxWorkloads", "enabled") {
		return useOfNodes[0]
	}
	for _, value := range []string{n.Labels[labelWorkload], j.text("sandboxWorkloads", "defaultWorkload")} {
		if slices.Contains(useOfNodes, value) {
			return value
		}
	}
	return useOfNodes[0]
}

// vgpu judges the state of the vGPU devices that the node's label requests.
func (w *nodeJudge) vgpu() {
	config, state := w.kube.Labels[labelVGPU], w.kube.Labels[labelVGPUDone]
	if state == "" || state == "success" {
		return
	}
	v := verdict.Verdict{
		ID: "vgpu-config-state", Subject: labelVGPUDone, Since: labelWritten(w.kube, labelVGPUDone), Source: sourceVGPU,
		Next: fmt.Sprintf("kubectl logs -n %s -l app=nvidia-vgpu-device-manager -c nvidia-vgpu-device-manager --tail=100", w.Namespace),
	}
	switch state {
	case "failed":
		v.State = verdict.Failed
		v.Reason = fmt.Sprintf("the vGPU config %q could not be applied: it is not in the device manager's ConfigMap, the GPU has no such type, or a virtual machine holds a device", config)
	case "pending":
		v.State, w.changing = verdict.Waiting, "the change of vGPU devices"
		v.Reason = fmt.Sprintf("the vGPU config %q is being applied", config)
	default:
		v.State = verdict.Unknown
		v.Reason = fmt.Sprintf("the state %q is not one of the vGPU device manager", state)
	}
	w.add(v)
}

// upgrade judges the state of a driver upgrade.
func (w *nodeJudge) upgrade() {
	state, found := w.kube.Labels[labelUpgrade]
	if !found || state == "" {
		return
	}
	v := verdict.Verdict{
		ID: "driver-upgrade", Subject: labelUpgrade, Since: labelWritten(w.kube, labelUpgrade), Source: sourceUpgrade,
		Next: fmt.Sprintf("kubectl logs -n %s -l app=gpu-operator --tail=100", w.Namespace),
	}
	meaning := ""
	for _, e := range explain.Find(state) {
		if strings.HasPrefix(e.Meaning, "Driver upgrade: ") || strings.HasPrefix(e.Meaning, "First state of a driver upgrade: ") {
			_, meaning, _ = strings.Cut(e.Meaning, ": ")
		}
	}
	switch {
	case state == "upgrade-done":
		v.Reason, v.Next = "no driver upgrade is under way", ""
	case w.noDriverPod() != "":
		v.State = verdict.Warning
		v.Reason = fmt.Sprintf("%s is left over: %s, and the upgrade controller looks at nodes with a driver pod alone", state, w.noDriverPod())
		v.Next = "kubectl label node " + w.kube.Name + " " + labelUpgrade + "-"
	case state != "upgrade-failed" && w.kube.Labels[labelSkip] == "true":
		v.State = verdict.Note
		v.Reason = fmt.Sprintf("%s, and the label %s keeps the node out of driver upgrades", state, labelSkip)
		v.Next = "kubectl label node " + w.kube.Name + " " + labelSkip + "-"
	case state == "upgrade-failed":
		v.State = verdict.Failed
		v.Reason = "the driver upgrade has failed: " + strings.TrimSuffix(strings.TrimPrefix(meaning, "failed; "), ".")
		v.Next = fmt.Sprintf("kubectl get pods -n %s -o wide --field-selector spec.nodeName=%s", w.Namespace, w.kube.Name)
	case meaning != "":
		v.State, w.changing = verdict.Waiting, "the driver upgrade"
		v.Reason = fmt.Sprintf("%s: %s", state, strings.TrimSuffix(meaning, "."))
		v.Next = "kubectl get pods -A -o wide --field-selector spec.nodeName=" + w.kube.Name
	default:
		v.State = verdict.Unknown
		v.Reason = fmt.Sprintf("the state %q is not one of the upgrade controller", state)
	}
	w.add(v)
}

// noDriverPod says why the node is to run no driver pod; empty where it is to.
func (w *nodeJudge) noDriverPod() string {
	switch value := w.kube.Labels[deployPrefix+"driver"]; {
	case value == preInstalled || value == "false":
		return fmt.Sprintf("%sdriver is %s", deployPrefix, value)
	case w.policy != nil && !w.boolean(true, "driver", "enabled") && !w.boolean(false, "driver", "useNvidiaDriverCRD"):
		return "driver.enabled is false"
	}
	return ""
}

// migPatience is how long the MIG manager waits for the pods of one component to go away; there are
// five such waits in a row. Source: mig-parted pkg/mig/reconfigure/reconfigure.go, waitForPodsToBeDeleted.
const migPatience = 5 * 5 * time.Minute

// migReaction is how long the state of the change before may stand after the config was requested: the
// MIG manager checks the config against the GPUs before it writes pending.
const migReaction = time.Minute

// mig judges the state of a MIG change. What the node shows after a success is judged with its
// resources.
func (w *nodeJudge) mig() {
	config, state := w.kube.Labels[labelMIG], w.kube.Labels[labelMIGState]
	if config == "" && state == "" {
		return
	}
	v := verdict.Verdict{
		ID: node.RuleState, Subject: labelMIGState, Since: labelWritten(w.kube, labelMIGState), Source: sourceMIG,
		Next: fmt.Sprintf("kubectl logs -n %s -l app=nvidia-mig-manager -c nvidia-mig-manager --tail=100", w.Namespace),
	}
	age := "since when is not known"
	if !v.Since.IsZero() {
		age = "for " + w.At.Sub(v.Since).Round(time.Second).String()
	}
	again := fmt.Sprintf("kubectl label node %s %s- && kubectl label node %s %s=%s", w.kube.Name, labelMIG, w.kube.Name, labelMIG, config)
	if requested := labelWritten(w.kube, labelMIG); requested.After(v.Since) && !v.Since.IsZero() && w.At.Sub(requested) < migReaction && (state == "success" || state == "failed") {
		v.State, w.changing, v.Since = verdict.Waiting, "the MIG change", requested
		v.Reason = fmt.Sprintf("the MIG config %q is requested, and the state %s is that of the change before", config, state)
		w.add(v)
		return
	}
	switch state {
	case "success":
		v.Reason, v.Next = fmt.Sprintf("the MIG manager says that %q is applied", config), ""
	case "failed":
		v.State = verdict.Failed
		v.Reason = fmt.Sprintf("the MIG config %q could not be applied: a client holds a GPU, the config does not fit, or a GPU is not covered", config)
	case "pending":
		v.State, w.changing = verdict.Waiting, "the MIG change"
		v.Reason = fmt.Sprintf("the MIG config %q is being applied, %s; MIG manager v0.15.0 leaves the state pending for good when it stops waiting for a pod", config, age)
		if !v.Since.IsZero() && w.At.Sub(v.Since) > migPatience {
			v.State, w.changing, w.stuck = verdict.Failed, "", again
			v.Reason = fmt.Sprintf("the MIG config %q is pending %s, and the MIG manager waits for pods for %s at most: it has most likely given up, and the state stays", config, age, migPatience)
			v.Next = again
		}
	case "rebooting":
		v.State, w.changing = verdict.Waiting, "the MIG change"
		v.Reason = fmt.Sprintf("the node restarts to change the MIG mode for %q, %s", config, age)
		v.Next = "kubectl get node " + w.kube.Name
	case "":
		if w.kube.Labels[deployPrefix+"mig-manager"] == "" && w.kube.Labels["nvidia.com/mig.capable"] == "false" {
			return
		}
		v.State = verdict.Waiting
		v.Reason = fmt.Sprintf("the MIG config %q is requested, and the MIG manager has written no state", config)
	default:
		v.State = verdict.Unknown
		v.Reason = fmt.Sprintf("the state %q is not one of the MIG manager", state)
	}
	w.add(v)
}

// ownedBy reports whether a pod is a DaemonSet's. A folder may hold objects without uids.
func ownedBy(p *corev1.Pod, set operandSet) bool {
	return slices.ContainsFunc(p.OwnerReferences, func(o metav1.OwnerReference) bool {
		return o.Kind == "DaemonSet" && o.Name == set.Name && (o.UID == set.UID || o.UID == "" || set.UID == "")
	})
}

// operands is a row for each operand that the node is meant to run, and before them one for the
// first broken link of the chain.
func (w *nodeJudge) operands() {
	if w.lacks(cluster.DaemonSets) {
		return
	}
	done := map[string]bool{}
	at := len(w.rows)
	for _, set := range w.sets {
		row := w.operand(set, done)
		if row != nil {
			w.add(*row)
		}
	}
	w.ownDriver(at)
	w.pausedClient()
	if broken := w.firstBroken(); broken != nil {
		w.rows = slices.Insert(w.rows, at, *broken)
	}
}

// operand judges one DaemonSet on the node; nil where the node is not meant to run it.
func (w *nodeJudge) operand(set operandSet, done map[string]bool) *verdict.Verdict {
	label := deployPrefix + set.component
	value, found := w.kube.Labels[label]
	v := &verdict.Verdict{ID: "operand", Subject: set.component, Source: sourceLabels}
	only := map[string]string{}
	maps.Copy(only, set.Spec.Template.Spec.NodeSelector)
	delete(only, label)
	switch {
	case !matches(only, w.kube.Labels):
		return nil // of another pool, kernel or use
	case value == set.Spec.Template.Spec.NodeSelector[label]:
		return w.pod(set)
	case done[label]:
		return nil
	}
	done[label] = true
	v.Subject = label
	switch {
	case node.Paused(value):
		w.paused(v, value)
		return v // no link of the chain: what pauses it has a row of its own
	case set.component == "driver" && value == preInstalled:
		v.Reason = "the label is pre-installed: the driver manager found a driver of the node's own, and the node runs no driver container"
		v.Source = sourceManager
		return v
	case value == "false":
		v.State = verdict.Note
		v.Reason = "the label is false: an administrator keeps the operand off the node"
		v.Next = "kubectl label node " + w.kube.Name + " " + label + "=true --overwrite"
	case found && value == "":
		v.State = verdict.Warning
		v.Reason = "the label is empty, which selects nothing: the driver manager writes that when it pauses an operand that was not there; releases before v26.7 leave it"
		v.Next = "kubectl label node " + w.kube.Name + " " + label + "-"
	case found:
		v.State = verdict.Warning
		v.Reason = fmt.Sprintf("the label is %q, want true, false or paused-for-…: the operator leaves it, and the operand stays away", value)
		v.Next = "kubectl label node " + w.kube.Name + " " + label + "-"
	case !w.wantsContainers() || !w.forContainers(set.component) && set.component != "mig-manager":
		return nil
	case set.component == "mig-manager" && w.kube.Labels["nvidia.com/mig.capable"] != "true":
		return nil
	default:
		v.State = verdict.Failed
		v.Reason = "the label is absent: the operator has not said that the node is to run the operand"
		v.Next = fmt.Sprintf("kubectl logs -n %s -l app=gpu-operator --tail=100", w.Namespace)
	}
	w.links = append(w.links, link{component: set.component, podState: podState{state: v.State, reason: v.Reason, next: v.Next, since: v.Since}})
	return v
}

// wantsContainers reports whether the node is for containers, and the device plugin's stack serves
// it.
func (w *nodeJudge) wantsContainers() bool {
	if w.policy == nil || w.kube.Labels[labelPresent] != "true" {
		return false
	}
	return !w.forMachines(w.kube)
}

// paused judges a label that pauses an operand.
func (w *nodeJudge) paused(v *verdict.Verdict, value string) {
	v.ID = node.RulePaused
	v.State, v.Since = verdict.Waiting, labelWritten(w.kube, v.Subject)
	purposes, end := pauses(value), "is"
	if len(purposes) > 1 {
		end = "are"
	}
	v.Reason = fmt.Sprintf("the label is %s: the pod is away until the %s %s over", value, strings.Join(purposes, " and the "), end)
	state := w.kube.Labels[labelMIGState]
	change, ended := "MIG change", state == "success" || state == "failed"
	if value == "paused-for-vgpu-change" {
		state = w.kube.Labels[labelVGPUDone]
		change, ended = "change of vGPU devices", state == "success" || state == "failed"
	}
	switch {
	case (value == "paused-for-mig-change" || value == "paused-for-vgpu-change") && ended:
		v.State = verdict.Failed
		v.Reason = fmt.Sprintf("the label is %s, and the %s has ended (%s): nothing takes the pause back", value, change, state)
		v.Next = "kubectl label node " + w.kube.Name + " " + v.Subject + "=true --overwrite"
	case value == "paused-for-vgpu-change":
		w.changing = "the change of vGPU devices"
		v.Next = fmt.Sprintf("kubectl logs -n %s -l app=nvidia-vgpu-device-manager -c nvidia-vgpu-device-manager --tail=100", w.Namespace)
	case value == "paused-for-cc-mode-change":
		w.changing = "the change of the confidential computing mode"
		v.Next = fmt.Sprintf("kubectl logs -n %s -l app=nvidia-cc-manager --tail=100", w.Namespace)
	case value == "paused-for-mig-change" && w.stuck != "":
		v.State, v.Next = verdict.Failed, w.stuck
		v.Reason = fmt.Sprintf("the label is %s, and the MIG change is stuck: nothing takes the pause back", value)
	case value == "paused-for-mig-change":
		w.changing = "the MIG change"
		v.Next = fmt.Sprintf("kubectl logs -n %s -l app=nvidia-mig-manager -c nvidia-mig-manager --tail=100", w.Namespace)
	case strings.Contains(value, "paused-for-driver-upgrade") && w.kube.Labels[labelUpgrade] == "upgrade-failed":
		v.State = verdict.Failed
		v.Reason = fmt.Sprintf("the label is %s, and the driver upgrade has failed: the pod stays away", value)
		v.Next = fmt.Sprintf("kubectl get pods -n %s -o wide --field-selector spec.nodeName=%s", w.Namespace, w.kube.Name)
	case strings.Contains(value, "paused-for-driver-upgrade"):
		w.changing = "the driver upgrade"
		v.Next = fmt.Sprintf("kubectl logs -n %s -l app.kubernetes.io/component=nvidia-driver -c k8s-driver-manager --tail=100", w.Namespace)
	}
}

// pauses are what a value of a deploy label waits for: "MIG change", "driver upgrade".
func pauses(value string) []string {
	var purposes []string
	for word := range strings.SplitSeq(value, "_") {
		if purpose, found := strings.CutPrefix(word, "paused-for-"); found {
			purposes = append(purposes, strings.NewReplacer("mig", "MIG", "vgpu", "vGPU", "cc-", "CC ", "-", " ").Replace(purpose))
		}
	}
	return purposes
}

// pausedClient is a row for the label of other programs, which no operand selects.
func (w *nodeJudge) pausedClient() {
	label := deployPrefix + "client"
	if value := w.kube.Labels[label]; node.Paused(value) {
		v := &verdict.Verdict{ID: node.RulePaused, Subject: label, Source: sourceLabels}
		w.paused(v, value)
		w.add(*v)
	}
}

// pod judges the pod of a DaemonSet on the node.
func (w *nodeJudge) pod(set operandSet) *verdict.Verdict {
	v := &verdict.Verdict{ID: "operand", Subject: set.component, Source: sourceAssets}
	if w.lacks(cluster.Pods) {
		return nil
	}
	l := link{component: set.component}
	for _, p := range w.pods[w.kube.Name] {
		if !ownedBy(p, set) {
			continue
		}
		s := podStateOf(p)
		// while a pod is replaced the one that stays counts
		if l.pod == nil || l.pod.DeletionTimestamp != nil {
			l.pod, l.podState = p, s
		}
	}
	if l.pod == nil {
		l.podState = podState{state: verdict.Waiting, reason: "the node is to run it, and has no pod of it", next: fmt.Sprintf("kubectl describe daemonset -n %s %s", set.Namespace, set.Name)}
		if taint := blockingTaint(set, w.kube); taint != nil {
			l.state, v.Source = verdict.Failed, sourceTaints
			l.reason = fmt.Sprintf("the taint %s keeps the pod off the node, and the tolerations of DaemonSet/%s do not cover it", taint.ToString(), set.Name)
			l.next = untaint(w.kube, taint)
			l.cause, l.together, l.evidence = causeOf(w.kube, taint)
		} else if d := w.refused(set); d != nil {
			l.state, l.reason, l.next, l.cause, l.evidence, v.Source = verdict.Failed, d.reason, d.next, d.cause, d.evidence, d.source
		}
	}
	switch {
	case l.pod != nil && l.unstarted:
		w.sandbox(&l)
	case l.pod != nil && set.component == "operator-validator":
		w.validated(&l)
	case set.component == "device-plugin" && l.blames == "":
		l.blames = mpsDaemon // where the node shares by MPS, the plugin waits for the daemon
	}
	if l.pod != nil && strings.HasPrefix(l.cause, "image ") {
		if e := w.event("Pod", l.pod.Name, "Failed"); e != nil && strings.Contains(e.Message, "pull image") {
			l.evidence = evidenceOf(e)
		}
	}
	v.State, v.Reason, v.Next, v.Since = l.state, l.reason, l.next, l.since
	v.Cause, v.Together, v.Evidence = l.cause, l.together, l.evidence
	if set.Name == "nvidia-device-plugin-mps-control-daemon" {
		v.Subject = mpsDaemon
		l.component = v.Subject
		if l.blames == mpsDaemon {
			l.blames = ""
		}
	}
	w.links = append(w.links, l)
	return v
}

// mpsDaemon is the link of the MPS control daemon, whose deploy label is the device plugin's.
const mpsDaemon = "mps-control-daemon"

// bad reports whether a link is broken.
func bad(l link) bool { return l.state == verdict.Failed || l.state == verdict.Waiting }

// sandboxPatience is how long the kubelet may need to make a pod's sandbox.
const sandboxPatience = 5 * time.Minute

// explain takes over what an event says of the pod.
func (l *link) explain(d *diagnosis) {
	l.state, l.cause, l.evidence, l.next = verdict.Failed, d.cause, d.evidence, d.next
	l.reason += ": " + d.reason
}

// sandbox completes the link of a pod that has no sandbox: what it mounts is not there, or the container
// runtime has no handler for its RuntimeClass, which the toolkit sets up.
func (w *nodeJudge) sandbox(l *link) {
	for _, v := range l.pod.Spec.Volumes {
		if m := v.ConfigMap; m != nil && (m.Optional == nil || !*m.Optional) && w.maps[m.Name] == nil && !w.lacks(cluster.ConfigMaps) {
			l.state = verdict.Failed
			l.reason += fmt.Sprintf(": it mounts ConfigMap/%s, which namespace %s does not hold", m.Name, l.pod.Namespace)
			l.next = fmt.Sprintf("kubectl get configmaps -n %s", l.pod.Namespace)
			return
		}
	}
	var d *diagnosis
	if e := w.event("Pod", l.pod.Name, "FailedCreatePodSandBox", "FailedMount", "FailedAttachVolume"); e != nil {
		d = w.diagnose(e, sandboxes)
	}
	if d != nil && !strings.HasPrefix(d.cause, "handler ") {
		l.explain(d)
		return
	}
	class := l.pod.Spec.RuntimeClassName
	if class == nil || *class == "" {
		return
	}
	if i := slices.IndexFunc(w.links, func(o link) bool { return o.component == "container-toolkit" }); i >= 0 && bad(w.links[i]) {
		l.blames = "container-toolkit"
		l.reason += fmt.Sprintf(": it waits for the RuntimeClass %s, which container-toolkit sets up in the container runtime", *class)
		return
	}
	if d != nil {
		l.explain(d)
		return
	}
	if slices.ContainsFunc(w.pods[w.kube.Name], func(p *corev1.Pod) bool {
		return p.Spec.RuntimeClassName != nil && *p.Spec.RuntimeClassName == *class && p.Status.Phase == corev1.PodRunning
	}) {
		l.next += "  # its events name the cause"
		l.reason += fmt.Sprintf(", and other pods with the RuntimeClass %s run: likely a volume or the network is not there", *class)
		return
	}
	l.next += "  # its events name the cause; on the node, sudo gpuop node reads the runtime's configuration"
	l.reason += fmt.Sprintf(": likely the container runtime has no handler for the RuntimeClass %s, or has not read it", *class)
	switch {
	case w.policy != nil && !w.boolean(true, "toolkit", "enabled"):
		l.reason += "; toolkit.enabled is false, so the node is to bring it"
	case w.At.Sub(l.since) > sandboxPatience:
		l.reason += ", though container-toolkit is ready"
	}
	if w.At.Sub(l.since) > sandboxPatience {
		l.state = verdict.Failed
	}
}

// workloads of the validator, by the init container that starts them and waits for them.
var validatorPods = map[string]string{"cuda-validation": "nvidia-cuda-validator", "plugin-validation": "nvidia-device-plugin-validator"}

// validated completes the link of the validator by the pod that it has started, which says more than the
// validator's own log.
func (w *nodeJudge) validated(l *link) {
	var newest *corev1.Pod
	for _, p := range w.pods[w.kube.Name] {
		if app := validatorPods[l.in]; app != "" && p.Labels["app"] == app && p.Status.Phase != corev1.PodSucceeded && (newest == nil || newest.CreationTimestamp.Before(&p.CreationTimestamp)) {
			newest = p
		}
	}
	if newest == nil {
		return
	}
	s := podStateOf(newest)
	l.reason = fmt.Sprintf("init container %s waits for the pod %s: %s", l.in, newest.Name, s.reason)
	if s.state == verdict.Failed {
		l.state, l.next, l.blames = s.state, s.next, ""
	}
}

// ownDriver is a row for a driver that an operand waits for, on a node that runs no driver pod: one of its own,
// or one that no DaemonSet brings. The rows of the node's operands begin at first.
func (w *nodeJudge) ownDriver(first int) {
	waits := slices.IndexFunc(w.links, func(l link) bool { return l.blames == "driver" && bad(l) })
	if waits < 0 || w.policy == nil || slices.ContainsFunc(w.links, func(l link) bool { return l.component == "driver" && (l.pod != nil || bad(l)) }) {
		return
	}
	label := deployPrefix + "driver"
	v := verdict.Verdict{ID: "operand", State: verdict.Failed, Subject: "driver", Since: w.links[waits].since, Source: sourceManager}
	switch why := w.noDriverPod(); {
	case w.kube.Labels[label] == preInstalled || w.kube.Labels[label] == "false":
		v.Reason = fmt.Sprintf("%s, so that the node is to bring its own driver, and %s finds none", why, w.links[waits].component)
		v.Next = fmt.Sprintf("kubectl label node %s %s=true --overwrite  # for the operator's driver; sudo gpuop node says what the node's own lacks", w.kube.Name, label)
		w.rows = slices.Concat(w.rows[:first:first], slices.DeleteFunc(slices.Clone(w.rows[first:]), func(r verdict.Verdict) bool { return r.Subject == label }))
	case why != "":
		v.Reason = fmt.Sprintf("%s, so that the node is to bring its own driver, and %s finds none", why, w.links[waits].component)
		v.Next = "sudo gpuop node  # on " + w.kube.Name
	default:
		v.Source = sourceLabels
		v.Reason = "no DaemonSet of the driver selects the node"
		v.Next = fmt.Sprintf("kubectl logs -n %s -l app=gpu-operator --tail=100", w.Namespace)
		var selected []string
		for _, set := range w.sets {
			if set.component == "driver" {
				selected = append(selected, w.unlike(set))
			}
		}
		if len(selected) > 0 {
			v.Reason += ": " + listed(selected)
		}
	}
	w.rows = slices.Insert(w.rows, first, v)
	w.links = slices.Insert(w.links, 0, link{component: "driver", podState: podState{state: v.State, reason: v.Reason, next: v.Next, since: v.Since}})
}

// unlike says which labels that a DaemonSet selects the node does not have.
func (w *nodeJudge) unlike(set operandSet) string {
	var terms []string
	selector := set.Spec.Template.Spec.NodeSelector
	for _, key := range slices.Sorted(maps.Keys(selector)) {
		switch value, found := w.kube.Labels[key]; {
		case !found:
			terms = append(terms, fmt.Sprintf("%s=%s, which the node lacks", key, selector[key]))
		case value != selector[key]:
			terms = append(terms, fmt.Sprintf("%s=%s, and the node has %s", key, selector[key], value))
		}
	}
	return fmt.Sprintf("DaemonSet/%s selects %s", set.Name, strings.Join(terms, "; "))
}

// firstBroken is the row that names the link from which the others wait; nil where none is broken.
func (w *nodeJudge) firstBroken() *verdict.Verdict {
	i := slices.IndexFunc(w.links, bad)
	if i < 0 {
		return nil
	}
	// the first in the order of dependence may itself wait for a later one: the validator waits for
	// the device plugin in its last step
	for range w.links {
		at := slices.IndexFunc(w.links, func(l link) bool { return l.component == w.links[i].blames && bad(l) })
		if at < 0 || w.links[i].state == verdict.Failed && w.links[i].blames == "" {
			break
		}
		i = at
	}
	var behind []string
	for k, l := range w.links {
		if k != i && bad(l) && !slices.Contains(behind, l.component) {
			behind = append(behind, l.component)
		}
	}
	l := w.links[i]
	v := &verdict.Verdict{
		ID: "first-broken-link", State: l.state, Subject: l.component, Since: l.since, Next: l.next, Source: sourceAssets,
		Reason: "the first link of the chain that is not ready", Cause: l.cause, Evidence: l.evidence,
	}
	if len(behind) > 0 {
		v.Reason += ": mend it before " + strings.Join(behind, ", ")
	}
	return v
}

// resources judges what the node offers, by what its labels contradict and by what is predicted.
func (w *nodeJudge) resources() {
	if w.policy == nil && len(w.GPUClusters) > 0 {
		return // the DRA stack offers devices in ResourceSlices, and has no GPU Feature Discovery
	}
	settling := w.settling()
	missing := false
	for _, f := range w.of.Check() {
		v := verdict.Verdict{ID: f.ID, State: verdict.Warning, Subject: f.Subject, Reason: f.Reason, Next: strings.ReplaceAll(f.Fix, "-n gpu-operator", "-n "+w.Namespace), Source: f.Source}
		if f.Severity == finding.Error {
			v.State = verdict.Failed
		}
		switch f.ID {
		case node.RuleCount:
			w.unallocatable(&v, settling)
		case node.RulePaused:
			continue // judged with the operands
		case node.RuleState:
			if f.Subject == labelMIGState {
				continue // judged with its age
			}
		case node.RuleNoResource, node.RuleNoLabels:
			if f.ID == node.RuleNoLabels && (w.forMachines(w.kube) || !w.boolean(true, "gfd", "enabled")) {
				continue // it is not to run here
			}
			missing = missing || f.ID == node.RuleNoResource
			if settling != "" {
				v.State = verdict.Waiting
				v.Reason += "; " + settling + " comes first"
			}
			if first := w.firstBroken(); first != nil {
				v.Next = cmp.Or(first.Next, v.Next)
			}
		}
		w.add(v)
	}
	if !w.forMachines(w.kube) {
		w.predicted(settling, missing)
	}
}

// unallocatable completes the row of a resource of which not all is allocatable. Where none is, the
// kubelet has lost the device plugin, or every GPU is unhealthy.
func (w *nodeJudge) unallocatable(v *verdict.Verdict, settling string) {
	v.Next = fmt.Sprintf("kubectl logs -n %s -l app=nvidia-device-plugin-daemonset -c nvidia-device-plugin --tail=100  # names the XID", w.Namespace)
	if w.of.Allocatable[v.Subject] != "0" {
		return
	}
	v.State = verdict.Failed
	v.Reason = fmt.Sprintf("none of %s is allocatable: the device plugin is away, or every GPU is unhealthy", w.of.Capacity[v.Subject])
	if settling != "" {
		v.State = verdict.Waiting
		v.Reason += "; " + settling + " comes first"
	}
	if first := w.firstBroken(); first != nil {
		v.Next = cmp.Or(first.Next, v.Next)
	}
}

// forMachines reports whether the node is for virtual machines, whose device plugin names the
// resources after the GPU's model.
func (j *judge) forMachines(n *corev1.Node) bool { return strings.HasPrefix(j.workload(n), "vm-") }

// settling says what is under way, after which the resources may come right by themselves; empty
// where nothing is.
func (w *nodeJudge) settling() string {
	if w.changing != "" {
		return w.changing
	}
	if first := w.firstBroken(); first != nil && first.State == verdict.Waiting {
		return "the operand " + first.Subject
	}
	return ""
}
