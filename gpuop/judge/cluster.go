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

// policies checks the operator's custom resources.
func (j *judge) policies() {
	policies := j.Policies()
	switch {
	case len(policies) > 0 || len(j.GPUClusters) > 0:
	case j.absent(cluster.ClusterPolicies):
		j.add(check.Finding{
			Check: clusterPolicy, Severity: check.Error, Subject: "ClusterPolicy",
			Reason: "the CustomResourceDefinition is not installed: the GPU Operator is not installed " +
				"in this cluster",
			Fix:      "gpuop values gen",
			Evidence: j.listed(cluster.ClusterPolicies, "not served"),
		})
	case !j.lacks(cluster.ClusterPolicies) && !j.lacks(cluster.GPUClusters):
		v := check.Finding{
			Check: clusterPolicy, Severity: check.Error, Subject: "ClusterPolicy",
			Reason:   "no ClusterPolicy or GPUCluster exists: the operator installs nothing",
			Fix:      "helm get values -a gpu-operator -n " + j.Namespace + "  # clusterPolicy.deployCR",
			Evidence: j.listed(cluster.ClusterPolicies, "0 ClusterPolicies, 0 GPUClusters"),
		}
		if !j.lacks(cluster.Pods) && j.newestOperator() == nil {
			v.Reason = "no ClusterPolicy, no GPUCluster and no pod of the operator exist: the GPU Operator is not installed"
			v.Fix = "gpuop values gen"
		}
		j.add(v)
	}
	for i, p := range policies {
		v := j.resource(clusterPolicy, "ClusterPolicy", p)
		if i > 0 {
			v.Say(check.Warning, "the operator uses the older ClusterPolicy/%s and ignores this one", policies[0].GetName())
			v.Fix = "kubectl delete clusterpolicy " + p.GetName()
		}
		j.add(v)
	}
	for i := range j.GPUClusters {
		v := j.resource(gpuCluster, "GPUCluster", &j.GPUClusters[i])
		if len(policies) > 0 {
			v.Say(check.Error, "cannot be combined with ClusterPolicy/%s: the operator ignores both", policies[0].GetName())
			v.Fix = "kubectl delete gpucluster " + j.GPUClusters[i].GetName() + "  # or delete the ClusterPolicy"
		}
		j.add(v)
	}
	if j.policy == nil && len(j.NVIDIADrivers) == 0 {
		return
	}
	own := j.is("driver.nvidiaDriverCRD.enabled")
	for i := range j.NVIDIADrivers {
		v := j.resource(nvidiaDriver, "NVIDIADriver", &j.NVIDIADrivers[i])
		if j.policy != nil && !own {
			v.Severity, v.Evidence = check.Warning, j.setting("driver.nvidiaDriverCRD.enabled")
			v.Reason = "no effect: the ClusterPolicy does not use NVIDIADriver resources (driver.useNvidiaDriverCRD is not true)"
			v.Fix = "helm upgrade … --set driver.nvidiaDriverCRD.enabled=true"
		}
		j.add(v)
	}
	if j.policy != nil && own && len(j.NVIDIADrivers) == 0 && (!j.lacks(cluster.NVIDIADrivers) || j.absent(cluster.NVIDIADrivers)) {
		j.add(check.Finding{
			Check: nvidiaDriver, Severity: check.Error, Subject: "NVIDIADriver",
			Reason:   "the ClusterPolicy uses NVIDIADriver resources, but none exists: no node gets a driver",
			Fix:      "helm upgrade … --set driver.nvidiaDriverCRD.deployDefaultCR=true",
			Evidence: j.listed(cluster.NVIDIADrivers, "0 NVIDIADrivers"),
		})
	}
}

// newestOperator returns the newest pod of the operator, or nil.
func (j *judge) newestOperator() *corev1.Pod {
	var newest *corev1.Pod
	for i := range j.Pods {
		p := &j.Pods[i]
		if p.Namespace == j.Namespace && p.Labels["app"] == "gpu-operator" && (newest == nil ||
			newest.CreationTimestamp.Before(&p.CreationTimestamp)) {
			newest = p
		}
	}
	return newest
}

// operator checks the newest pod of the operator. A missing pod is an error if a ClusterPolicy or GPUCluster exists.
func (j *judge) operator() {
	if j.lacks(cluster.Pods) {
		return
	}
	newest := j.newestOperator()
	v := check.Finding{Check: operatorPod, Subject: "gpu-operator"}
	switch {
	case newest != nil:
		s := podStateOf(newest)
		v.Severity, v.Reason, v.Since, v.Fix, v.Evidence = s.Severity, s.Reason, s.Since, s.Fix, s.Evidence
	case len(j.ClusterPolicies) == 0 && len(j.GPUClusters) == 0:
		return
	default:
		v.Say(check.Error, "the operator is not running: namespace %s has no pod with the label app=gpu-operator, so the custom "+
			"resources have no effect", j.Namespace)
		v.Fix = fmt.Sprintf("kubectl get deployment -n %s gpu-operator", j.Namespace)
		v.Evidence = j.listed(cluster.Pods, "none of %d pods has the label app=gpu-operator", len(j.Pods))
	}
	j.add(v)
}

