package judge

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
)

// customResources checks the operator's custom resources.
func customResources(v *view) []check.Finding {
	var findings []check.Finding
	policies := v.Policies()
	noCRD := v.why(cluster.ClusterPolicies) == cluster.Absent
	if len(policies)+len(v.GPUClusters) == 0 &&
		(noCRD || !v.lacks(cluster.ClusterPolicies) && !v.lacks(cluster.GPUClusters)) {
		f := check.Finding{Check: clusterPolicy, Subject: "ClusterPolicy",
			Evidence: v.listed(cluster.ClusterPolicies, "0 ClusterPolicies, 0 GPUClusters")}
		say(&f, check.Error, "gpuop values gen", "none exists: the GPU Operator is not installed")
		if !noCRD && (v.lacks(cluster.Pods) || v.newestOperator() != nil) {
			say(&f, check.Error, "helm get values -a gpu-operator -n "+v.Namespace+"  # clusterPolicy.deployCR",
				"no ClusterPolicy or GPUCluster exists: the operator installs nothing")
		}
		findings = append(findings, f)
	}
	for i, p := range policies {
		f := v.resource(clusterPolicy, "ClusterPolicy", p)
		if i > 0 {
			say(&f, check.Warning, "kubectl delete clusterpolicy "+p.GetName(),
				"the operator uses the older ClusterPolicy/%s and ignores this one", policies[0].GetName())
		}
		findings = append(findings, f)
	}
	for i := range v.GPUClusters {
		f := v.resource(gpuCluster, "GPUCluster", &v.GPUClusters[i])
		if len(policies) > 0 {
			say(&f, check.Error, "kubectl delete gpucluster "+v.GPUClusters[i].GetName()+"  # or the ClusterPolicy",
				"cannot be combined with ClusterPolicy/%s: the operator ignores both", policies[0].GetName())
		}
		findings = append(findings, f)
	}
	const setting = "driver.nvidiaDriverCRD.enabled"
	isUsed := v.is(setting)
	for i := range v.NVIDIADrivers {
		f := v.resource(nvidiaDriver, "NVIDIADriver", &v.NVIDIADrivers[i])
		if v.policy != nil && !isUsed {
			say(&f, check.Warning, "helm upgrade … --set "+setting+"=true",
				"no effect: the ClusterPolicy does not use NVIDIADrivers (driver.useNvidiaDriverCRD is not true)")
			f.Evidence = v.setting(setting)
		}
		findings = append(findings, f)
	}
	if v.policy != nil && isUsed && len(v.NVIDIADrivers) == 0 &&
		(!v.lacks(cluster.NVIDIADrivers) || v.why(cluster.NVIDIADrivers) == cluster.Absent) {
		findings = append(findings, check.Finding{Check: nvidiaDriver, Severity: check.Error, Subject: "NVIDIADriver",
			Reason:   "the ClusterPolicy uses NVIDIADriver resources, but none exists: no node gets a driver",
			Fix:      "helm upgrade … --set driver.nvidiaDriverCRD.deployDefaultCR=true",
			Evidence: v.listed(cluster.NVIDIADrivers, "0 NVIDIADrivers")})
	}
	return findings
}

// newestOperator returns the newest pod of the operator, or nil.
func (v *view) newestOperator() (newest *corev1.Pod) {
	for i := range v.Pods {
		p := &v.Pods[i]
		if p.Namespace == v.Namespace && p.Labels["app"] == "gpu-operator" &&
			(newest == nil || newest.CreationTimestamp.Before(&p.CreationTimestamp)) {
			newest = p
		}
	}
	return newest
}

// operator checks the newest pod of the operator. A missing pod is an error if a ClusterPolicy or GPUCluster exists.
func operator(v *view) []check.Finding {
	var f check.Finding
	newest := v.newestOperator()
	switch {
	case v.lacks(cluster.Pods):
		return nil
	case newest != nil:
		f = podStateOf(newest).Finding
		f.Cause = ""
	case len(v.ClusterPolicies)+len(v.GPUClusters) == 0:
		return nil
	default:
		say(&f, check.Error, "kubectl get deployment -n "+v.Namespace+" gpu-operator", "the operator is not running: "+
			"namespace %s has no pod with the label app=gpu-operator, so the custom resources have no effect",
			v.Namespace)
		f.Evidence = v.listed(cluster.Pods, "none of %d pods has the label app=gpu-operator", len(v.Pods))
	}
	f.Check, f.Subject = operatorPod, "gpu-operator"
	return []check.Finding{f}
}

