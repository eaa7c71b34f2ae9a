package judge

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
)

// symptom recognizes a cause in the message of an event or in a log. The messages of events are those of
// kube-controller-manager, the kubelet, containerd and CRI-O.
type symptom struct {
	cause   string
	message *regexp.Regexp
	reason  string // %s stands for the text of the group that matched in message
	next    string // the suggested fix; NAMESPACE stands for the operator's namespace
}

// refusals lists the causes for which the API server rejects the pods of a DaemonSet.
var refusals = []symptom{
	{"pod-security", regexp.MustCompile(`violates PodSecurity "([^"]+)"`),
		"Pod Security admission rejects the pods: the namespace enforces %s, but the operands are privileged",
		"kubectl label --overwrite namespace NAMESPACE pod-security.kubernetes.io/enforce=privileged"},
	{"quota", regexp.MustCompile(`insufficient quota to match these scopes: (.*)`),
		"no ResourceQuota of the namespace allows the pods' PriorityClass: %s",
		"kubectl get resourcequotas -n NAMESPACE  # GKE needs a ResourceQuota for system-node-critical: " +
			"gpuop values gen gke-cos prints it"},
	{"quota", regexp.MustCompile(`exceeded quota: ([^,]+)`), "the ResourceQuota %s of the namespace is used up",
		"kubectl describe resourcequotas -n NAMESPACE"},
	{"runtime-class", regexp.MustCompile(`RuntimeClass "([^"]+)" not found`),
		"the pods use the RuntimeClass %s, which does not exist",
		"kubectl get runtimeclasses; kubectl logs -n NAMESPACE -l app=gpu-operator --tail=100"},
	{"webhook", regexp.MustCompile(`admission webhook "([^"]+)" denied`), "the admission webhook %s rejects the pods",
		"kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations"},
	{"refused", regexp.MustCompile(``), "the API server rejects the pods",
		"kubectl get events -n NAMESPACE --field-selector reason=FailedCreate"},
}

// sandboxes lists the causes for which a pod has no sandbox.
var sandboxes = []symptom{
	{"handler", regexp.MustCompile(`no runtime for "([^"]+)" is configured|unknown runtime handler "?([^"\s]+)|` +
		`failed to find runtime handler "?([^"\s]+)|runtime handler "?([^"\s]+)"? not (?:supported|found)`),
		"the node's container runtime has no handler named %s",
		"sudo gpuop node  # on the node: reads the runtime's configuration"},
	{"network", regexp.MustCompile(`(?i)network for (?:pod )?sandbox|network plugin|plugin type="|\bcni\b`),
		"the node's network plugin could not set up the pod's network", "kubectl get pods -n kube-system -o wide"},
	{"mount", regexp.MustCompile(`(?i)MountVolume|unable to attach or mount volumes`),
		"a volume of the pod is missing", "kubectl get configmaps,secrets -n NAMESPACE"},
	{"sandbox", regexp.MustCompile(``), "the kubelet cannot create the pod's sandbox",
		"kubectl get events -n NAMESPACE --field-selector type=Warning"},
}

// event returns the newest event about the named object in the operator's namespace that has one of the reasons, or
// nil.
func (v *view) event(kind, name string, reasons ...string) (newest *corev1.Event) {
	for i := range v.Events {
		e := &v.Events[i]
		o := e.InvolvedObject
		if o.Kind == kind && o.Name == name && cmp.Or(o.Namespace, e.Namespace) == v.Namespace &&
			slices.Contains(reasons, e.Reason) && (newest == nil || newest.LastTimestamp.Before(&e.LastTimestamp)) {
			newest = e
		}
	}
	return newest
}

func evidenceOf(e *corev1.Event) check.Evidence {
	return check.Seen("event", e.InvolvedObject.Kind+"/"+e.InvolvedObject.Name, "%s",
		strings.TrimSpace(e.Reason+": "+e.Message)).At(e.LastTimestamp.Time)
}

// diagnose makes a finding an error with the reason, fix and cause of the first symptom that matches the text. It
// returns false if no symptom matches. Texts with the same root cause have the same cause.
func (v *view) diagnose(f *check.Finding, text string, evidence check.Evidence, symptoms []symptom) bool {
	for _, s := range symptoms {
		if m := s.message.FindStringSubmatch(text); m != nil {
			what := strings.Trim(cmp.Or(m[1:]...), `"`)
			f.Severity, f.Cause, f.Evidence = check.Error, s.cause+" "+what, evidence
			f.Reason = strings.TrimSpace(strings.Replace(s.reason, "%s", what, 1))
			f.Fix = strings.ReplaceAll(s.next, "NAMESPACE", v.Namespace)
			return true
		}
	}
	return false
}

// refused explains why the API server rejects the pods of a DaemonSet, according to its newest event FailedCreate. It
// returns false if there is no such event.
func (v *view) refused(f *check.Finding, set operandSet) bool {
	e := v.event("DaemonSet", set.Name, "FailedCreate")
	return e != nil && v.diagnose(f, e.Message, evidenceOf(e), refusals)
}

