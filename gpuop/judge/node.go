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
	// operands are the operands that the node runs or should run, in dependency order.
	operands []operand
	findings []check.Finding
	// changing means that a MIG change or a driver upgrade is in progress. Differences are expected until it ends.
	changing bool
	stuck    bool // a MIG change no longer makes progress
}

func preflightNode(v *view, kube *corev1.Node) []check.Finding {
	n := newNodeReport(v, kube)
	n.ready()
	n.architecture()
	n.supported()
	n.cdi()
	n.taints()
	return n.findings
}

func verifyNode(v *view, kube *corev1.Node) *nodeReport {
	n := newNodeReport(v, kube)
	n.ready()
	n.cdi()
	if kube.Labels[labelOperands] == "false" {
		n.report(operandsOff, check.Note, labelOperands, n.relabel(labelOperands+"-"),
			"the label is false: the operator keeps every operand off the node; the other checks are skipped")
		return n
	}
	isInstalled := v.policy != nil || len(v.GPUClusters) > 0
	if kube.Labels[labelPresent] != "true" && cluster.OperatorGPUNode(kube) && isInstalled {
		n.report(gpuPresent, check.Error, labelPresent, n.operatorLog(),
			"the label is %s although Node Feature Discovery found a GPU: the operator has not labeled the node",
			shown(kube.Labels, labelPresent))
	}
	n.upgrade()
	n.mig()
	n.checkOperands()
	n.sharing()
	n.resources()
	return n
}

func newNodeReport(v *view, kube *corev1.Node) *nodeReport {
	isOther := func(p *corev1.Pod) bool { return p.Namespace != v.Namespace }
	return &nodeReport{view: v, kube: kube, operandPods: slices.DeleteFunc(slices.Clone(v.pods[kube.Name]), isOther)}
}

func (n *nodeReport) add(f check.Finding) { n.findings = append(n.findings, n.own(f)) }

// report adds a finding about the node. own selects its evidence.
func (n *nodeReport) report(id *check.Check, s check.Severity, subject, fix, format string, args ...any) {
	n.add(check.Finding{Check: id, Severity: s, Subject: subject, Fix: fix, Reason: fmt.Sprintf(format, args...)})
}

// own sets the node of a finding and, if it has no evidence, adds what the cluster says about its subject. Predictions
// depend on the label with the GPU model, which is the evidence about other subjects.
func (n *nodeReport) own(f check.Finding) check.Finding {
	subject, object := f.Subject, "Node/"+n.kube.Name
	f.Node = n.kube.Name
	if f.Evidence.Text != "" {
		return f
	}
	capacity, isResource := node.Resources(n.kube.Status.Capacity)[subject]
	name, isMap := strings.CutPrefix(subject, "ConfigMap/")
	switch _, labeled := n.kube.Labels[subject]; {
	case subject == object:
		f.Evidence = check.Seen("spec", object, "unschedulable: %t", n.kube.Spec.Unschedulable)
	case isMap:
		f.Evidence = n.listed(cluster.ConfigMaps, "ConfigMap %s exists: %t", name, n.maps[name] != nil)
	case isResource, isDevice(subject):
		f.Evidence = check.Seen("status", object, "%s: allocatable %d, capacity %d", subject,
			node.Resources(n.kube.Status.Allocatable)[subject], capacity)
	case labeled, strings.HasPrefix(subject, "nvidia.com/"):
		f.Evidence = label(n.kube, subject)
		f.Since = f.Evidence.Time
	default:
		f.Evidence = label(n.kube, labelProduct)
	}
	return f
}

// relabel returns the command that changes labels of the node, such as "a=b" or "a-".
func (n *nodeReport) relabel(change string) string {
	return fmt.Sprintf("kubectl label node %s %s", n.kube.Name, change)
}

func (n *nodeReport) podsHere() string {
	return "kubectl get pods -A -o wide --field-selector spec.nodeName=" + n.kube.Name
}

