package judge_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/judge"
)

func planned(t *testing.T) *cluster.State {
	t.Helper()
	s, err := cluster.Folder("testdata/planned").Read(t.Context(), judge.PreflightKinds()...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// preflighted returns the findings of Preflight, and checks their evidence.
func preflighted(t *testing.T, s *cluster.State, o judge.Options) []check.Finding {
	t.Helper()
	return evidenced(t, judge.Preflight(s, o))
}

func release(t *testing.T, name string) chart.Version {
	t.Helper()
	v, err := chart.ParseVersion(name)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// wrong formats the findings that are not OK as "severity check node", sorted.
func wrong(rows []check.Finding) []string {
	var out []string
	for _, v := range rows {
		if v.Severity != check.OK {
			out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s %s", v.Severity, v.Check.ID, v.Node)))
		}
	}
	slices.Sort(out)
	return out
}

func TestPreflightOfAHealthyCluster(t *testing.T) {
	s := planned(t)
	if len(s.Missing) != 1 || s.Missing[0].Kind != cluster.Events {
		t.Fatalf("Missing = %v, want only events", s.Missing)
	}
	rows := preflighted(t, s, judge.Options{Table: chart.Load(), Release: release(t, "v26.7.0")})
	if got := wrong(rows); len(got) != 0 {
		t.Errorf("findings in the healthy cluster = %v, want none", got)
	}
}

func daemonSet(namespace, name, image string) appsv1.DaemonSet {
	d := appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main", Image: image}}
	d.Status.DesiredNumberScheduled = 2
	return d
}

func values(pairs ...any) map[string]any {
	root := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		_ = unstructured.SetNestedField(root, pairs[i+1], strings.Split(pairs[i].(string), ".")...)
	}
	return root
}

// TestForbiddenPodsAreOneFinding expects one error if the namespace forbids privileged pods and an event says that a
// pod was rejected. The error must have the event as evidence.
func TestForbiddenPodsAreOneFinding(t *testing.T) {
	s := planned(t)
	d := daemonSet("gpu-operator", "nvidia-driver-daemonset", "driver")
	d.Spec.Template.Spec.NodeSelector = map[string]string{"nvidia.com/gpu.deploy.driver": "true"}
	s.DaemonSets = append(s.DaemonSets, d)
	s.Namespaces = []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "gpu-operator", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "baseline"}}}}
	warned(s, "DaemonSet", d.Name, "FailedCreate", `Error creating: pods "x" is forbidden: violates PodSecurity "baseline:latest": privileged`)
	var failed []check.Finding
	for _, v := range preflighted(t, s, judge.Options{Table: chart.Load(), Release: release(t, "v26.7.0")}) {
		if v.Severity == check.Error {
			failed = append(failed, v)
		}
	}
	if len(failed) != 1 || failed[0].Check.ID != "pod-security" || failed[0].Evidence.Kind != "event" {
		t.Errorf("errors = %+v, want one of the check pod-security with the event as evidence", failed)
	}
}

