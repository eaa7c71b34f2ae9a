package judge

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
)

// diagnosis explains why pods are not created or do not start, according to an event or a log.
type diagnosis struct {
	// cause is the same for all events with the same root cause.
	cause, reason, next string
	evidence            check.Evidence
}

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
		"the node's network plugin could not set up the pod's network",
		"kubectl get pods -n kube-system -o wide"},
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
			slices.Contains(reasons, e.Reason) &&
			(newest == nil || newest.LastTimestamp.Before(&e.LastTimestamp)) {
			newest = e
		}
	}
	return newest
}

func evidenceOf(e *corev1.Event) check.Evidence {
	return check.Seen("event", e.InvolvedObject.Kind+"/"+e.InvolvedObject.Name, "%s",
		strings.TrimSpace(e.Reason+": "+e.Message)).At(e.LastTimestamp.Time)
}

// diagnose returns the diagnosis of the first symptom that matches the text, or nil.
func (v *view) diagnose(text string, evidence check.Evidence, symptoms []symptom) *diagnosis {
	for _, s := range symptoms {
		if m := s.message.FindStringSubmatch(text); m != nil {
			what := strings.Trim(cmp.Or(m[1:]...), `"`)
			return &diagnosis{s.cause + " " + what, strings.Replace(s.reason, "%s", what, 1),
				strings.ReplaceAll(s.next, "NAMESPACE", v.Namespace), evidence}
		}
	}
	return nil
}

// explain makes a finding an error with the reason, fix, cause and evidence of the diagnosis.
func (d *diagnosis) explain(f *check.Finding) {
	f.Severity, f.Reason, f.Fix, f.Cause, f.Evidence = check.Error, d.reason, d.next, d.cause, d.evidence
}

// refused returns why the API server rejects the pods of a DaemonSet, according to its newest event FailedCreate. It
// returns nil if there is no such event.
func (v *view) refused(set operandSet) *diagnosis {
	if e := v.event("DaemonSet", set.Name, "FailedCreate"); e != nil {
		return v.diagnose(e.Message, evidenceOf(e), refusals)
	}
	return nil
}

// addRefusals adds a finding for each DaemonSet that lacks pods because the API server rejects them. If a finding about
// the namespace already names the cause, it gets the event as evidence instead.
func addRefusals(v *view, findings []check.Finding) []check.Finding {
	for _, set := range v.sets {
		d := v.refused(set)
		if d == nil || set.Status.CurrentNumberScheduled >= set.Status.DesiredNumberScheduled {
			continue
		}
		kind, _, _ := strings.Cut(d.cause, " ")
		same := map[string]*check.Check{"pod-security": podSecurity, "quota": priorityQuota}[kind]
		if i := slices.IndexFunc(findings, func(f check.Finding) bool {
			return f.Severity == check.Error && f.Check == same
		}); i >= 0 {
			findings[i].Evidence = d.evidence
			continue
		}
		f := check.Finding{Check: podsRefused, Subject: "DaemonSet/" + set.Namespace + "/" + set.Name}
		d.explain(&f)
		findings = append(findings, f)
	}
	return findings
}