func (n *nodeReport) ready() {
	subject := "Node/" + n.kube.Name
	for _, c := range n.kube.Status.Conditions {
		if c.Type != corev1.NodeReady || c.Status == corev1.ConditionTrue {
			continue
		}
		severity := check.Error
		if n.before {
			severity = check.Warning // the operands start when the node becomes ready
		}
		f := check.Finding{Check: nodeReady, Subject: subject, Since: c.LastTransitionTime.Time}
		say(&f, severity, "kubectl describe node "+n.kube.Name,
			"the kubelet is not ready%s", because(c.Reason, c.Message))
		f.Evidence = check.Seen("condition", subject, "Ready=%s", c.Status).At(c.LastHeartbeatTime.Time)
		n.add(f)
		return
	}
	switch {
	case !n.kube.Spec.Unschedulable:
	case n.upgrading():
		n.report(nodeReady, check.Note, subject, "",
			"the node is cordoned by the driver upgrade, which uncordons it when it ends")
	default:
		n.report(nodeReady, check.Note, subject, "kubectl uncordon "+n.kube.Name,
			"the node is cordoned: it accepts only DaemonSet pods")
	}
}

// upgrading reports whether a driver upgrade of the node is in progress, or failed and resumes when the pod is fixed.
func (n *nodeReport) upgrading() bool {
	return !slices.Contains([]string{"", "upgrade-required", "upgrade-done"}, n.kube.Labels[labelUpgrade]) &&
		n.noDriverPod() == ""
}

// forMachines reports whether the node is for virtual machines. There, resources are named after the GPU model. An
// invalid label counts as absent. Source: gpu-operator controllers/state_manager.go, getWorkloadConfig.
func (v *view) forMachines(n *corev1.Node) bool {
	machines, workload := []string{"vm-passthrough", "vm-vgpu"}, n.Labels[labelWorkload]
	if workload != "container" && !slices.Contains(machines, workload) {
		workload, _ = v.get("sandboxWorkloads.defaultWorkload").(string)
	}
	return v.is("sandboxWorkloads.enabled") && slices.Contains(machines, workload)
}

func (n *nodeReport) upgrade() {
	state, none := n.kube.Labels[labelUpgrade], n.noDriverPod()
	say := func(s check.Severity, fix, format string, args ...any) {
		n.report(driverUpgrade, s, labelUpgrade, fix, format, args...)
	}
	switch {
	case state == "":
	case state == "upgrade-done":
		say(check.OK, "", "no driver upgrade is in progress")
	case none != "":
		say(check.Warning, n.relabel(labelUpgrade+"-"),
			"%s is left over: %s, and the upgrade controller ignores nodes without a driver pod", state, none)
	case state == "upgrade-failed":
		say(check.Error, n.podsHere(),
			"the driver upgrade failed: fix the driver pod, then remove the state label or restart the pod")
	case n.kube.Labels[labelSkip] == "true":
		say(check.Note, n.relabel(labelSkip+"-"), "%s, and the label %s keeps the node out of driver upgrades",
			state, labelSkip)
	case !strings.HasSuffix(state, "-required"): // the suffix of all steps
		say(check.Unknown, n.operatorLog(), "unknown upgrade state %q", state)
	default:
		n.changing = true
		say(check.Waiting, n.podsHere()+"  # gpuop explain "+state, "a driver upgrade is in progress (%s)", state)
	}
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
	since, requested := labelWritten(n.kube, labelMIGState), labelWritten(n.kube, LabelMIG)
	say := func(s check.Severity, fix, format string, args ...any) {
		n.report(node.MIGState, s, labelMIGState, fix, format, args...)
	}
	n.changing = n.changing || state == "pending" || state == "rebooting"
	switch {
	case config == "" && state == "",
		state == "" && n.kube.Labels[deployPrefix+"mig-manager"] == "" && n.kube.Labels[labelCapable] == "false":
	case (state == "success" || state == "failed") &&
		requested.After(since) && !since.IsZero() && n.At.Sub(requested) < migReaction:
		n.changing = true
		n.report(node.MIGState, check.Waiting, LabelMIG, n.migLog(),
			"the MIG config %q is requested; the state %s is from the previous change", config, state)
	case state == "success":
		say(check.OK, "", "the MIG manager has applied %q", config)
	case state == "failed":
		say(check.Error, n.migLog(), "the MIG config %q could not be applied: "+
			"a client holds a GPU, the config does not fit the GPUs, or it leaves a GPU out", config)
	case state == "pending" && !since.IsZero() && n.At.Sub(since) > migPatience:
		n.stuck = true
		say(check.Error, n.relabel(LabelMIG+"-")+" && "+n.relabel(LabelMIG+"="+config),
			"the MIG config %q has been pending for longer than the MIG manager waits for pods (%s): it has "+
				"probably given up without changing the state", config, migPatience)
	case state == "pending":
		say(check.Waiting, n.migLog(), "the MIG config %q is pending; MIG manager v0.15.0 leaves the state pending if "+
			"it gives up waiting for a pod", config)
	case state == "rebooting":
		say(check.Waiting, "kubectl get node "+n.kube.Name, "the node restarts to change the MIG mode for %q", config)
	case state == "":
		say(check.Waiting, n.migLog(), "MIG config %q is requested, but the MIG manager has not set a state", config)
	default:
		say(check.Unknown, n.migLog(), "unknown MIG state %q", state)
	}
}