// nfdPods is the command that shows the pods of Node Feature Discovery.
const nfdPods = "kubectl get pods -A -l app.kubernetes.io/name=node-feature-discovery"

// resource checks a custom resource by its state and conditions.
func (v *view) resource(id *check.Check, kind string, u *unstructured.Unstructured) check.Finding {
	f := check.Finding{Check: id, Subject: kind + "/" + u.GetName()}
	state, _, _ := unstructured.NestedString(u.Object, "status", "state")
	ready, failed := condition(u, "Ready"), condition(u, "Error")
	f.Evidence = check.Seen("status", f.Subject, "state=%s", state)
	for _, c := range []metav1.Condition{ready, failed} {
		if c.Reason != "" || c.Message != "" {
			f.Evidence.Text += fmt.Sprintf(", %s: %s", c.Reason, c.Message)
			f.Evidence.Time, f.Since = c.LastTransitionTime.Time, c.LastTransitionTime.Time
		}
	}
	describe := fmt.Sprintf("kubectl describe %s %s", strings.ToLower(kind), u.GetName())
	switch {
	case failed.Reason == "ConflictingNodeSelector": // operators before v26.7.0 do not update the state
		const fix = "kubectl get nvidiadrivers -o custom-columns=NAME:.metadata.name,SELECTOR:.spec.nodeSelector"
		say(&f, check.Error, fix, "the operator rejects it (its state may be out of date): %s", failed.Message)
	case state == "ready" && ready.Reason == "NFDLabelsMissing":
		say(&f, check.Error, nfdPods, "the state is ready, but no node has labels of Node Feature Discovery, so the "+
			"operator has found no GPU")
	case state == "ready" && ready.Reason == "NoGPUNodes":
		say(&f, check.Warning, "kubectl get nodes -L "+nfdPrefix+"pci-10de.present,"+labelPresent,
			"the state is ready, but the operator found no node with a GPU")
	case state == "ready":
		f.Reason = "the state is ready"
	case state == "notReady":
		say(&f, check.Waiting, describe, "the state is notReady%s", because("", failed.Message))
		if failed.Reason == "ReconcileFailed" || failed.Reason == "PrerequisiteNotMet" {
			f.Severity = check.Error
		}
	case state == "ignored", state == "disabled":
		say(&f, check.Warning, describe, "the state is %s: the operator does not apply the resource", state)
	case state == "":
		say(&f, check.Waiting, v.operatorLog(), "the resource has no state: the operator has not processed it")
		f.Since = u.GetCreationTimestamp().Time
	default:
		say(&f, check.Unknown, describe, "the state is %q, expected ready", state)
	}
	return f
}

// condition returns the condition of the given type if its status is True, and a zero Condition otherwise.
func condition(u *unstructured.Unstructured, kind string) metav1.Condition {
	var of struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &of)
	if err == nil && meta.IsStatusConditionTrue(of.Status.Conditions, kind) {
		return *meta.FindStatusCondition(of.Status.Conditions, kind)
	}
	return metav1.Condition{}
}

// gpuNodesFound checks that the cluster has GPU nodes. Before an installation, it warns if there are none. After an
// installation, it also checks for labels of Node Feature Discovery. It warns if GPU nodes or labels are missing, and
// reports an error if both are missing.
func gpuNodesFound(v *view) []check.Finding {
	if v.lacks(cluster.Nodes) {
		return nil
	}
	labeled, gpus, all := 0, len(v.gpu), len(v.Nodes)
	for i := range v.Nodes {
		for key := range v.Nodes[i].Labels {
			if strings.HasPrefix(key, nfdPrefix) {
				labeled++
				break
			}
		}
	}
	f := check.Finding{Check: gpuNodes, Subject: "nodes", Reason: fmt.Sprintf("%d of %d nodes have GPUs", gpus, all),
		Evidence: v.listed(cluster.Nodes, "of %d nodes, %d have a label of NFD, %d have a GPU", all, labeled, gpus)}
	switch {
	case gpus == 0 && v.before:
		say(&f, check.Warning, "install NFD, or kubectl label node NODE "+nfdPrefix+"pci-10de.present=true",
			"no node is labeled as a GPU node by NFD, the operator or a cloud provider: node checks were skipped")
	case gpus == 0 && labeled == 0:
		say(&f, check.Error, nfdPods,
			"none of the %d nodes has a label of Node Feature Discovery, so the operator has found no GPU", all)
	case gpus == 0:
		say(&f, check.Warning, "kubectl get nodes -L "+nfdPrefix+"pci-10de.present", "Node Feature Discovery has "+
			"labeled %d of %d nodes, but found no NVIDIA GPU (PCI vendor 10de)", labeled, all)
	case labeled == 0 && !v.before:
		say(&f, check.Warning, nfdPods, "no node has a label of Node Feature Discovery: the operator cannot find new "+
			"GPU nodes; the %d known ones are unaffected", gpus)
	case v.before && v.Lacks(cluster.Nodes) != nil:
		say(&f, check.Note, complete(cluster.Nodes), "%d of %d listed nodes have GPUs; %s", gpus, all,
			v.Lacks(cluster.Nodes).Detail)
	}
	return []check.Finding{f}
}

