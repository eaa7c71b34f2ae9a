package verify

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/verdict"
)

// chosen returns the ClusterPolicies, of which the first is in force.
func (j *judge) chosen() []*unstructured.Unstructured {
	policies := j.Policies()
	if len(policies) > 0 {
		j.policy = policies[0]
	}
	return policies
}

// policies are the rows of the operator's own pod and of its custom resources.
func (j *judge) policies(policies []*unstructured.Unstructured) {
	j.operator()
	switch {
	case len(policies) > 0:
	case len(j.GPUClusters) > 0:
	case j.absent(cluster.ClusterPolicies):
		j.add(verdict.Verdict{
			ID: "cluster-policy", State: verdict.Failed, Subject: "ClusterPolicy",
			Reason: "the cluster does not know the resource: the GPU Operator is not installed, and nothing manages the GPUs but what was installed by hand",
			Next:   "gpuop values gen", Source: sourcePolicy,
		})
	case !j.lacks(cluster.ClusterPolicies) && !j.lacks(cluster.GPUClusters):
		j.add(verdict.Verdict{
			ID: "cluster-policy", State: verdict.Failed, Subject: "ClusterPolicy",
			Reason: "there is neither a ClusterPolicy nor a GPUCluster: the operator installs nothing",
			Next:   "helm get values -a gpu-operator -n " + j.Namespace + "  # clusterPolicy.deployCR", Source: sourcePolicy,
		})
	}
	for i := range policies {
		v := j.resource("cluster-policy", "ClusterPolicy", policies[i])
		if i > 0 {
			v.State = verdict.Warning
			v.Reason = fmt.Sprintf("ClusterPolicy/%s is older and in force; the operator ignores this one", policies[0].GetName())
			v.Next = "kubectl delete clusterpolicy " + policies[i].GetName()
		}
		j.add(v)
	}
	for i := range j.GPUClusters {
		v := j.resource("gpu-cluster", "GPUCluster", &j.GPUClusters[i])
		if len(policies) > 0 {
			v.State = verdict.Failed
			v.Reason = fmt.Sprintf("GPUCluster and ClusterPolicy/%s exclude each other: the operator serves neither", policies[0].GetName())
			v.Next = "kubectl delete gpucluster " + j.GPUClusters[i].GetName() + "  # or delete the ClusterPolicy"
		}
		j.add(v)
	}
	for i := range j.NVIDIADrivers {
		v := j.resource("nvidia-driver", "NVIDIADriver", &j.NVIDIADrivers[i])
		if j.policy != nil && !j.boolean(false, "driver", "useNvidiaDriverCRD") {
			v.State = verdict.Warning
			v.Reason = "the ClusterPolicy does not use NVIDIADriver resources (driver.useNvidiaDriverCRD is not true): this one does nothing"
			v.Next = "helm upgrade … --set driver.nvidiaDriverCRD.enabled=true"
		}
		j.add(v)
	}
	if j.policy != nil && j.boolean(false, "driver", "useNvidiaDriverCRD") && len(j.NVIDIADrivers) == 0 && (!j.lacks(cluster.NVIDIADrivers) || j.absent(cluster.NVIDIADrivers)) {
		j.add(verdict.Verdict{
			ID: "nvidia-driver", State: verdict.Failed, Subject: "NVIDIADriver",
			Reason: "the ClusterPolicy leaves the driver to NVIDIADriver resources, and there is none: no node gets a driver",
			Next:   "helm upgrade … --set driver.nvidiaDriverCRD.deployDefaultCR=true", Source: sourcePolicy,
		})
	}
}

// operator is the row of the operator's own pod.
func (j *judge) operator() {
	if j.lacks(cluster.Pods) {
		return
	}
	var newest *corev1.Pod
	for i := range j.Pods {
		p := &j.Pods[i]
		if p.Namespace == j.Namespace && p.Labels["app"] == "gpu-operator" && (newest == nil || newest.CreationTimestamp.Before(&p.CreationTimestamp)) {
			newest = p
		}
	}
	v := verdict.Verdict{ID: "operator-pod", Subject: "gpu-operator", Source: sourcePolicy}
	if newest == nil {
		if len(j.ClusterPolicies) == 0 && len(j.GPUClusters) == 0 {
			return
		}
		v.State = verdict.Failed
		v.Reason = fmt.Sprintf("no pod with the label app=gpu-operator runs in namespace %s: what the custom resources say is not carried out", j.Namespace)
		v.Next = fmt.Sprintf("kubectl get deployment -n %s gpu-operator", j.Namespace)
		j.add(v)
		return
	}
	s := podStateOf(newest)
	v.State, v.Reason, v.Since, v.Next = s.state, s.reason, s.since, s.next
	j.add(v)
}