func (v *view) migLog() string { return v.logOf("nvidia-mig-manager", "nvidia-mig-manager") }

// checkOperands checks the operands that the node should run.
func (n *nodeReport) checkOperands() {
	if n.lacks(cluster.DaemonSets) {
		return
	}
	before := n.findings
	n.findings = nil
	done, paused := map[string]bool{}, map[string][]string{} // paused maps values of deploy labels to the labels
	for _, set := range n.sets {
		key := deployPrefix + set.component
		selector := maps.Clone(set.Spec.Template.Spec.NodeSelector)
		wanted := selector[key]
		delete(selector, key)
		switch value := n.kube.Labels[key]; {
		case !matches(selector, n.kube.Labels): // the DaemonSet is for another pool, kernel or workload type
		case value == wanted:
			n.pod(set)
		case done[key]:
		case node.Paused(value):
			paused[value] = append(paused[value], key)
			done[key] = true
		default:
			n.notDeployed(set.component, key)
			done[key] = true
		}
	}
	n.ownDriver()
	if value := n.kube.Labels[labelClient]; node.Paused(value) { // DaemonSets of other programs use this label
		paused[value] = append(paused[value], labelClient)
	}
	for _, value := range slices.Sorted(maps.Keys(paused)) {
		n.paused(value, paused[value])
	}
	n.findings = append(before, foldChain(n.operands, n.findings)...)
}

func (n *nodeReport) notDeployed(component, key string) {
	value, found := n.kube.Labels[key]
	f := check.Finding{Check: operandState, Subject: key}
	switch {
	case component == "driver" && value == preInstalled:
		n.report(operandState, check.OK, key, "", "the node has its own driver and runs no driver container")
		return
	case value == "false":
		say(&f, check.Note, n.relabel(key+"=true --overwrite"),
			"the label is false: an administrator keeps the operand off the node")
	case found:
		say(&f, check.Warning, n.relabel(key+"-"), "the label is %s, expected true, false or paused-for-…: "+
			"the operator does not correct it, and the operand does not run", shown(n.kube.Labels, key))
	case n.policy == nil || n.kube.Labels[labelPresent] != "true" || n.forMachines(n.kube),
		component == "mig-manager" && n.kube.Labels[labelCapable] != "true",
		component != "mig-manager" && !n.forContainers(component):
		return
	default:
		say(&f, check.Error, n.operatorLog(), "the label is absent: the operator has not assigned the operand to "+
			"the node")
	}
	f = n.own(f)
	n.operands = append(n.operands, operand{component: component, Finding: f})
	n.add(f)
}