// TestJudge changes a cluster without problems and runs Preflight. It compares all findings that are not OK.
func TestJudge(t *testing.T) {
	rhel := func(n *corev1.Node, version string) {
		n.Labels["feature.node.kubernetes.io/system-os_release.ID"], n.Labels["feature.node.kubernetes.io/system-os_release.VERSION_ID"] = "rhel", version
	}
	linux := func(n *corev1.Node, id, version string) {
		rhel(n, version)
		n.Labels["feature.node.kubernetes.io/system-os_release.ID"] = id
	}
	policy := func(key string, value map[string]any) unstructured.Unstructured {
		return unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{key: value}}}
	}
	// on OpenShift, NFD is installed by its own operator, and nodes have CRI-O and RHCOS
	openShift := func(s *cluster.State) {
		s.CRDs = append(s.CRDs, cluster.CRD{Name: "clusterversions.config.openshift.io"})
		s.DaemonSets = append(s.DaemonSets, daemonSet("openshift-nfd", "nfd-worker", "registry.redhat.io/openshift4/ose-node-feature-discovery-rhel9@sha256:1"))
		for i := range s.Nodes {
			s.Nodes[i].Status.NodeInfo.OSImage = "Red Hat Enterprise Linux CoreOS 9.6.20250523-0 (Plow)"
			s.Nodes[i].Status.NodeInfo.ContainerRuntimeVersion = "cri-o://1.32.4"
			s.Nodes[i].Labels["node.openshift.io/os_id"] = "rhel"
		}
	}
	unlabeled := func(n *corev1.Node) { // NFD has not labeled the node; only the cloud provider's label shows that it has GPUs
		maps.DeleteFunc(n.Labels, func(name, _ string) bool { return strings.Contains(name, "/pci-") })
		n.Labels["cloud.google.com/gke-accelerator"] = "nvidia-l4"
	}
	team := func(s *cluster.State) {
		n := node(s, "gpu-1")
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "team", Value: "ml", Effect: corev1.TaintEffectNoSchedule})
	}
	kubelets := func(s *cluster.State, versions ...string) {
		s.Version = ""
		for i := range s.Nodes {
			s.Nodes[i].Status.NodeInfo.KubeletVersion = versions[i%len(versions)]
		}
	}
	for name, c := range map[string]struct {
		version string
		values  map[string]any
		change  func(*cluster.State)
		want    []string
		says    string // part of a reason
	}{
		"old Kubernetes": {change: func(s *cluster.State) { s.Version = "v1.31.9" }, says: "1.32 to 1.36",
			want: []string{"error kubernetes-version", "warning os-supported gpu-1", "warning os-supported gpu-2"}},
		"Kubernetes too new": {change: func(s *cluster.State) { s.Version = "v1.37.0" },
			want: []string{"warning kubernetes-version", "warning os-supported gpu-1", "warning os-supported gpu-2"}},
		"no version at all":                {change: func(s *cluster.State) { kubelets(s, "") }, want: []string{"warning kubernetes-version"}},
		"last Kubernetes":                  {change: func(s *cluster.State) { s.Version = "v1.36.3+rke2r1" }},
		"release without a support matrix": {version: "v23.9.0", want: []string{"warning kubernetes-version", "warning os-supported gpu-1", "warning os-supported gpu-2"}},
		"mixed systems": {change: func(s *cluster.State) { rhel(node(s, "gpu-2"), "9.6") }, says: "(ubuntu22.04), which is wrong for 1 node",
			want: []string{"error driver-os"}},
		"minors of RHEL": {change: func(s *cluster.State) { rhel(node(s, "gpu-1"), "9.4"); rhel(node(s, "gpu-2"), "9.6") }},
		"minors of RHEL before v26.7": {version: "v26.3.0", change: func(s *cluster.State) { rhel(node(s, "gpu-1"), "9.4"); rhel(node(s, "gpu-2"), "9.6") },
			want: []string{"error driver-os"}},
		"minors of Rocky before v26.3": {version: "v25.10.1", change: func(s *cluster.State) {
			linux(node(s, "gpu-1"), "rocky", "9.6")
			linux(node(s, "gpu-2"), "rocky", "9.7")
		}, says: "rocky9.6",
			want: []string{"error driver-os", "warning os-supported gpu-1", "warning os-supported gpu-2"}},
		"minors of Rocky": {version: "v26.3.0", change: func(s *cluster.State) {
			linux(node(s, "gpu-1"), "rocky", "8.10")
			linux(node(s, "gpu-2"), "rocky", "8.9")
		}, want: []string{"warning os-supported gpu-2"}},
		"minors of RHEL 10":       {version: "v26.3.0", change: func(s *cluster.State) { rhel(node(s, "gpu-1"), "10.0"); rhel(node(s, "gpu-2"), "10.1") }},
		"minors of Oracle Linux":  {change: func(s *cluster.State) { linux(node(s, "gpu-1"), "ol", "9.4"); linux(node(s, "gpu-2"), "ol", "9.5") }, want: []string{"warning os-supported gpu-1", "warning os-supported gpu-2"}},
		"minors of Oracle, v26.3": {version: "v26.3.0", change: func(s *cluster.State) { linux(node(s, "gpu-1"), "ol", "9.4"); linux(node(s, "gpu-2"), "ol", "9.5") }, want: []string{"error driver-os", "warning os-supported gpu-1", "warning os-supported gpu-2"}},
		"mixed systems, preinstalled driver on the other node": {change: func(s *cluster.State) {
			rhel(node(s, "gpu-2"), "9.6")
			node(s, "gpu-2").Labels["nvidia.com/gpu.deploy.driver"] = "pre-installed"
		}, says: "1 GPU node gets the driver image for ubuntu22.04"},
		"mixed systems, suggested fix applied": {change: func(s *cluster.State) {
			rhel(node(s, "gpu-2"), "9.6")
			node(s, "gpu-2").Labels["nvidia.com/gpu.deploy.driver"] = "false"
		}},
		"mixed systems, first node for virtual machines": {change: func(s *cluster.State) {
			s.ClusterPolicies = []unstructured.Unstructured{policy("sandboxWorkloads", map[string]any{"enabled": true})}
			rhel(node(s, "gpu-1"), "9.6")
			node(s, "gpu-1").Labels["nvidia.com/gpu.workload.config"] = "vm-passthrough"
		}, want: []string{"error driver-os"}, says: "(rhel9), which is wrong for 1 node"},
		"mixed runtimes, suggested fix applied": {change: func(s *cluster.State) {
			node(s, "gpu-1").Status.NodeInfo.ContainerRuntimeVersion = "cri-o://1.34.1"
			node(s, "gpu-1").Labels["nvidia.com/gpu.deploy.operands"] = "false"
		}},
		"mixed runtimes, one node without the toolkit": {change: func(s *cluster.State) {
			node(s, "gpu-1").Status.NodeInfo.ContainerRuntimeVersion = "cri-o://1.34.1"
			node(s, "gpu-1").Labels["nvidia.com/gpu.deploy.container-toolkit"] = "false"
		}},
		"unsupported architecture, operands disabled": {change: func(s *cluster.State) {
			node(s, "gpu-2").Status.NodeInfo.Architecture = "ppc64le"
			node(s, "gpu-2").Labels["nvidia.com/gpu.deploy.operands"] = "false"
		}, want: []string{"note architecture gpu-2"}},
		"OpenShift since 4.19": {change: func(s *cluster.State) {
			openShift(s)
			for _, n := range []string{"gpu-1", "gpu-2"} {
				rhel(node(s, n), "9.6")
			}
		}, says: "driver toolkit"},
		"OpenShift since 4.19, two RHCOS releases, operator without major tags": {version: "v25.10.1", change: func(s *cluster.State) {
			openShift(s)
			rhel(node(s, "gpu-1"), "9.6")
			linux(node(s, "gpu-2"), "rhcos", "4.18")
		}},
		"OpenShift in a folder without CustomResourceDefinitions": {change: func(s *cluster.State) {
			openShift(s)
			s.CRDs = nil
			for _, n := range []string{"gpu-1", "gpu-2"} {
				rhel(node(s, n), "9.6")
			}
		}, want: []string{"warning unread"}, says: "driver toolkit"},
		"OpenShift without NFD": {change: func(s *cluster.State) {
			openShift(s)
			s.DaemonSets = []appsv1.DaemonSet{}
			for i := range s.Nodes {
				delete(s.Nodes[i].Labels, "feature.node.kubernetes.io/pci-10de.present")
				delete(s.Nodes[i].Labels, "nvidia.com/gpu.present")
			}
		}, want: []string{"error nfd", "warning gpu-nodes"}, says: "NFD Operator"},
		"NFD older than the Helm release": {change: func(s *cluster.State) {
			s.ClusterPolicies = []unstructured.Unstructured{policy("driver", map[string]any{"enabled": true})}
			s.DaemonSets = append(s.DaemonSets, daemonSet("node-feature-discovery", "nfd-worker", "registry.k8s.io/nfd/node-feature-discovery:v0.18.1"))
		}},
		"NFD of the chart, applied by Argo CD": {change: func(s *cluster.State) {
			d := daemonSet("gpu-operator", "gpu-operator-node-feature-discovery-worker", "registry.k8s.io/nfd/node-feature-discovery:v0.18.1")
			d.Labels = map[string]string{"helm.sh/chart": "node-feature-discovery-0.18.1"}
			s.DaemonSets = append(s.DaemonSets, d)
		}},
		"MPS daemon of the device plugin's chart": {values: values("devicePlugin.enabled", false), change: func(s *cluster.State) {
			d := daemonSet("nvdp", "nvdp-nvidia-device-plugin-mps-control-daemon", "nvcr.io/nvidia/k8s-device-plugin:v0.17.1")
			d.Spec.Template.Spec.Containers[0].Name, d.Spec.Template.Spec.Containers[0].Command = "mps-control-daemon-ctr", []string{"mps-control-daemon"}
			d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, corev1.Container{Name: "mps-control-daemon-sidecar", Image: "nvcr.io/nvidia/k8s-device-plugin:v0.17.1", Command: []string{"config-manager"}})
			s.DaemonSets = append(s.DaemonSets, d)
		}, says: "only the operator's plugin"},
		"HAMi": {change: func(s *cluster.State) {
			d := daemonSet("kube-system", "hami-device-plugin", "projecthami/hami:v2.6.1")
			d.Spec.Template.Spec.Containers[0].Command = []string{"nvidia-device-plugin", "--config-file=/config/config.json"}
			s.DaemonSets = append(s.DaemonSets, d)
		}, want: []string{"error device-plugin"}},
		"mixed systems, own drivers":   {values: values("driver.enabled", false), change: func(s *cluster.State) { rhel(node(s, "gpu-2"), "9.6") }},
		"mixed systems, NVIDIADrivers": {values: values("driver.nvidiaDriverCRD.enabled", true), change: func(s *cluster.State) { rhel(node(s, "gpu-2"), "9.6") }},
		"mixed systems, precompiled": {values: values("driver.usePrecompiled", true), change: func(s *cluster.State) {
			rhel(node(s, "gpu-2"), "9.6")
			node(s, "gpu-2").Labels["feature.node.kubernetes.io/kernel-version.full"] = "5.14.0"
		}, want: []string{"error driver-os"}, says: "(ubuntu22.04), which is wrong for 1 node"},
		"precompiled": {values: values("driver.usePrecompiled", true), says: "one for each kernel"},
		"unknown system": {change: func(s *cluster.State) {
			n := node(s, "gpu-1")
			delete(n.Labels, "feature.node.kubernetes.io/system-os_release.ID")
			n.Status.NodeInfo.OSImage = "Plan 9"
		}, want: []string{"error driver-os", "warning os-supported gpu-1"}},
		"before NFD, by the status": {change: func(s *cluster.State) {
			for _, n := range []string{"gpu-1", "gpu-2"} {
				node(s, n).Labels = map[string]string{"cloud.google.com/gke-accelerator": "nvidia-l4"}
			}
		}},
		"system outside the matrix": {change: func(s *cluster.State) {
			for _, n := range []string{"gpu-1", "gpu-2"} {
				node(s, n).Labels["feature.node.kubernetes.io/system-os_release.VERSION_ID"] = "20.04"
			}
		}, want: []string{"warning os-supported gpu-1", "warning os-supported gpu-2"}, says: "ubuntu 20.04 is not in the support matrix of v26.7.0"},
		"mixed runtimes": {change: func(s *cluster.State) { node(s, "gpu-1").Status.NodeInfo.ContainerRuntimeVersion = "cri-o://1.34.1" },
			want: []string{"error container-runtime"}, says: "configures containerd on all nodes, which is wrong for 1 node"},
		"mixed runtimes, CRI-O last": {change: func(s *cluster.State) { node(s, "gpu-2").Status.NodeInfo.ContainerRuntimeVersion = "cri-o://1.34.1" },
			want: []string{"error container-runtime"}},
		"only CRI-O": {change: func(s *cluster.State) {
			for _, n := range []string{"gpu-1", "gpu-2"} {
				node(s, n).Status.NodeInfo.ContainerRuntimeVersion = "cri-o://1.34.1"
			}
		}},
		"mixed runtimes, no toolkit": {values: values("toolkit.enabled", false), change: func(s *cluster.State) { node(s, "gpu-1").Status.NodeInfo.ContainerRuntimeVersion = "cri-o://1.34.1" }},
		"docker": {change: func(s *cluster.State) {
			for _, n := range []string{"gpu-1", "gpu-2"} {
				node(s, n).Status.NodeInfo.ContainerRuntimeVersion = "docker://28.1.1"
			}
		}, want: []string{"error runtime-supported gpu-1", "error runtime-supported gpu-2"}},
		"NFD already installed": {change: func(s *cluster.State) {
			s.DaemonSets = append(s.DaemonSets, daemonSet("node-feature-discovery", "nfd-worker", "registry.k8s.io/nfd/node-feature-discovery:v0.18.1"))
		}, want: []string{"error nfd"}},
		"NFD installed and nfd.enabled=false": {values: values("nfd.enabled", false), change: func(s *cluster.State) {
			s.DaemonSets = append(s.DaemonSets, daemonSet("node-feature-discovery", "nfd-worker", "registry.k8s.io/nfd/node-feature-discovery:v0.18.1"))
		}},
		"NFD of the chart": {change: func(s *cluster.State) {
			d := daemonSet("gpu-operator", "gpu-operator-node-feature-discovery-worker", "registry.k8s.io/nfd/node-feature-discovery:v0.18.1")
			d.Labels, d.Annotations = map[string]string{"helm.sh/chart": "node-feature-discovery-0.18.1"}, map[string]string{"meta.helm.sh/release-name": "gpu-operator"}
			s.DaemonSets = append(s.DaemonSets, d)
		}},
		"no NFD": {values: values("nfd.enabled", false), change: func(s *cluster.State) {
			for i := range s.Nodes {
				delete(s.Nodes[i].Labels, "feature.node.kubernetes.io/pci-10de.present")
				s.Nodes[i].Labels["cloud.google.com/gke-accelerator"] = "nvidia-l4"
			}
			s.Nodes[0].Labels = nil
		}, want: []string{"error nfd"}},
		"second plugin": {change: func(s *cluster.State) {
			s.DaemonSets = append(s.DaemonSets, daemonSet("kube-system", "nvidia-device-plugin-daemonset", "nvcr.io/nvidia/k8s-device-plugin:v0.17.1"))
		}, want: []string{"error device-plugin"}, says: "registers nvidia.com/gpu on 2 nodes"},
		"another plugin, devicePlugin.enabled=false": {values: values("devicePlugin.enabled", false), change: func(s *cluster.State) {
			s.DaemonSets = append(s.DaemonSets, daemonSet("kube-system", "nvidia-device-plugin-daemonset", "nvcr.io/nvidia/k8s-device-plugin:v0.17.1"))
		}},
		"second plugin on no node": {change: func(s *cluster.State) {
			d := daemonSet("kube-system", "nvidia-gpu-device-plugin-small-cos", "gke.gcr.io/nvidia-gpu-device-plugin@sha256:1")
			d.Status.DesiredNumberScheduled = 0
			s.DaemonSets = append(s.DaemonSets, d)
		}, want: []string{"note device-plugin"}},
		"plugin of the operator": {change: func(s *cluster.State) {
			d := daemonSet("gpu-operator", "nvidia-device-plugin-daemonset", "nvcr.io/nvidia/k8s-device-plugin:v0.20.0")
			d.OwnerReferences = []metav1.OwnerReference{{APIVersion: "nvidia.com/v1", Kind: "ClusterPolicy"}}
			s.DaemonSets = append(s.DaemonSets, d)
		}},
		"restricted namespace": {change: func(s *cluster.State) { s.Namespaces[0].Labels["pod-security.kubernetes.io/enforce"] = "restricted" }, want: []string{"error pod-security"}},
		"restricted namespace, psa.enabled": {values: values("psa.enabled", true), change: func(s *cluster.State) {
			s.Namespaces[0].Labels["pod-security.kubernetes.io/enforce"] = "restricted"
		}, want: []string{"note pod-security"}},
		"no namespace":        {change: func(s *cluster.State) { s.Namespaces[0].Name = "default" }, want: []string{"note pod-security"}},
		"unlabeled namespace": {change: func(s *cluster.State) { s.Namespaces[0].Labels = nil }, want: []string{"note pod-security"}},
		"custom taint": {change: func(s *cluster.State) {
			n := node(s, "gpu-2")
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "team", Value: "ml", Effect: corev1.TaintEffectNoSchedule})
		}, want: []string{"error taint gpu-2", "error taint gpu-2"}, says: "the taint team=ml:NoSchedule is not tolerated"},
		"custom taint, tolerated": {
			values: values("daemonsets.tolerations", []any{map[string]any{"operator": "Exists"}}, "node-feature-discovery.worker.tolerations", []any{map[string]any{"operator": "Exists"}}),
			change: func(s *cluster.State) {
				n := node(s, "gpu-2")
				n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "team", Value: "ml", Effect: corev1.TaintEffectNoSchedule})
			}},
		"a toleration of another value": {
			values: values("daemonsets.tolerations", []any{map[string]any{"key": "nvidia.com/gpu", "operator": "Equal", "value": "true", "effect": "NoSchedule"}}),
			want:   []string{"error taint"}},
		"tolerations of the ClusterPolicy": {change: func(s *cluster.State) {
			s.ClusterPolicies = []unstructured.Unstructured{policy("daemonsets", map[string]any{"tolerations": []any{map[string]any{"key": "team", "operator": "Exists"}}})}
		}, want: []string{"error taint"}},
		// with an empty list, the operands keep the tolerations of their manifests
		"an empty list of tolerations":                 {values: values("daemonsets.tolerations", []any{})},
		"empty list of tolerations and a custom taint": {values: values("daemonsets.tolerations", []any{}), change: team, want: []string{"error taint gpu-1", "error taint gpu-1"}},
		"NFD's worker tolerates more than the chart's": {change: func(s *cluster.State) {
			team(s)
			s.ClusterPolicies = []unstructured.Unstructured{policy("daemonsets", map[string]any{"tolerations": []any{map[string]any{"operator": "Exists"}}})}
			unlabeled(node(s, "gpu-1"))
			d := daemonSet("nfd", "nfd-worker", "registry.k8s.io/nfd/node-feature-discovery:v0.18.1")
			d.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
			s.DaemonSets = append(s.DaemonSets, d)
		}},
		"NFD's worker tolerates less than the operands": {change: func(s *cluster.State) {
			team(s)
			s.ClusterPolicies = []unstructured.Unstructured{policy("daemonsets", map[string]any{"tolerations": []any{map[string]any{"operator": "Exists"}}})}
			unlabeled(node(s, "gpu-1"))
			d := daemonSet("nfd", "nfd-worker", "registry.k8s.io/nfd/node-feature-discovery:v0.18.1")
			d.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists}}
			s.DaemonSets = append(s.DaemonSets, d)
		}, want: []string{"error taint gpu-1"}},
		"two ClusterPolicies, older one active": {change: func(s *cluster.State) {
			rhel(node(s, "gpu-2"), "9.6")
			ignored, old := policy("driver", map[string]any{"enabled": false}), policy("driver", map[string]any{"enabled": true})
			ignored.SetName("aaa")
			ignored.SetCreationTimestamp(metav1.NewTime(s.At))
			old.SetName("cluster-policy")
			old.SetCreationTimestamp(metav1.NewTime(s.At.Add(-time.Hour)))
			s.ClusterPolicies = []unstructured.Unstructured{ignored, old}
		}, want: []string{"error driver-os"}},
		"two ClusterPolicies, active one by status": {change: func(s *cluster.State) {
			rhel(node(s, "gpu-2"), "9.6")
			inForce, ignored := policy("driver", map[string]any{"enabled": false}), policy("driver", map[string]any{"enabled": true})
			ignored.Object["status"] = map[string]any{"state": "ignored"}
			ignored.SetCreationTimestamp(metav1.NewTime(s.At.Add(-time.Hour)))
			inForce.SetCreationTimestamp(metav1.NewTime(s.At))
			s.ClusterPolicies = []unstructured.Unstructured{ignored, inForce}
		}},
		"precompiled drivers on OpenShift": {values: values("driver.usePrecompiled", true), change: func(s *cluster.State) {
			openShift(s)
			node(s, "gpu-1").Status.NodeInfo.KernelVersion = node(s, "gpu-2").Status.NodeInfo.KernelVersion
		}, says: "one for each kernel"},
		"containerd without CDI": {change: func(s *cluster.State) {
			for _, n := range []string{"gpu-1", "gpu-2"} {
				node(s, n).Status.NodeInfo.ContainerRuntimeVersion = "containerd://1.6.39"
			}
		}, want: []string{"error cdi-support"}, says: "containerd 1.6.39 does not support CDI"},
		"containerd with CDI": {change: func(s *cluster.State) {
			node(s, "gpu-1").Status.NodeInfo.ContainerRuntimeVersion = "containerd://1.7.27-k3s1"
		}},
		"containerd without CDI, cdi.enabled=false": {values: values("cdi.enabled", false), change: func(s *cluster.State) {
			node(s, "gpu-1").Status.NodeInfo.ContainerRuntimeVersion = "containerd://1.6.39"
		}},
		"containerd without CDI, before v25.10": {version: "v25.3.0", values: values("cdi.enabled", true), change: func(s *cluster.State) {
			node(s, "gpu-1").Status.NodeInfo.ContainerRuntimeVersion = "containerd://1.6.39"
		}, want: []string{"warning kubernetes-version", "warning os-supported gpu-1", "warning os-supported gpu-2"}},
		"a taint of Kubernetes": {change: func(s *cluster.State) {
			n := node(s, "gpu-2")
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "node.kubernetes.io/unreachable", Effect: corev1.TaintEffectNoExecute})
		}},
		"no taint":                 {change: func(s *cluster.State) { node(s, "gpu-2").Spec.Taints = nil }, want: []string{"note gpu-node-untainted gpu-2"}},
		"no taint, only GPU nodes": {change: func(s *cluster.State) { node(s, "gpu-2").Spec.Taints = nil; s.Nodes = s.Nodes[1:] }},
		"unsupported architecture": {change: func(s *cluster.State) { node(s, "gpu-2").Status.NodeInfo.Architecture = "ppc64le" }, want: []string{"error architecture gpu-2"}},
		"arm64":                    {change: func(s *cluster.State) { node(s, "gpu-2").Status.NodeInfo.Architecture = "arm64" }},
		"no ServiceMonitors":       {change: func(s *cluster.State) { s.CRDs = []cluster.CRD{} }, want: []string{"note servicemonitor-crd"}},
		"no ServiceMonitors before v26.7": {version: "v26.3.0", values: values("dcgmExporter.serviceMonitor.enabled", true), change: func(s *cluster.State) { s.CRDs = []cluster.CRD{} },
			want: []string{"error servicemonitor-crd"}},
		"GKE without a quota": {change: func(s *cluster.State) {
			s.Nodes[0].Spec.ProviderID = "gce://p/z/n"
			s.Nodes[0].Labels["cloud.google.com/gke-nodepool"] = "default"
		}, want: []string{"error priority-quota"}},
		"quota used up":      {change: func(s *cluster.State) { s.Quotas = []corev1.ResourceQuota{quota("10", "10", "system-node-critical")} }, want: []string{"error priority-quota"}},
		"a quota with room":  {change: func(s *cluster.State) { s.Quotas = []corev1.ResourceQuota{quota("10", "100", "system-node-critical")} }},
		"a quota of storage": {change: func(s *cluster.State) { s.Quotas = []corev1.ResourceQuota{compute("requests.storage", "services")} }},
		"GKE with a quota without a priority class": {change: func(s *cluster.State) {
			s.Nodes[0].Spec.ProviderID = "gce://p/z/n"
			s.Nodes[0].Labels["cloud.google.com/gke-nodepool"] = "default"
			s.Quotas = []corev1.ResourceQuota{compute("pods")}
		}, want: []string{"error priority-quota"}},
		"GKE with the required quota": {change: func(s *cluster.State) {
			s.Nodes[0].Spec.ProviderID = "gce://p/z/n"
			s.Nodes[0].Labels["cloud.google.com/gke-nodepool"] = "default"
			s.Quotas = []corev1.ResourceQuota{quota("10", "100", "system-node-critical")}
		}},
		"a quota for another priority class": {change: func(s *cluster.State) { s.Quotas = []corev1.ResourceQuota{quota("10", "10", "batch")} }},
		"a client": {change: func(s *cluster.State) {
			d := daemonSet("monitoring", "dcgm-exporter", "nvcr.io/nvidia/k8s/dcgm-exporter:4.4.0")
			class := "nvidia"
			d.Spec.Template.Spec.RuntimeClassName = &class
			s.DaemonSets = append(s.DaemonSets, d)
		}, want: []string{"warning gpu-client"}},
		"client by NVIDIA_VISIBLE_DEVICES": {change: func(s *cluster.State) {
			d := daemonSet("monitoring", "dcgm-exporter", "nvcr.io/nvidia/k8s/dcgm-exporter:4.4.0")
			d.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "NVIDIA_VISIBLE_DEVICES", Value: "all"}}
			s.DaemonSets = append(s.DaemonSets, d)
		}, want: []string{"warning gpu-client"}},
		"no client: NVIDIA_VISIBLE_DEVICES=void": {change: func(s *cluster.State) {
			d := daemonSet("monitoring", "agent", "agent:1")
			d.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "NVIDIA_VISIBLE_DEVICES", Value: "void"}}
			s.DaemonSets = append(s.DaemonSets, d)
		}},
		"client that is evicted": {change: func(s *cluster.State) {
			d := daemonSet("monitoring", "dcgm-exporter", "nvcr.io/nvidia/k8s/dcgm-exporter:4.4.0")
			d.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "NVIDIA_VISIBLE_DEVICES", Value: "all"}}
			d.Spec.Template.Spec.NodeSelector = map[string]string{"nvidia.com/gpu.deploy.client": "true"}
			s.DaemonSets = append(s.DaemonSets, d)
		}},
		"pods rejected by a quota": {change: func(s *cluster.State) {
			for _, name := range []string{"nvidia-driver-daemonset", "nvidia-device-plugin-daemonset"} {
				d := appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name}}
				d.Spec.Template.Spec.NodeSelector = map[string]string{"nvidia.com/gpu.deploy." + strings.TrimSuffix(strings.TrimPrefix(name, "nvidia-"), "-daemonset"): "true"}
				d.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
				d.Status.DesiredNumberScheduled = 2
				s.DaemonSets = append(s.DaemonSets, d)
				s.Events = append(s.Events, corev1.Event{Type: corev1.EventTypeWarning, Reason: "FailedCreate",
					InvolvedObject: corev1.ObjectReference{Kind: "DaemonSet", Namespace: s.Namespace, Name: name},
					Message:        "Error creating: insufficient quota to match these scopes: [{PriorityClass In [system-node-critical system-cluster-critical]}]"})
			}
		}, want: []string{"error pods-refused"}, says: "no ResourceQuota of the namespace allows the pods' PriorityClass"},
		"node not ready": {change: func(s *cluster.State) { node(s, "gpu-1").Status.Conditions[0].Status = corev1.ConditionUnknown }, want: []string{"warning node-ready gpu-1"}},
		"no GPUs":        {change: func(s *cluster.State) { s.Nodes = s.Nodes[:1] }, want: []string{"warning gpu-nodes"}},
		"nodes forbidden": {change: func(s *cluster.State) {
			s.Nodes = nil
			s.Missing = []cluster.Missing{{Kind: cluster.Nodes, Why: cluster.Forbidden, Detail: "nodes is forbidden"}}
		}, want: []string{"warning unread"}},
		"everything forbidden": {change: func(s *cluster.State) {
			var missing []cluster.Missing
			for _, k := range judge.PreflightKinds() {
				missing = append(missing, cluster.Missing{Kind: k, Why: cluster.Forbidden, Detail: "forbidden"})
			}
			*s = cluster.State{Title: s.Title, At: s.At, Namespace: s.Namespace, Missing: missing}
		}, want: append([]string{"note unread", "warning kubernetes-version"}, slices.Repeat([]string{"warning unread"}, 7)...)},
		"DaemonSets of one namespace": {change: func(s *cluster.State) {
			s.Missing = []cluster.Missing{{Kind: cluster.DaemonSets, Why: cluster.Partial, Detail: "one namespace"}}
		}, want: []string{"warning device-plugin", "warning nfd"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := planned(t)
			if c.change != nil {
				c.change(s)
			}
			if c.version == "" {
				c.version = "v26.7.0"
			}
			rows := preflighted(t, s, judge.Options{Table: chart.Load(), Release: release(t, c.version), Values: c.values})
			slices.Sort(c.want)
			if diff := cmp.Diff(c.want, wrong(rows)); diff != "" {
				t.Errorf("findings that are not OK (-want +got):\n%s", diff)
			}
			if c.says != "" && !slices.ContainsFunc(rows, func(v check.Finding) bool { return strings.Contains(v.Reason, c.says) }) {
				t.Errorf("no reason contains %q:\n%s", c.says, text(rows))
			}
		})
	}
}

// compute returns a quota without scopes that limits these resources.
func compute(names ...corev1.ResourceName) corev1.ResourceQuota {
	q := corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "gpu-operator", Name: "compute"}}
	q.Spec.Hard = corev1.ResourceList{}
	for _, name := range names {
		q.Spec.Hard[name] = resource.MustParse("50")
	}
	return q
}

func quota(used, hard, class string) corev1.ResourceQuota {
	q := corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "gpu-operator", Name: "quota"}}
	q.Spec.ScopeSelector = &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{{
		ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: corev1.ScopeSelectorOpIn, Values: []string{class}}}}
	q.Status.Hard = corev1.ResourceList{corev1.ResourcePods: resource.MustParse(hard)}
	q.Status.Used = corev1.ResourceList{corev1.ResourcePods: resource.MustParse(used)}
	return q
}