// resource is the row of a custom resource by its state and conditions.
func (j *judge) resource(id, kind string, u *unstructured.Unstructured) verdict.Verdict {
	v := verdict.Verdict{ID: id, Subject: kind + "/" + u.GetName(), Source: sourcePolicy}
	state, _, _ := unstructured.NestedString(u.Object, "status", "state")
	ready, failed := condition(u, "Ready"), condition(u, "Error")
	describe := fmt.Sprintf("kubectl describe %s %s", strings.ToLower(kind), u.GetName())
	if failed.reason == "ConflictingNodeSelector" {
		// releases before v26.7.0 leave the state at what it was
		v.State, v.Since, v.Source = verdict.Failed, failed.since, sourceDriver
		v.Reason = "the operator does not carry the resource out, whatever its state: " + cmp.Or(failed.message, failed.reason)
		v.Next = "kubectl get nvidiadrivers -o custom-columns=NAME:.metadata.name,SELECTOR:.spec.nodeSelector"
		return v
	}
	switch state {
	case "ready":
		v.Reason, v.Since = "the state is ready", ready.since
		switch ready.reason {
		case "NFDLabelsMissing":
			v.State = verdict.Failed
			v.Reason = "the state is ready, and says nothing: no node has labels of Node Feature Discovery, so the operator knows of no GPU"
			v.Next = "kubectl get pods -A -l app.kubernetes.io/name=node-feature-discovery"
		case "NoGPUNodes":
			v.State = verdict.Warning
			v.Reason = "the state is ready, and says nothing: the operator found no node with a GPU"
			v.Next = "kubectl get nodes -L " + nfdPrefix + "pci-10de.present," + labelPresent
		}
	case "notReady":
		v.State, v.Since, v.Next = verdict.Waiting, failed.since, describe
		v.Reason = "the state is notReady"
		if failed.message != "" {
			v.Reason += ": " + failed.message
		}
		if failed.reason == "ReconcileFailed" || failed.reason == "PrerequisiteNotMet" {
			v.State = verdict.Failed
		}
	case "ignored":
		v.State, v.Next = verdict.Warning, describe
		v.Reason = "the state is ignored: another resource of the kind is in force"
	case "disabled":
		v.State, v.Next = verdict.Warning, describe
		v.Reason = "the state is disabled: the operator does not carry the resource out"
	case "":
		v.State, v.Since = verdict.Waiting, u.GetCreationTimestamp().Time
		v.Reason = "the resource has no state: the operator has not looked at it"
		v.Next = fmt.Sprintf("kubectl logs -n %s -l app=gpu-operator --tail=100", j.Namespace)
	default:
		v.State, v.Next = verdict.Unknown, describe
		v.Reason = fmt.Sprintf("the state is %q, want ready", state)
	}
	return v
}

// A status is one condition of a custom resource.
type status struct {
	reason, message string
	since           time.Time
}

// condition returns the condition of a type where it is True.
func condition(u *unstructured.Unstructured, kind string) status {
	all, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, item := range all {
		c, _ := item.(map[string]any)
		if c["type"] != kind || c["status"] != "True" {
			continue
		}
		reason, _ := c["reason"].(string)
		message, _ := c["message"].(string)
		at, _ := c["lastTransitionTime"].(string)
		since, _ := time.Parse(time.RFC3339, at)
		return status{reason, message, since}
	}
	return status{}
}

// boolean reads a setting of the ClusterPolicy in force.
func (j *judge) boolean(fallback bool, path ...string) bool {
	if j.policy == nil {
		return fallback
	}
	if value, found, err := unstructured.NestedBool(j.policy.Object, append([]string{"spec"}, path...)...); found && err == nil {
		return value
	}
	return fallback
}

// text reads a setting of the ClusterPolicy in force; empty where it is absent.
func (j *judge) text(path ...string) string {
	if j.policy == nil {
		return ""
	}
	value, _, _ := unstructured.NestedString(j.policy.Object, append([]string{"spec"}, path...)...)
	return value
}

// said is the text of a setting of the ClusterPolicy in force, by its dotted name; empty where it is absent.
func (j *judge) said(path string) string {
	if value, found, _ := unstructured.NestedFieldNoCopy(j.policy.Object, append([]string{"spec"}, strings.Split(path, ".")...)...); found && value != nil {
		return fmt.Sprint(value)
	}
	return ""
}

// discovery judges whether GPU nodes can be known at all.
func (j *judge) discovery() {
	if j.lacks(cluster.Nodes) {
		return
	}
	labeled, gpus := 0, 0
	for i := range j.Nodes {
		for key := range j.Nodes[i].Labels {
			if strings.HasPrefix(key, nfdPrefix) {
				labeled++
				break
			}
		}
		if isGPUNode(&j.Nodes[i]) {
			gpus++
		}
	}
	v := verdict.Verdict{ID: "node-feature-discovery", Subject: "Node Feature Discovery", Source: sourceLabels}
	switch {
	case gpus == 0 && labeled == 0:
		v.State = verdict.Failed
		v.Reason = fmt.Sprintf("none of the %d nodes has a label of Node Feature Discovery, and none is known to have a GPU", len(j.Nodes))
		v.Next = "kubectl get pods -A -l app.kubernetes.io/name=node-feature-discovery"
	case gpus == 0:
		v.State = verdict.Warning
		v.Reason = fmt.Sprintf("%d of %d nodes are labeled, and none has a GPU of NVIDIA (PCI vendor 10de)", labeled, len(j.Nodes))
		v.Next = "kubectl get nodes -L " + nfdPrefix + "pci-10de.present"
	case labeled == 0:
		v.State = verdict.Warning
		v.Reason = fmt.Sprintf("no node has a label of Node Feature Discovery; the operator finds no new GPU node, and %d known ones stay as they are", gpus)
		v.Next = "kubectl get pods -A -l app.kubernetes.io/name=node-feature-discovery"
	default:
		v.Reason = fmt.Sprintf("%d of %d nodes are labeled, %d have a GPU", labeled, len(j.Nodes), gpus)
	}
	j.add(v)
}