// paused reports operands that are paused by the value of their labels, such as paused-for-mig-change. The driver
// manager appends paused-for-driver-upgrade to the value that the label already has.
func (n *nodeReport) paused(value string, keys []string) {
	change, state, wait := "the change", "", ""
	mend := n.relabel(strings.Join(keys, "=true ") + "=true --overwrite")
	switch {
	case strings.Contains(value, "paused-for-driver-upgrade"):
		change, state, mend = "the driver upgrade", n.kube.Labels[labelUpgrade], n.podsHere()
		wait = fmt.Sprintf("kubectl logs -n %s -l app.kubernetes.io/component=nvidia-driver -c k8s-driver-manager "+
			"--tail=100", n.Namespace)
	case value == "paused-for-mig-change" && n.stuck:
		return // mig has reported the stuck change
	case value == "paused-for-mig-change":
		change, state, wait = "the MIG change", n.kube.Labels[labelMIGState], n.migLog()
	case value == "paused-for-vgpu-change":
		change, state = "the vGPU change", n.kube.Labels[labelVGPUState]
	}
	also := ""
	if len(keys) > 1 {
		also = fmt.Sprintf("; %d operands are paused this way", len(keys))
	}
	if slices.Contains([]string{"success", "failed", "upgrade-failed"}, state) {
		n.report(node.OperandPaused, check.Error, keys[0], mend,
			"the label is %s, but %s has ended (%s): nothing resumes the operand%s", value, change, state, also)
		return
	}
	n.changing = true
	n.report(node.OperandPaused, check.Waiting, keys[0], wait,
		"the label is %s: the pod is paused until %s ends%s", value, change, also)
}

func (n *nodeReport) pod(set operandSet) {
	if n.lacks(cluster.Pods) {
		return
	}
	var l operand
	isOwner := func(o metav1.OwnerReference) bool { return o.Kind == "DaemonSet" && o.Name == set.Name }
	for _, p := range n.operandPods {
		// a terminating pod may already have a replacement
		if slices.ContainsFunc(p.OwnerReferences, isOwner) && (l.pod == nil || l.pod.DeletionTimestamp != nil) {
			l = podStateOf(p)
		}
	}
	l.component = set.component
	if set.Name == "nvidia-device-plugin-mps-control-daemon" {
		l.component = mpsDaemon
	}
	l.Check, l.Subject = operandState, l.component
	switch {
	case l.pod == nil:
		say(&l.Finding, check.Waiting, set.describe(), "the node has no pod of this operand")
		l.Evidence = n.listed(cluster.Pods, "no pod of DaemonSet/%s on %s", set.Name, n.kube.Name)
		if taint := blocked(&l.Finding, set, n.kube); taint != "" {
			l.Reason = fmt.Sprintf("the node has the taint %s, which DaemonSet/%s does not tolerate", taint, set.Name)
		} else {
			n.refused(&l.Finding, set)
		}
	case l.unstarted:
		n.sandbox(&l)
	case l.component == "operator-validator":
		n.validated(&l)
	case l.component == "driver":
		n.driverSystem(&l)
		n.driverLog(&l)
	case l.component == "device-plugin" && l.blames == "":
		l.blames = mpsDaemon // with MPS, the plugin waits for the daemon
	}
	if strings.HasPrefix(l.Cause, "image ") {
		if e := n.event("Pod", l.pod.Name, "Failed"); e != nil && strings.Contains(e.Message, "pull image") {
			l.Evidence = evidenceOf(e)
		}
	}
	n.operands = append(n.operands, l)
	n.add(l.Finding)
}

var imageSystem = regexp.MustCompile(`:[^/]*-([a-z]+)([0-9][0-9.]*)$`)

// driverSystem explains a failed driver container whose image is for another operating system. On OpenShift, images are
// not compared, because the driver toolkit builds the driver.
func (n *nodeReport) driverSystem(l *operand) {
	os := systemOf(n.kube)
	built := imageSystem.FindStringSubmatch(image(l.pod, "nvidia-driver-ctr"))
	if l.Severity != check.Error || built == nil || os.id == "" || os.id == "rhcos" || built[1] == os.id &&
		(strings.HasPrefix(os.version, built[2]) || strings.HasPrefix(built[2], os.version)) {
		return
	}
	l.Reason = fmt.Sprintf("its image is for %s%s, but the node runs %s: %s", built[1], built[2], os, l.Reason)
	l.Fix = driverForEachSystem(n.kube.Name)
}

// mpsDaemon is the component of the MPS control daemon, whose DaemonSet has the deploy label of the device plugin.
const mpsDaemon = "mps-control-daemon"

func isBroken(l operand) bool { return l.Severity == check.Error || l.Severity == check.Waiting }

// sandboxPatience is how long the kubelet may take to create a pod's sandbox.
const sandboxPatience = 5 * time.Minute