// resource checks a custom resource by its state and conditions.
func (j *judge) resource(id *check.Check, kind string, u *unstructured.Unstructured) check.Finding {
	v := check.Finding{Check: id, Subject: kind + "/" + u.GetName()}
	state, _, _ := unstructured.NestedString(u.Object, "status", "state")
	ready, failed := condition(u, "Ready"), condition(u, "Error")
	v.Evidence = check.Seen("status", v.Subject, "state=%s", state)
	for _, c := range []metav1.Condition{ready, failed} {
		if c.Reason != "" || c.Message != "" {
			v.Evidence.Text += fmt.Sprintf(", %s: %s", c.Reason, c.Message)
			v.Evidence.Time = c.LastTransitionTime.Time
		}
	}
	describe := fmt.Sprintf("kubectl describe %s %s", strings.ToLower(kind), u.GetName())
	if failed.Reason == "ConflictingNodeSelector" {
		// operators before v26.7.0 do not update the state
		v.Severity, v.Since = check.Error, failed.LastTransitionTime.Time
		v.Reason = "the operator rejects the resource (its state may be out of date): " + cmp.Or(failed.Message, failed.Reason)
		v.Fix = "kubectl get nvidiadrivers -o custom-columns=NAME:.metadata.name,SELECTOR:.spec.nodeSelector"
		return v
	}
	switch state {
	case "ready":
		v.Reason, v.Since = "the state is ready", ready.LastTransitionTime.Time
		switch ready.Reason {
		case "NFDLabelsMissing":
			v.Say(check.Error, "the state is ready, but no node has labels of Node Feature Discovery, so the "+
				"operator has found no GPU")
			v.Fix = "kubectl get pods -A -l app.kubernetes.io/name=node-feature-discovery"
		case "NoGPUNodes":
			v.Say(check.Warning, "the state is ready, but the operator found no node with a GPU")
			v.Fix = "kubectl get nodes -L " + nfdPrefix + "pci-10de.present," + labelPresent
		}
	case "notReady":
		v.Severity, v.Since, v.Fix = check.Waiting, failed.LastTransitionTime.Time, describe
		v.Reason = "the state is notReady"
		if failed.Message != "" {
			v.Reason += ": " + failed.Message
		}
		if failed.Reason == "ReconcileFailed" || failed.Reason == "PrerequisiteNotMet" {
			v.Severity = check.Error
		}
	case "ignored":
		v.Severity, v.Fix = check.Warning, describe
		v.Reason = "the state is ignored: the operator uses another resource of this kind"
	case "disabled":
		v.Severity, v.Fix = check.Warning, describe
		v.Reason = "the state is disabled: the operator does not apply the resource"
	case "":
		v.Severity, v.Since = check.Waiting, u.GetCreationTimestamp().Time
		v.Reason = "the resource has no state: the operator has not processed it"
		v.Fix = j.operatorLog()
	default:
		v.Severity, v.Fix = check.Unknown, describe
		v.Reason = fmt.Sprintf("the state is %q, expected ready", state)
	}
	return v
}

// condition returns the condition of the given type if its status is True, and a zero Condition otherwise.
func condition(u *unstructured.Unstructured, kind string) metav1.Condition {
	var of struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &of)
	if c := meta.FindStatusCondition(of.Status.Conditions, kind); err == nil && c != nil && c.Status == metav1.ConditionTrue {
		return *c
	}
	return metav1.Condition{}
}