// pluginImage matches the images of device plugins.
var pluginImage = regexp.MustCompile(`(^|/)(k8s-device-plugin|nvidia-gpu-device-plugin|nvidia-device-plugin)[^/]*$`)

// registers reports whether a container registers nvidia.com/gpu with the kubelet. The MPS daemon and GPU Feature
// Discovery have the image of the device plugin, and HAMi's plugin has its command in another image.
func registers(c corev1.Container) bool {
	return !strings.Contains(c.Name, "mps-control-daemon") && !strings.Contains(c.Name, "gpu-feature-discovery") &&
		!slices.Contains(c.Command, "gpu-feature-discovery") &&
		(slices.Contains(c.Command, "nvidia-device-plugin") || pluginImage.MatchString(c.Image))
}

// isOperand reports whether a DaemonSet belongs to the operator. Objects in a gathered folder may lack owner
// references, so the namespace and component are checked too.
func (v *view) isOperand(d *appsv1.DaemonSet) bool {
	isOperator := func(o metav1.OwnerReference) bool { return strings.HasPrefix(o.APIVersion, "nvidia.com/") }
	return d.Namespace == v.Namespace && componentOf(d.Spec.Template.Spec.NodeSelector) != "" ||
		slices.ContainsFunc(d.OwnerReferences, isOperator)
}

// devicePlugins checks that no second device plugin is installed.
func devicePlugins(v *view) []check.Finding {
	if v.DaemonSets == nil || !v.before && v.policy == nil {
		return nil
	}
	var findings []check.Finding
	for i := range v.DaemonSets {
		d := &v.DaemonSets[i]
		at := slices.IndexFunc(d.Spec.Template.Spec.Containers, registers)
		if at < 0 || v.isOperand(d) {
			continue
		}
		f := check.Finding{Check: devicePlugin, Subject: "DaemonSet/" + d.Namespace + "/" + d.Name}
		on := check.Count(int(d.Status.DesiredNumberScheduled), "node")
		f.Evidence = check.Seen("spec", f.Subject, "image %s, on %s", d.Spec.Template.Spec.Containers[at].Image, on)
		fix := "kubectl delete daemonset -n " + d.Namespace + " " + d.Name +
			"  # or helm upgrade … --set devicePlugin.enabled=false"
		if d.Namespace == "kube-system" && strings.HasPrefix(d.Name, "nvidia-gpu-device-plugin") { // GKE's
			fix = "create the node pools with --node-labels=gke-no-default-nvidia-gpu-device-plugin=true"
		}
		switch {
		case !v.is("devicePlugin.enabled"):
			f.Reason = "registers nvidia.com/gpu, and devicePlugin.enabled=false"
		case d.Status.DesiredNumberScheduled == 0:
			f.Say(check.Note, "not scheduled on any node")
		default:
			say(&f, check.Error, fix, "registers nvidia.com/gpu on %s in addition to the operator's plugin: "+
				"the kubelet uses the one that registered last", on)
		}
		findings = append(findings, f)
	}
	if len(findings) > 0 || !v.before && v.why(cluster.DaemonSets) != "" {
		return findings
	}
	none := check.Finding{Check: devicePlugin, Subject: "device plugin",
		Reason:   "only the operator's plugin registers nvidia.com/gpu",
		Evidence: v.listed(cluster.DaemonSets, "%d DaemonSets", len(v.DaemonSets))}
	v.partial(&none, cluster.DaemonSets)
	return []check.Finding{none}
}

// partial changes a finding to Unknown if the list that it depends on is incomplete.
func (v *view) partial(f *check.Finding, k cluster.Kind) {
	if m := v.Lacks(k); m != nil {
		say(f, check.Unknown, complete(k), "not found, but the list is incomplete: %s", m.Detail)
	}
}