// sandbox explains why a pod has no sandbox. Often the runtime has no handler for the RuntimeClass, which the toolkit
// installs.
func (n *nodeReport) sandbox(l *operand) {
	for _, volume := range l.pod.Spec.Volumes {
		m := volume.ConfigMap
		if m == nil || *cmp.Or(m.Optional, new(bool)) || n.maps[m.Name] != nil || n.lacks(cluster.ConfigMaps) {
			continue
		}
		say(&l.Finding, check.Error, "kubectl get configmaps -n "+n.Namespace,
			"%s: it mounts ConfigMap/%s, which does not exist in namespace %s", l.Reason, m.Name, n.Namespace)
		l.Evidence = n.listed(cluster.ConfigMaps, "no %s among the %d ConfigMaps in namespace %s",
			m.Name, len(n.maps), n.Namespace)
		return
	}
	class := *cmp.Or(l.pod.Spec.RuntimeClassName, new(string))
	runsToo := func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodRunning && *cmp.Or(p.Spec.RuntimeClassName, new(string)) == class
	}
	isBrokenToolkit := func(o operand) bool { return o.component == "container-toolkit" && isBroken(o) }
	var d check.Finding
	e := n.event("Pod", l.pod.Name, "FailedCreatePodSandBox", "FailedMount", "FailedAttachVolume")
	isKnown := e != nil && n.diagnose(&d, e.Message, evidenceOf(e), sandboxes)
	switch toolkit := slices.ContainsFunc(n.operands, isBrokenToolkit) && class != ""; {
	case isKnown && (!toolkit || !strings.HasPrefix(d.Cause, "handler ")):
		reason := l.Reason
		n.diagnose(&l.Finding, e.Message, evidenceOf(e), sandboxes)
		l.Reason = reason + ": " + d.Reason
	case class == "":
	case toolkit:
		l.blames = "container-toolkit"
		l.Reason += ": it waits for container-toolkit to set up the RuntimeClass " + class + " in the container runtime"
	case slices.ContainsFunc(n.operandPods, runsToo):
		l.Fix += "  # see its events"
		l.Reason += fmt.Sprintf(", but other pods with the RuntimeClass %s run: "+
			"probably a volume or the network is missing", class)
	default:
		l.Fix += "  # see its events; on the node, sudo gpuop node checks the runtime's configuration"
		l.Reason += fmt.Sprintf(": the container runtime probably has no handler for RuntimeClass %s, "+
			"or has not been restarted since the handler was added", class)
		if n.At.Sub(l.Since) > sandboxPatience {
			l.Severity = check.Error
		}
	}
}

// validated explains why a validator waits: the newest pod that its init container started has not succeeded.
func (n *nodeReport) validated(l *operand) {
	var newest *corev1.Pod
	app := strings.Replace(l.in, "validation", "validator", 1)
	for _, p := range n.operandPods {
		if strings.HasSuffix(p.Labels["app"], app) && p.Status.Phase != corev1.PodSucceeded &&
			(newest == nil || newest.CreationTimestamp.Before(&p.CreationTimestamp)) {
			newest = p
		}
	}
	if newest == nil || l.in == "" {
		return
	}
	s := podStateOf(newest)
	l.Reason = fmt.Sprintf("init container %s waits for the pod %s: %s", l.in, newest.Name, s.Reason)
	l.Evidence = s.Evidence
	if s.Severity == check.Error {
		l.Severity, l.Fix, l.blames = s.Severity, s.Fix, ""
	}
}