// gpuNodes checks that the cluster has GPU nodes. Before an installation, it warns if there are none. After an
// installation, it also checks for labels of Node Feature Discovery. It warns if GPU nodes or labels are missing, and
// reports an error if both are missing.
func (j *judge) gpuNodes() {
	if j.lacks(cluster.Nodes) {
		return
	}
	labeled, gpus := 0, len(j.gpu)
	for i := range j.Nodes {
		for key := range j.Nodes[i].Labels {
			if strings.HasPrefix(key, nfdPrefix) {
				labeled++
				break
			}
		}
	}
	v := check.Finding{
		Check: gpuNodes, Subject: "nodes", Reason: fmt.Sprintf("%d of %d nodes have GPUs", gpus, len(j.Nodes)),
		Evidence: j.listed(cluster.Nodes, "of %d nodes, %d have a label %s…, %d have a GPU", len(j.Nodes), labeled, nfdPrefix, gpus),
	}
	switch {
	case gpus == 0 && j.by == preflight:
		v.Say(check.Warning, "none of %d nodes is labeled as a GPU node by NFD, the operator or a cloud "+
			"provider: node checks were skipped", len(j.Nodes))
		v.Fix = "install NFD, or kubectl label node NODE feature.node.kubernetes.io/pci-10de.present=true"
	case gpus == 0 && labeled == 0:
		v.Say(check.Error, "none of the %d nodes has a label of Node Feature Discovery, so the operator has found no GPU", len(j.Nodes))
		v.Fix = "kubectl get pods -A -l app.kubernetes.io/name=node-feature-discovery"
	case gpus == 0:
		v.Say(check.Warning, "Node Feature Discovery has labeled %d of %d nodes, but found no NVIDIA GPU (PCI vendor 10de)", labeled, len(j.Nodes))
		v.Fix = "kubectl get nodes -L " + nfdPrefix + "pci-10de.present"
	case labeled == 0 && j.by == verify:
		v.Say(check.Warning, "no node has a label of Node Feature Discovery: the operator cannot find new GPU nodes; the %d "+
			"known ones are unaffected", gpus)
		v.Fix = "kubectl get pods -A -l app.kubernetes.io/name=node-feature-discovery"
	}
	j.add(v)
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
			return !slices.Contains(c.Command, "gpu-feature-discovery") && !strings.Contains(c.Name, "gpu-feature-discovery")
		}
	}
	return false
}

// isOperand reports whether a DaemonSet belongs to the operator. Objects in a gathered folder may lack owner
// references, so the namespace and component are checked too.
func (j *judge) isOperand(d *appsv1.DaemonSet) bool {
	return d.Namespace == j.Namespace && componentOf(d) != "" || slices.ContainsFunc(d.OwnerReferences,
		func(o metav1.OwnerReference) bool { return strings.HasPrefix(o.APIVersion, "nvidia.com/") })
}

// devicePlugins checks that no second device plugin is installed.
func (j *judge) devicePlugins() {
	if j.DaemonSets == nil || j.by == verify && j.policy == nil {
		return
	}
	v := check.Finding{
		Check: devicePlugin, Subject: "device plugin",
		Reason:   "only the operator's plugin registers nvidia.com/gpu",
		Evidence: j.listed(cluster.DaemonSets, "%d DaemonSets", len(j.DaemonSets)),
	}
	found := false
	for i := range j.DaemonSets {
		d := &j.DaemonSets[i]
		at := slices.IndexFunc(d.Spec.Template.Spec.Containers, registers)
		if j.isOperand(d) || at < 0 {
			continue
		}
		found = true
		name, on := d.Namespace+"/"+d.Name, check.Count(int(d.Status.DesiredNumberScheduled), "node")
		f := check.Finding{
			Check: devicePlugin, Severity: check.Error, Subject: "DaemonSet/" + name,
			Reason: fmt.Sprintf("registers nvidia.com/gpu on %s in addition to the operator's plugin: the kubelet uses "+
				"the one that registered last", on),
			Fix:      "kubectl delete daemonset -n " + d.Namespace + " " + d.Name + "  # or helm upgrade … --set devicePlugin.enabled=false",
			Evidence: check.Seen("spec", "DaemonSet/"+name, "image %s, on %s", d.Spec.Template.Spec.Containers[at].Image, on),
		}
		switch gke := d.Namespace == "kube-system" && strings.HasPrefix(d.Name, "nvidia-gpu-device-plugin"); {
		case !j.is("devicePlugin.enabled"):
			f.Severity, f.Reason, f.Fix = check.OK, "registers nvidia.com/gpu, and devicePlugin.enabled=false", ""
		case d.Status.DesiredNumberScheduled == 0:
			f.Severity, f.Reason, f.Fix = check.Note, "not scheduled on any node", ""
		case gke:
			f.Fix = "create the node pools with --node-labels=gke-no-default-nvidia-gpu-device-plugin=true"
		}
		j.add(f)
	}
	if found || j.by == verify && j.Lacks(cluster.DaemonSets) != nil {
		return
	}
	j.partial(&v, cluster.DaemonSets)
	j.add(v)
}

// partial changes a finding to Unknown if the list that it depends on is incomplete.
func (j *judge) partial(v *check.Finding, k cluster.Kind) {
	if m := j.Lacks(k); m != nil {
		v.Severity, v.Reason, v.Fix = check.Unknown, "not found, but the list is incomplete: "+m.Detail, ""
	}
}
