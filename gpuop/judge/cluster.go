package judge

import (
	"cmp"
	"fmt"
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
	switch {
	case len(policies) > 0 || len(v.GPUClusters) > 0:
	case v.why(cluster.ClusterPolicies) == cluster.Absent:
		findings = append(findings, check.Finding{
			Check: clusterPolicy, Severity: check.Error, Subject: "ClusterPolicy",
			Reason: "the CustomResourceDefinition is not installed: " +
				"the GPU Operator is not installed in this cluster",
			Fix:      "gpuop values gen",
			Evidence: v.listed(cluster.ClusterPolicies, "not served"),
		})
	case !v.lacks(cluster.ClusterPolicies) && !v.lacks(cluster.GPUClusters):
		f := check.Finding{
			Check: clusterPolicy, Severity: check.Error, Subject: "ClusterPolicy",
			Reason:   "no ClusterPolicy or GPUCluster exists: the operator installs nothing",
			Fix:      "helm get values -a gpu-operator -n " + v.Namespace + "  # clusterPolicy.deployCR",
			Evidence: v.listed(cluster.ClusterPolicies, "0 ClusterPolicies, 0 GPUClusters"),
		}
		if !v.lacks(cluster.Pods) && v.newestOperator() == nil {
			f.Reason = "no ClusterPolicy, no GPUCluster and no pod of the operator exist: " +
				"the GPU Operator is not installed"
			f.Fix = "gpuop values gen"
		}
		findings = append(findings, f)
	}
	for i, p := range policies {
		f := v.resource(clusterPolicy, "ClusterPolicy", p)
		if i > 0 {
			f.Say(check.Warning, "the operator uses the older ClusterPolicy/%s and ignores this one",
				policies[0].GetName())
			f.Fix = "kubectl delete clusterpolicy " + p.GetName()
		}
		findings = append(findings, f)
	}
	for i := range v.GPUClusters {
		f := v.resource(gpuCluster, "GPUCluster", &v.GPUClusters[i])
		if len(policies) > 0 {
			f.Say(check.Error, "cannot be combined with ClusterPolicy/%s: the operator ignores both",
				policies[0].GetName())
			f.Fix = "kubectl delete gpucluster " + v.GPUClusters[i].GetName() + "  # or delete the ClusterPolicy"
		}
		findings = append(findings, f)
	}
	return append(findings, driverResources(v)...)
}

// driverResources checks the NVIDIADrivers, and whether the ClusterPolicy uses them.
func driverResources(v *view) []check.Finding {
	if v.policy == nil && len(v.NVIDIADrivers) == 0 {
		return nil
	}
	var findings []check.Finding
	own := v.is("driver.nvidiaDriverCRD.enabled")
	for i := range v.NVIDIADrivers {
		f := v.resource(nvidiaDriver, "NVIDIADriver", &v.NVIDIADrivers[i])
		if v.policy != nil && !own {
			f.Severity, f.Evidence = check.Warning, v.setting("driver.nvidiaDriverCRD.enabled")
			f.Reason = "no effect: the ClusterPolicy does not use NVIDIADriver resources (driver.useNvidiaDriverCRD " +
				"is not true)"
			f.Fix = "helm upgrade … --set driver.nvidiaDriverCRD.enabled=true"
		}
		findings = append(findings, f)
	}
	if v.policy != nil && own && len(v.NVIDIADrivers) == 0 &&
		(!v.lacks(cluster.NVIDIADrivers) || v.why(cluster.NVIDIADrivers) == cluster.Absent) {
		findings = append(findings, check.Finding{
			Check: nvidiaDriver, Severity: check.Error, Subject: "NVIDIADriver",
			Reason:   "the ClusterPolicy uses NVIDIADriver resources, but none exists: no node gets a driver",
			Fix:      "helm upgrade … --set driver.nvidiaDriverCRD.deployDefaultCR=true",
			Evidence: v.listed(cluster.NVIDIADrivers, "0 NVIDIADrivers"),
		})
	}
	return findings
}

// newestOperator returns the newest pod of the operator, or nil.
func (v *view) newestOperator() *corev1.Pod {
	var newest *corev1.Pod
	for i := range v.Pods {
		p := &v.Pods[i]
		if p.Namespace == v.Namespace && p.Labels["app"] == "gpu-operator" && (newest == nil ||
			newest.CreationTimestamp.Before(&p.CreationTimestamp)) {
			newest = p
		}
	}
	return newest
}