// ownDriver inserts a finding about a missing driver at the front, if operands wait for the driver and no DaemonSet
// installs it. If the driver's deploy label is the reason, the finding replaces those about the label.
func (n *nodeReport) ownDriver() {
	waits := slices.IndexFunc(n.operands, func(l operand) bool { return l.blames == "driver" && isBroken(l) })
	isDriver := func(l operand) bool { return l.component == "driver" && (l.pod != nil || isBroken(l)) }
	if waits < 0 || n.policy == nil || slices.ContainsFunc(n.operands, isDriver) {
		return
	}
	f := check.Finding{Check: operandState, Severity: check.Error, Subject: "driver", Fix: n.operatorLog(),
		Since: n.operands[waits].Since, Evidence: label(n.kube, labelDriver)}
	why := n.noDriverPod()
	f.Reason = fmt.Sprintf("%s, so the node needs its own driver, but %s finds none", why, n.operands[waits].component)
	switch isLabel := strings.HasPrefix(why, labelDriver); {
	case isLabel:
		f.Fix = n.relabel(labelDriver + "=true --overwrite  # to install the operator's driver; " +
			"sudo gpuop node checks the node's own driver")
		n.findings = slices.DeleteFunc(n.findings, func(o check.Finding) bool { return o.Subject == labelDriver })
	case why != "":
		f.Fix, f.Evidence = "sudo gpuop node  # on "+n.kube.Name, n.setting("driver.enabled")
	default:
		f.Reason = "no DaemonSet of the driver selects the node" + n.unlike("driver")
	}
	f = n.own(f)
	n.findings = slices.Insert(n.findings, 0, f)
	n.operands = slices.Insert(n.operands, 0, operand{component: "driver", Finding: f})
}

// unlike describes the labels that the DaemonSets of a component select, and that differ on the node.
func (n *nodeReport) unlike(component string) (terms string) {
	for _, set := range n.sets {
		selector := set.Spec.Template.Spec.NodeSelector
		for _, key := range slices.Sorted(maps.Keys(selector)) {
			if set.component == component && n.kube.Labels[key] != selector[key] {
				terms += fmt.Sprintf("; DaemonSet/%s selects %s=%s, but on the node the label is %s",
					set.Name, key, selector[key], shown(n.kube.Labels, key))
			}
		}
	}
	return terms
}

// firstBroken returns the broken operand that causes others to wait, or nil if no operand is broken.
func firstBroken(operands []operand) *operand {
	i := slices.IndexFunc(operands, isBroken)
	if i < 0 {
		return nil
	}
	// the first one can wait for a later one: the validator's last step waits for the device plugin
	for range operands {
		isBlamed := func(l operand) bool { return l.component == operands[i].blames && isBroken(l) }
		if at := slices.IndexFunc(operands, isBlamed); at >= 0 {
			i = at
		}
	}
	return &operands[i]
}

func (n *nodeReport) resources() {
	if n.policy == nil && len(n.GPUClusters) > 0 {
		return // DRA uses ResourceSlices, and needs no GPU Feature Discovery
	}
	follows, missing := n.unsettled(), false
	for _, f := range node.Check(n.kube) {
		f.Fix = strings.ReplaceAll(f.Fix, "-n gpu-operator", "-n "+n.Namespace)
		missing = missing || f.Check == node.NoResource
		none := node.Resources(n.kube.Status.Allocatable)[f.Subject] == 0
		switch {
		case f.Check == node.OperandPaused, f.Subject == labelMIGState:
			continue // checkOperands and mig report these
		case f.Check == node.NoLabels && (n.forMachines(n.kube) || !n.is("gfd.enabled")):
			continue // GPU Feature Discovery is not meant to run on this node
		case follows && none && f.Check != node.MIGState:
			continue // a broken operand can be the cause
		case f.Check == node.CapacityDiffers:
			f.Fix = n.logOf("nvidia-device-plugin-daemonset", "nvidia-device-plugin") + "  # names the XID"
			if none {
				f.Say(check.Error,
					"none of %d is allocatable: the device plugin is not running, or every GPU is unhealthy",
					node.Resources(n.kube.Status.Capacity)[f.Subject])
			}
		}
		n.add(f)
	}
	if !n.forMachines(n.kube) {
		n.predicted(follows, missing)
	}
}

// withoutPlace returns a finding with the evidence and without its place in a file.
func withoutPlace(f check.Finding, evidence check.Evidence) check.Finding {
	f.File, f.Line, f.Column, f.Text, f.Evidence = "", 0, 0, "", evidence
	return f
}

// unsettled reports whether a change or a broken operand explains wrong resources.
func (n *nodeReport) unsettled() bool {
	makers := []string{"driver", "device-plugin", "gpu-feature-discovery", mpsDaemon}
	return n.changing || slices.ContainsFunc(n.operands,
		func(l operand) bool { return isBroken(l) && slices.Contains(makers, l.component) })
}