// addRefusals adds a finding for each DaemonSet that lacks pods because the API server rejects them. If a finding about
// the namespace already names the cause, it gets the event as evidence instead.
func addRefusals(v *view, findings []check.Finding) []check.Finding {
	for _, set := range v.sets {
		f := check.Finding{Check: podsRefused, Subject: "DaemonSet/" + set.Namespace + "/" + set.Name}
		if set.Status.CurrentNumberScheduled >= set.Status.DesiredNumberScheduled || !v.refused(&f, set) {
			continue
		}
		kind, _, _ := strings.Cut(f.Cause, " ")
		same := map[string]*check.Check{"pod-security": podSecurity, "quota": priorityQuota}[kind]
		isSame := func(f check.Finding) bool { return f.Severity == check.Error && f.Check == same }
		if i := slices.IndexFunc(findings, isSame); i >= 0 {
			findings[i].Evidence = f.Evidence
		} else {
			findings = append(findings, f)
		}
	}
	return findings
}

// These are parts of fixes.
const (
	newerDriver  = "gpuop explain driver.version  # a newer driver supports newer kernels, compilers and GPUs"
	repositories = "gpuop explain driver.repoConfig  # the driver container needs the packages of the node's kernel; " +
		"or install the driver on the node"
)

// driverSymptoms are known errors in the driver pod's log. The messages are those of nvidia-installer, modprobe, the
// kernel, and the scripts of NVIDIA's driver container and driver manager. Each expression matches within one line.
var driverSymptoms = []symptom{
	{"nouveau", regexp.MustCompile(`Nouveau kernel driver is currently in use`), "the nouveau driver holds the GPUs",
		"echo 'blacklist nouveau' | sudo tee /etc/modprobe.d/blacklist-nouveau.conf  # on the node; " +
			"then rebuild the initramfs and reboot"},
	{"secure-boot", regexp.MustCompile(`Key was rejected by service|Required key not available|` +
		`unsigned module is rejected|not signed by a key that is trusted|` +
		`Kernel module load error: Operation not permitted`), "Secure Boot rejects the unsigned kernel module",
		"helm upgrade … --set driver.usePrecompiled=true  # these drivers are signed; " +
			"or disable Secure Boot on the node"},
	{"selinux", regexp.MustCompile(`could not insert '(nvidia\S*)': Permission denied`),
		"SELinux prevents the driver container from loading the module %s",
		"sudo ausearch -m avc -ts recent  # on the node"},
	{"open-module", regexp.MustCompile(`requires use of the NVIDIA open kernel modules`),
		"the GPU needs the open kernel module", "helm upgrade … --set driver.kernelModuleType=open"},
	{"in-use", regexp.MustCompile(`driver is in use|unable to unload.* driver`),
		"the old driver cannot be unloaded because it is in use",
		"sudo lsof /dev/nvidia*; lsmod | grep nvidia  # on the node: stop what uses the driver, or reboot"},
	{"precompiled", regexp.MustCompile(`Unable to locate package (linux-objects-nvidia-\S+)`),
		"there is no precompiled driver for the node's kernel: no package %s",
		"helm upgrade … --set driver.usePrecompiled=false"},
	{"network", regexp.MustCompile(`Could not resolve host: (\S+)|Temporary failure resolving '([^']+)'|` +
		`Failed to fetch (\S+)|Failed to download metadata for repo '([^']+)'`),
		"the driver container cannot download packages: %s", repositories},
	{"headers", regexp.MustCompile(`Unable to locate package (linux-headers-\S+)|` +
		`(?:No match for argument|Unable to find a match): (kernel-\S+)|` +
		`()Could not resolve Linux kernel version|Could not locate Linux kernel version string`),
		"the driver container finds no headers for the node's kernel %s", repositories},
	{"kernel", regexp.MustCompile(`could not insert '?nvidia'?: ` +
		`(Exec format error|Invalid module format|Unknown symbol[^\n]*)`),
		"the kernel module does not fit the node's kernel: %s", newerDriver},
	{"no-device", regexp.MustCompile(`could not insert '?nvidia'?: No such device|No NVIDIA GPU device is present`),
		"the driver finds no GPU that it supports", newerDriver},
	{"build", regexp.MustCompile(`performing the step: "Building kernel modules"|` +
		`[Uu]nable to build the NVIDIA kernel module`),
		"the kernel module does not compile for the node's kernel", newerDriver},
}

// driverLog explains a failing driver pod from its log. Unless the finding is an error, pods without restarts are
// skipped because they may still succeed.
func (n *nodeReport) driverLog(l *operand) {
	statuses := slices.Concat(l.pod.Status.InitContainerStatuses, l.pod.Status.ContainerStatuses)
	restarted := slices.ContainsFunc(statuses, func(c corev1.ContainerStatus) bool { return c.RestartCount > 0 })
	if !isBroken(*l) || l.Severity != check.Error && !restarted {
		return
	}
	for i := range driverSymptoms {
		for line := range strings.Lines(n.DriverLogs[l.pod.Name]) {
			evidence := check.Seen("log", "Pod/"+l.pod.Name, "%s", strings.TrimSpace(line))
			if reason := l.Reason; n.diagnose(&l.Finding, line, evidence, driverSymptoms[i:i+1]) {
				l.Reason += ": " + reason
				return
			}
		}
	}
}