// operator checks the newest pod of the operator. A missing pod is an error if a ClusterPolicy or GPUCluster exists.
func operator(v *view) []check.Finding {
	if v.lacks(cluster.Pods) {
		return nil
	}
	newest := v.newestOperator()
	f := check.Finding{Check: operatorPod, Subject: "gpu-operator"}
	switch {
	case newest != nil:
		s := podStateOf(newest)
		f.Severity, f.Reason, f.Since, f.Fix, f.Evidence = s.Severity, s.Reason, s.Since, s.Fix, s.Evidence
	case len(v.ClusterPolicies) == 0 && len(v.GPUClusters) == 0:
		return nil
	default:
		f.Say(check.Error,
			"the operator is not running: namespace %s has no pod with the label app=gpu-operator, so the custom "+
				"resources have no effect", v.Namespace)
		f.Fix = fmt.Sprintf("kubectl get deployment -n %s gpu-operator", v.Namespace)
		f.Evidence = v.listed(cluster.Pods, "none of %d pods has the label app=gpu-operator", len(v.Pods))
	}
	return []check.Finding{f}
}

// resource checks a custom resource by its state and conditions.
func (v *view) resource(id *check.Check, kind string, u *unstructured.Unstructured) check.Finding {
	f := check.Finding{Check: id, Subject: kind + "/" + u.GetName()}
	state, _, _ := unstructured.NestedString(u.Object, "status", "state")
	ready, failed := condition(u, "Ready"), condition(u, "Error")
	f.Evidence = check.Seen("status", f.Subject, "state=%s", state)
	for _, c := range []metav1.Condition{ready, failed} {
		if c.Reason != "" || c.Message != "" {
			f.Evidence.Text += fmt.Sprintf(", %s: %s", c.Reason, c.Message)
			f.Evidence.Time = c.LastTransitionTime.Time
		}
	}
	describe := fmt.Sprintf("kubectl describe %s %s", strings.ToLower(kind), u.GetName())
	if failed.Reason == "ConflictingNodeSelector" {
		// operators before v26.7.0 do not update the state
		f.Severity, f.Since = check.Error, failed.LastTransitionTime.Time
		f.Reason = "the operator rejects the resource (its state may be out of date): " +
			cmp.Or(failed.Message, failed.Reason)
		f.Fix = "kubectl get nvidiadrivers -o custom-columns=NAME:.metadata.name,SELECTOR:.spec.nodeSelector"
		return f
	}
	switch state {
	case "ready":
		f.Reason, f.Since = "the state is ready", ready.LastTransitionTime.Time
		switch ready.Reason {
		case "NFDLabelsMissing":
			f.Say(check.Error, "the state is ready, but no node has labels of Node Feature Discovery, so the "+
				"operator has found no GPU")
			f.Fix = "kubectl get pods -A -l app.kubernetes.io/name=node-feature-discovery"
		case "NoGPUNodes":
			f.Say(check.Warning, "the state is ready, but the operator found no node with a GPU")
			f.Fix = "kubectl get nodes -L " + nfdPrefix + "pci-10de.present," + labelPresent
		}
	case "notReady":
		f.Severity, f.Since, f.Fix = check.Waiting, failed.LastTransitionTime.Time, describe
		f.Reason = "the state is notReady"
		if failed.Message != "" {
			f.Reason += ": " + failed.Message
		}
		if failed.Reason == "ReconcileFailed" || failed.Reason == "PrerequisiteNotMet" {
			f.Severity = check.Error
		}
	case "ignored":
		f.Severity, f.Fix = check.Warning, describe
		f.Reason = "the state is ignored: the operator uses another resource of this kind"
	case "disabled":
		f.Severity, f.Fix = check.Warning, describe
		f.Reason = "the state is disabled: the operator does not apply the resource"
	case "":
		f.Severity, f.Since = check.Waiting, u.GetCreationTimestamp().Time
		f.Reason = "the resource has no state: the operator has not processed it"
		f.Fix = v.operatorLog()
	default:
		f.Severity, f.Fix = check.Unknown, describe
		f.Reason = fmt.Sprintf("the state is %q, expected ready", state)
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
	if c := meta.FindStatusCondition(of.Status.Conditions, kind); err == nil && c != nil &&
		c.Status == metav1.ConditionTrue {
		return *c
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
	labeled, gpus := 0, len(v.gpu)
	for i := range v.Nodes {
		for key := range v.Nodes[i].Labels {
			if strings.HasPrefix(key, nfdPrefix) {
				labeled++
				break
			}
		}
	}
	f := check.Finding{
		Check: gpuNodes, Subject: "nodes", Reason: fmt.Sprintf("%d of %d nodes have GPUs", gpus, len(v.Nodes)),
		Evidence: v.listed(cluster.Nodes, "of %d nodes, %d have a label %s…, %d have a GPU",
			len(v.Nodes), labeled, nfdPrefix, gpus),
	}
	switch {
	case gpus == 0 && v.before:
		f.Say(check.Warning, "none of %d nodes is labeled as a GPU node by NFD, the operator or a cloud "+
			"provider: node checks were skipped", len(v.Nodes))
		f.Fix = "install NFD, or kubectl label node NODE feature.node.kubernetes.io/pci-10de.present=true"
	case gpus == 0 && labeled == 0:
		f.Say(check.Error,
			"none of the %d nodes has a label of Node Feature Discovery, so the operator has found no GPU",
			len(v.Nodes))
		f.Fix = "kubectl get pods -A -l app.kubernetes.io/name=node-feature-discovery"
	case gpus == 0:
		f.Say(check.Warning,
			"Node Feature Discovery has labeled %d of %d nodes, but found no NVIDIA GPU (PCI vendor 10de)",
			labeled, len(v.Nodes))
		f.Fix = "kubectl get nodes -L " + nfdPrefix + "pci-10de.present"
	case labeled == 0 && !v.before:
		f.Say(check.Warning,
			"no node has a label of Node Feature Discovery: the operator cannot find new GPU nodes; the %d "+
				"known ones are unaffected", gpus)
		f.Fix = "kubectl get pods -A -l app.kubernetes.io/name=node-feature-discovery"
	}
	return []check.Finding{f}
}

// registers reports whether a container registers nvidia.com/gpu with the kubelet.
func registers(c corev1.Container) bool {
	if strings.Contains(c.Name, "mps-control-daemon") {
		return false // the MPS daemon has the image of the device plugin
	}
	if slices.Contains(c.Command, "nvidia-device-plugin") {
		return true // HAMi's plugin has the same command in another image
	}
	image := c.Image[strings.LastIndex(c.Image, "/")+1:]
	for _, name := range []string{"k8s-device-plugin", "nvidia-gpu-device-plugin", "nvidia-device-plugin"} {
		if strings.HasPrefix(image, name) {
			// GPU Feature Discovery uses the same image
			return !slices.Contains(c.Command, "gpu-feature-discovery") &&
				!strings.Contains(c.Name, "gpu-feature-discovery")
		}
	}
	return false
}

// isOperand reports whether a DaemonSet belongs to the operator. Objects in a gathered folder may lack owner
// references, so the namespace and component are checked too.
func (v *view) isOperand(d *appsv1.DaemonSet) bool {
	return d.Namespace == v.Namespace && componentOf(d) != "" || slices.ContainsFunc(d.OwnerReferences,
		func(o metav1.OwnerReference) bool { return strings.HasPrefix(o.APIVersion, "nvidia.com/") })
}

// devicePlugins checks that no second device plugin is installed.
func devicePlugins(v *view) []check.Finding {
	if v.DaemonSets == nil || !v.before && v.policy == nil {
		return nil
	}
	none := check.Finding{
		Check: devicePlugin, Subject: "device plugin",
		Reason:   "only the operator's plugin registers nvidia.com/gpu",
		Evidence: v.listed(cluster.DaemonSets, "%d DaemonSets", len(v.DaemonSets)),
	}
	var findings []check.Finding
	for i := range v.DaemonSets {
		d := &v.DaemonSets[i]
		at := slices.IndexFunc(d.Spec.Template.Spec.Containers, registers)
		if v.isOperand(d) || at < 0 {
			continue
		}
		name, on := d.Namespace+"/"+d.Name, check.Count(int(d.Status.DesiredNumberScheduled), "node")
		f := check.Finding{
			Check: devicePlugin, Severity: check.Error, Subject: "DaemonSet/" + name,
			Reason: fmt.Sprintf("registers nvidia.com/gpu on %s in addition to the operator's plugin: "+
				"the kubelet uses the one that registered last", on),
			Fix: "kubectl delete daemonset -n " + d.Namespace + " " + d.Name +
				"  # or helm upgrade … --set devicePlugin.enabled=false",
			Evidence: check.Seen("spec", "DaemonSet/"+name, "image %s, on %s",
				d.Spec.Template.Spec.Containers[at].Image, on),
		}
		switch gke := d.Namespace == "kube-system" && strings.HasPrefix(d.Name, "nvidia-gpu-device-plugin"); {
		case !v.is("devicePlugin.enabled"):
			f.Severity, f.Reason, f.Fix = check.OK, "registers nvidia.com/gpu, and devicePlugin.enabled=false", ""
		case d.Status.DesiredNumberScheduled == 0:
			f.Severity, f.Reason, f.Fix = check.Note, "not scheduled on any node", ""
		case gke:
			f.Fix = "create the node pools with --node-labels=gke-no-default-nvidia-gpu-device-plugin=true"
		}
		findings = append(findings, f)
	}
	if len(findings) > 0 || !v.before && v.Lacks(cluster.DaemonSets) != nil {
		return findings
	}
	v.partial(&none, cluster.DaemonSets)
	return []check.Finding{none}
}

// partial changes a finding to Unknown if the list that it depends on is incomplete.
func (v *view) partial(f *check.Finding, k cluster.Kind) {
	if m := v.Lacks(k); m != nil {
		f.Severity, f.Reason, f.Fix = check.Unknown, "not found, but the list is incomplete: "+m.Detail, ""
	}
}
