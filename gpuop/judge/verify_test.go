package judge_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/judge"
)

var update = flag.Bool("update", false, "write the golden files")

var at = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// gathered reads testdata/healthy once. The cluster has two nodes with eight A100 GPUs each, and one without GPUs.
// Every operand is ready.
var gathered = sync.OnceValues(func() (*cluster.State, error) {
	return cluster.Folder(filepath.Join("testdata", "healthy")).Read(context.Background(), judge.VerifyKinds()...)
})

// healthy returns testdata/healthy as the state of a live cluster.
func healthy(t *testing.T) *cluster.State {
	t.Helper()
	read, err := gathered()
	if err != nil {
		t.Fatal(err)
	}
	s := &cluster.State{
		Title: "https://10.0.0.1:6443", At: at, Version: "v1.36.3", Namespace: read.Namespace,
		ConfigMaps: []corev1.ConfigMap{}, NVIDIADrivers: []unstructured.Unstructured{}, GPUClusters: []unstructured.Unstructured{},
	}
	for i := range read.Nodes {
		s.Nodes = append(s.Nodes, *read.Nodes[i].DeepCopy())
	}
	for i := range read.Pods {
		s.Pods = append(s.Pods, *read.Pods[i].DeepCopy())
	}
	for i := range read.DaemonSets {
		s.DaemonSets = append(s.DaemonSets, *read.DaemonSets[i].DeepCopy())
	}
	for i := range read.ClusterPolicies {
		s.ClusterPolicies = append(s.ClusterPolicies, *read.ClusterPolicies[i].DeepCopy())
	}
	if len(s.Nodes) != 3 || len(s.Pods) != 15 || len(s.DaemonSets) != 8 || len(s.ClusterPolicies) != 1 || s.Namespace != "gpu-operator" {
		t.Fatalf("testdata/healthy: %d nodes, %d pods, %d DaemonSets, %d policies in namespace %s; want 3, 15, 8 and 1 in gpu-operator",
			len(s.Nodes), len(s.Pods), len(s.DaemonSets), len(s.ClusterPolicies), s.Namespace)
	}
	return s
}

var options = judge.Options{Table: chart.Load()}

// verified returns the findings of Verify, and checks their evidence.
func verified(t *testing.T, s *cluster.State) []check.Finding {
	t.Helper()
	return evidenced(t, judge.Verify(s, options))
}

// TestEvidenceOfANetworkDevice checks that evidence shows the allocatable and the capacity of a network device.
func TestEvidenceOfANetworkDevice(t *testing.T) {
	s := healthy(t)
	status := &node(s, "gpu-2").Status
	status.Capacity["nvidia.com/roce"], status.Allocatable["nvidia.com/roce"] = resource.MustParse("2"), resource.MustParse("1")
	for _, v := range verified(t, s) {
		if v.Subject == "nvidia.com/roce" && v.Evidence.Text == "nvidia.com/roce: allocatable 1, capacity 2" {
			return
		}
	}
	t.Error("no finding has the allocatable and the capacity of nvidia.com/roce as evidence")
}

// evidenced checks that every finding has a subject, a reason and evidence. Errors and waiting findings must have a fix.
func evidenced(t *testing.T, rows []check.Finding) []check.Finding {
	t.Helper()
	for _, v := range rows {
		if e := v.Evidence; v.Subject == "" || v.Reason == "" || e.Kind == "" || e.Object == "" || e.Text == "" {
			t.Errorf("finding = %+v, want a subject, a reason and evidence with kind, object and text", v)
		}
		if (v.Severity == check.Error || v.Severity == check.Waiting) && v.Fix == "" {
			t.Errorf("%s %s has severity %s but no fix: %s", v.Check.ID, v.Subject, v.Severity, v.Reason)
		}
	}
	return rows
}

func node(s *cluster.State, name string) *corev1.Node {
	i := slices.IndexFunc(s.Nodes, func(n corev1.Node) bool { return n.Name == name })
	return &s.Nodes[i]
}

func set(s *cluster.State, name string) *appsv1.DaemonSet {
	i := slices.IndexFunc(s.DaemonSets, func(d appsv1.DaemonSet) bool { return d.Name == name })
	return &s.DaemonSets[i]
}

// pod returns the pod of a DaemonSet on a node.
func pod(s *cluster.State, owner, on string) *corev1.Pod {
	i := slices.IndexFunc(s.Pods, func(p corev1.Pod) bool {
		return p.Spec.NodeName == on && len(p.OwnerReferences) > 0 && p.OwnerReferences[0].Name == owner
	})
	return &s.Pods[i]
}

// inInit changes a pod's status as if its named init container had the state and no later container had started.
func inInit(p *corev1.Pod, name string, state corev1.ContainerState) {
	after := false
	for i := range p.Status.InitContainerStatuses {
		c := &p.Status.InitContainerStatuses[i]
		if after || c.Name == name {
			c.Ready = false
			c.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}
			if !after {
				c.State = state
			}
			after = true
		}
	}
	if !after {
		panic(name)
	}
	p.Status.Phase = corev1.PodPending
	for i := range p.Status.ContainerStatuses {
		c := &p.Status.ContainerStatuses[i]
		c.Ready, c.State = false, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}
	}
}

func running(since time.Time) corev1.ContainerState {
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(since)}}
}

// crash puts a pod's first container into CrashLoopBackOff.
func crash(p *corev1.Pod) {
	c := &p.Status.ContainerStatuses[0]
	c.Ready, c.RestartCount = false, 14
	c.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 5m0s restarting failed container"}}
	c.LastTerminationState = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error"}}
}

func offers(n *corev1.Node, resources map[string]string) {
	for _, list := range []*corev1.ResourceList{&n.Status.Capacity, &n.Status.Allocatable} {
		for name := range *list {
			if strings.HasPrefix(string(name), "nvidia.com/") {
				delete(*list, name)
			}
		}
		for name, count := range resources {
			(*list)[corev1.ResourceName(name)] = resource.MustParse(count)
		}
	}
}

func label(n *corev1.Node, pairs ...string) {
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] == "-" {
			delete(n.Labels, pairs[i])
			continue
		}
		n.Labels[pairs[i]] = pairs[i+1]
	}
}

// labels returns a change that sets labels of a node.
func labels(name string, pairs ...string) func(*cluster.State) {
	return func(s *cluster.State) { label(node(s, name), pairs...) }
}

// wrote replaces managedFields with a single entry: mig-manager wrote the label at the given time.
func wrote(n *corev1.Node, name string, when time.Time) {
	at := metav1.NewTime(when)
	n.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: "nvidia-mig-manager", Time: &at, FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:` + name + `":{}}}}`),
	}}
}

func setting(s *cluster.State, value any, path ...string) {
	if err := unstructured.SetNestedField(s.ClusterPolicies[0].Object, value, append([]string{"spec"}, path...)...); err != nil {
		panic(err)
	}
}

func policyState(s *cluster.State, state, kind, reason, message string) {
	status := map[string]any{"state": state, "conditions": []any{map[string]any{
		"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": "2026-11-22T11:00:00Z",
	}}}
	s.ClusterPolicies[0].Object["status"] = status
}

// configMap adds a ConfigMap in the operator's namespace. If when is set, its data was last written then.
func configMap(s *cluster.State, name string, data map[string]string, when time.Time) {
	m := corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.Namespace}, Data: data}
	if !when.IsZero() {
		at := metav1.NewTime(when)
		m.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl", Time: &at, FieldsV1: metav1.NewFieldsV1(`{"f:data":{".":{},"f:any":{}}}`)}}
	}
	s.ConfigMaps = append(s.ConfigMaps, m)
}

const slicing = "version: v1\nsharing:\n  timeSlicing:\n    resources:\n      - name: nvidia.com/gpu\n        replicas: 5\n"

// shared sets up time-slicing on both GPU nodes: five replicas of each GPU. when is the last write to the ConfigMap.
func shared(s *cluster.State, when time.Time) {
	setting(s, "sharing", "devicePlugin", "config", "name")
	setting(s, "any", "devicePlugin", "config", "default")
	configMap(s, "sharing", map[string]string{"any": slicing}, when)
	for _, name := range []string{"gpu-1", "gpu-2"} {
		n := node(s, name)
		offers(n, map[string]string{"nvidia.com/gpu": "40"})
		label(n, "nvidia.com/gpu.product", "NVIDIA-A100-SXM4-80GB-SHARED", "nvidia.com/gpu.replicas", "5", "nvidia.com/gpu.sharing-strategy", "time-slicing")
	}
}

// divided puts gpu-1 into the state after a change to all-1g.10gb, with the mixed strategy.
func divided(s *cluster.State) {
	setting(s, "mixed", "mig", "strategy")
	label(node(s, "gpu-2"), "nvidia.com/mig.strategy", "mixed")
	n := node(s, "gpu-1")
	label(n, "nvidia.com/mig.config", "all-1g.10gb", "nvidia.com/mig.strategy", "mixed", "nvidia.com/gpu.replicas", "0",
		"nvidia.com/mig-1g.10gb.count", "56", "nvidia.com/mig-1g.10gb.replicas", "1", "nvidia.com/mig-1g.10gb.product", "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb")
	offers(n, map[string]string{"nvidia.com/mig-1g.10gb": "56", "nvidia.com/gpu": "0"})
}

// row is an expected finding: its check ID, node and severity, and words of its subject, reason, fix or age.
type row struct {
	id    string
	node  string
	state check.Severity
	words string
}

func (want row) in(rows []check.Finding) bool {
	return slices.ContainsFunc(rows, func(v check.Finding) bool {
		age := "for an unknown time"
		if !v.Since.IsZero() {
			age = "for " + at.Sub(v.Since).String()
		}
		return v.Check.ID == want.id && v.Node == want.node && v.Severity == want.state && strings.Contains(v.Subject+" "+v.Reason+" "+v.Fix+" "+age, want.words)
	})
}

func text(rows []check.Finding) string {
	var out bytes.Buffer
	tree := check.Report{Judged: true, At: at, Findings: slices.Clone(rows)}
	tree.Sort()
	_ = tree.WriteText(&out, check.Style{}, true)
	return out.String()
}

func TestVerifyOfHealthyClusters(t *testing.T) {
	for name, change := range map[string]func(*cluster.State){
		"as it is":            func(*cluster.State) {},
		"GPUs shared":         func(s *cluster.State) { shared(s, at.Add(-24*time.Hour)) },
		"GPUs divided, mixed": divided,
		"no managedFields":    func(s *cluster.State) { node(s, "gpu-1").ManagedFields = nil },
		"no CRD of NVIDIADriver": func(s *cluster.State) {
			s.Missing = append(s.Missing, cluster.Missing{Kind: cluster.NVIDIADrivers, Why: cluster.Absent})
		},
		"a node for virtual machines": func(s *cluster.State) {
			setting(s, true, "sandboxWorkloads", "enabled")
			n := node(s, "gpu-1")
			for name := range n.Labels {
				if strings.HasPrefix(name, "nvidia.com/") && name != "nvidia.com/gpu.present" {
					delete(n.Labels, name)
				}
			}
			label(n, "nvidia.com/gpu.workload.config", "vm-passthrough", "nvidia.com/gpu.deploy.vfio-manager", "true")
			offers(n, map[string]string{"nvidia.com/GA100_A100_SXM4_80GB": "8"})
		},
		"GPU Feature Discovery switched off": func(s *cluster.State) {
			setting(s, false, "gfd", "enabled")
			s.DaemonSets = slices.DeleteFunc(s.DaemonSets, func(d appsv1.DaemonSet) bool { return d.Name == "gpu-feature-discovery" })
			for _, name := range []string{"gpu-1", "gpu-2"} {
				label(node(s, name), "nvidia.com/gpu.product", "-", "nvidia.com/gpu.count", "-")
				offers(node(s, name), map[string]string{"nvidia.com/gpu": "8"})
			}
		},
		"devices from DRA": func(s *cluster.State) {
			s.ClusterPolicies, s.DaemonSets = []unstructured.Unstructured{}, s.DaemonSets[:1]
			s.GPUClusters = []unstructured.Unstructured{{Object: map[string]any{"metadata": map[string]any{"name": "dra"}, "status": map[string]any{"state": "ready"}}}}
			for _, name := range []string{"gpu-1", "gpu-2"} {
				offers(node(s, name), nil)
				label(node(s, name), "nvidia.com/gpu.product", "-", "nvidia.com/gpu.count", "-")
			}
		},
		"only what must-gather collects": func(s *cluster.State) {
			s.ConfigMaps, s.NVIDIADrivers, s.GPUClusters = nil, nil, nil
			for kind, why := range map[cluster.Kind]cluster.Why{cluster.ConfigMaps: cluster.Unread, cluster.NVIDIADrivers: cluster.Unread, cluster.GPUClusters: cluster.Unread, cluster.Pods: cluster.Partial, cluster.DaemonSets: cluster.Partial, cluster.Nodes: cluster.Partial} {
				s.Missing = append(s.Missing, cluster.Missing{Kind: kind, Why: why})
			}
		},
		"toleration of everything":            taintAll,
		"all nodes have preinstalled drivers": func(s *cluster.State) { own(s, "gpu-1", "gpu-2") },
		"one node has a preinstalled driver":  func(s *cluster.State) { own(s, "gpu-1") },
		"all nodes for virtual machines":      func(s *cluster.State) { machines(s, "vm-passthrough") },
		"default workload is virtual machines": func(s *cluster.State) {
			setting(s, "vm-passthrough", "sandboxWorkloads", "defaultWorkload")
			machines(s, "")
		},
		"workload label equal to the default": func(s *cluster.State) {
			setting(s, true, "sandboxWorkloads", "enabled")
			label(node(s, "gpu-1"), "nvidia.com/gpu.workload.config", "container")
		},
		"drivers by kernel": func(s *cluster.State) {
			label(node(s, "gpu-1"), "feature.node.kubernetes.io/kernel-version.full", "5.15.0-160-generic")
			label(node(s, "gpu-2"), "feature.node.kubernetes.io/kernel-version.full", "5.15.0-161-generic")
			driverPool(s, "nvidia-driver-daemonset-5.15.0-160-generic-ubuntu22.04", "feature.node.kubernetes.io/kernel-version.full", "5.15.0-160-generic")
			driverPool(s, "nvidia-driver-daemonset-5.15.0-161-generic-ubuntu22.04", "feature.node.kubernetes.io/kernel-version.full", "5.15.0-161-generic")
			onlyPools(s)
		},
		"divided, single": func(s *cluster.State) {
			n := node(s, "gpu-1")
			label(n, "nvidia.com/mig.config", "all-1g.10gb", "nvidia.com/gpu.product", "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", "nvidia.com/gpu.count", "56", "nvidia.com/gpu.memory", "9728")
			offers(n, map[string]string{"nvidia.com/gpu": "56"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := healthy(t)
			change(s)
			rows := verified(t, s)
			if i := slices.IndexFunc(rows, func(v check.Finding) bool { return !v.Since.IsZero() }); i >= 0 {
				t.Errorf("%s: since = %s, want zero, so that healthy nodes share a finding", rows[i].Subject, rows[i].Since)
			}
			for _, v := range rows {
				if v.Severity != check.OK {
					t.Errorf("%s %s on %q is %s, want ok: %s", v.Check.ID, v.Subject, v.Node, v.Severity, v.Reason)
				}
				if v.Fix != "" {
					t.Errorf("%s %s is OK but has the fix %q", v.Check.ID, v.Subject, v.Fix)
				}
			}
			if len(rows) < 10 {
				t.Errorf("findings = %d, want at least 10", len(rows))
			}
		})
	}
}

// taintAll adds taints to gpu-1, and lets the pods of every DaemonSet tolerate everything.
func taintAll(s *cluster.State) {
	n := node(s, "gpu-1")
	n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "team", Value: "ml", Effect: "NoExecute"}, corev1.Taint{Key: "node.kubernetes.io/memory-pressure", Effect: "NoSchedule"}, corev1.Taint{Key: "soft", Effect: "PreferNoSchedule"})
	for i := range s.DaemonSets {
		s.DaemonSets[i].Spec.Template.Spec.Tolerations = []corev1.Toleration{{Operator: "Exists"}}
	}
}

func TestStates(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*cluster.State)
		want   []row
	}{
		"node dump with labels but no resource": {func(s *cluster.State) {
			// a new node, with nothing known but its labels
			*s = cluster.State{At: at, Namespace: "gpu-operator", Nodes: []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "infracloud01", Labels: map[string]string{
				"nvidia.com/gpu.deploy.container-toolkit": "true", "nvidia.com/gpu.deploy.dcgm": "true", "nvidia.com/gpu.deploy.dcgm-exporter": "true",
				"nvidia.com/gpu.deploy.device-plugin": "true", "nvidia.com/gpu.deploy.driver": "true", "nvidia.com/gpu.deploy.gpu-feature-discovery": "true",
				"nvidia.com/gpu.deploy.node-status-exporter": "true", "nvidia.com/gpu.deploy.operator-validator": "true", "nvidia.com/gpu.present": "true",
			}}}}}
			for _, k := range []cluster.Kind{cluster.Pods, cluster.DaemonSets, cluster.ClusterPolicies, cluster.ConfigMaps, cluster.NVIDIADrivers, cluster.GPUClusters} {
				s.Missing = append(s.Missing, cluster.Missing{Kind: k, Why: cluster.Unread, Detail: "the folder contains no " + string(k)})
			}
		}, []row{
			{"node-no-gpu-resource", "infracloud01", check.Error, "device plugin has not registered"},
			{"node-no-gpu-labels", "infracloud01", check.Warning, "has not labeled the node"},
			{"unread", "", check.Unknown, "list pods"},
			{"unread", "", check.Unknown, "kubectl get clusterpolicies.nvidia.com"},
		}},
		"no operator": {func(s *cluster.State) {
			s.ClusterPolicies = nil
			s.Missing = append(s.Missing, cluster.Missing{Kind: cluster.ClusterPolicies, Why: cluster.Absent})
		}, []row{{"cluster-policy", "", check.Error, "not installed"}}},
		"no ClusterPolicy": {func(s *cluster.State) { s.ClusterPolicies = []unstructured.Unstructured{} },
			[]row{{"cluster-policy", "", check.Error, "no ClusterPolicy or GPUCluster"}}},
		"neither ClusterPolicy nor operator": {func(s *cluster.State) {
			s.ClusterPolicies = []unstructured.Unstructured{}
			s.Pods = slices.DeleteFunc(s.Pods, func(p corev1.Pod) bool { return p.Labels["app"] == "gpu-operator" })
		}, []row{{"cluster-policy", "", check.Error, "the GPU Operator is not installed"}}},
		"a driver image for another operating system": {func(s *cluster.State) {
			p := pod(s, "nvidia-driver-daemonset", "gpu-2")
			crash(p)
			node(s, "gpu-2").Status.NodeInfo.OSImage = "Ubuntu 22.04.5 LTS"
			p.Spec.Containers[0].Image = "registry.example.com:5000/nvidia/driver:580.105.08-rhel9.6"
		}, []row{{"operand", "gpu-2", check.Error, "its image is for rhel9.6, but the node runs ubuntu 22.04: container nvidia-driver-ctr is in CrashLoopBackOff"}}},
		"two ClusterPolicies": {func(s *cluster.State) {
			younger := *s.ClusterPolicies[0].DeepCopy()
			younger.SetName("a-second")
			younger.SetCreationTimestamp(metav1.NewTime(at))
			s.ClusterPolicies = []unstructured.Unstructured{younger, s.ClusterPolicies[0]}
		}, []row{{"cluster-policy", "", check.Warning, "kubectl delete clusterpolicy a-second"}, {"cluster-policy", "", check.OK, "ClusterPolicy/cluster-policy"}}},
		"ClusterPolicy and GPUCluster": {func(s *cluster.State) {
			s.GPUClusters = []unstructured.Unstructured{{Object: map[string]any{"metadata": map[string]any{"name": "dra"}, "status": map[string]any{"state": "ready"}}}}
		}, []row{{"gpu-cluster", "", check.Error, "cannot be combined with"}}},
		"ClusterPolicy ready without NFD": {func(s *cluster.State) { policyState(s, "ready", "Ready", "NFDLabelsMissing", "No NFD labels found") }, []row{{"cluster-policy", "", check.Error, "no node has labels of Node Feature Discovery"}}},
		"ClusterPolicy ready without GPU nodes": {func(s *cluster.State) { policyState(s, "ready", "Ready", "NoGPUNodes", "") },
			[]row{{"cluster-policy", "", check.Warning, "found no node with a GPU"}}},
		"ClusterPolicy waits": {func(s *cluster.State) {
			policyState(s, "notReady", "Error", "OperandNotReady", "ClusterPolicy is not ready; states not ready: [state-driver]")
		}, []row{{"cluster-policy", "", check.Waiting, "states not ready: [state-driver]"}}},
		"ClusterPolicy cannot be reconciled": {func(s *cluster.State) {
			policyState(s, "notReady", "Error", "ReconcileFailed", "Failed to reconcile state-driver: no OS")
		}, []row{{"cluster-policy", "", check.Error, "no OS"}}},
		"ClusterPolicy without a state": {func(s *cluster.State) { unstructured.RemoveNestedField(s.ClusterPolicies[0].Object, "status") }, []row{{"cluster-policy", "", check.Waiting, "the operator has not processed it"}}},
		"ClusterPolicy in an unknown state": {func(s *cluster.State) { policyState(s, "dreaming", "Ready", "", "") },
			[]row{{"cluster-policy", "", check.Unknown, "dreaming"}}},
		"ClusterPolicy ignored": {func(s *cluster.State) { policyState(s, "ignored", "Ready", "", "") },
			[]row{{"cluster-policy", "", check.Warning, "ignored"}}},
		"ClusterPolicy disabled": {func(s *cluster.State) { policyState(s, "disabled", "Ready", "", "") },
			[]row{{"cluster-policy", "", check.Warning, "disabled"}}},
		"NVIDIADriver that is not used": {func(s *cluster.State) {
			s.NVIDIADrivers = []unstructured.Unstructured{{Object: map[string]any{"metadata": map[string]any{"name": "pool"}, "status": map[string]any{"state": "ready"}}}}
		}, []row{{"nvidia-driver", "", check.Warning, "driver.useNvidiaDriverCRD is not true"}}},
		"NVIDIADriver not ready": {func(s *cluster.State) {
			setting(s, true, "driver", "useNvidiaDriverCRD")
			s.NVIDIADrivers = []unstructured.Unstructured{{Object: map[string]any{"metadata": map[string]any{"name": "pool"}, "status": map[string]any{"state": "notReady"}}}}
		}, []row{{"nvidia-driver", "", check.Waiting, "NVIDIADriver/pool"}}},
		"no NVIDIADriver": {func(s *cluster.State) { setting(s, true, "driver", "useNvidiaDriverCRD") },
			[]row{{"nvidia-driver", "", check.Error, "no node gets a driver"}}},
		"a second device plugin": {func(s *cluster.State) {
			d := appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "nvdp"}}
			d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "plugin", Image: "nvcr.io/nvidia/k8s-device-plugin:v0.17.0"}}
			d.Status.DesiredNumberScheduled = 2
			s.DaemonSets = append(s.DaemonSets, d)
		}, []row{{"device-plugin", "", check.Error, "kubectl delete daemonset -n kube-system nvdp"}}},
		"events forbidden": {func(s *cluster.State) {
			s.Missing = append(s.Missing, cluster.Missing{Kind: cluster.Events, Why: cluster.Forbidden, Detail: "events is forbidden"})
		}, []row{{"unread", "", check.Note, "kubectl auth can-i list events"}}},
		"operator not running": {func(s *cluster.State) {
			s.Pods = slices.DeleteFunc(s.Pods, func(p corev1.Pod) bool { return p.Labels["app"] == "gpu-operator" })
		}, []row{{"operator-pod", "", check.Error, "have no effect"}}},
		"no NFD": {func(s *cluster.State) {
			for i := range s.Nodes {
				for name := range s.Nodes[i].Labels {
					if strings.HasPrefix(name, "feature.node.kubernetes.io/") {
						delete(s.Nodes[i].Labels, name)
					}
				}
			}
		}, []row{{"gpu-nodes", "", check.Warning, "cannot find new GPU nodes"}}},
		"no NFD and no GPU": {func(s *cluster.State) { s.Nodes = []corev1.Node{{}} },
			[]row{{"gpu-nodes", "", check.Error, "the operator has found no GPU"}}},
		"no GPU": {func(s *cluster.State) { s.Nodes = s.Nodes[:1] },
			[]row{{"gpu-nodes", "", check.Warning, "PCI vendor 10de"}}},
		"node without the operator's label": {func(s *cluster.State) {
			n := node(s, "gpu-1")
			for name := range n.Labels {
				if strings.HasPrefix(name, "nvidia.com/") {
					delete(n.Labels, name)
				}
			}
			offers(n, nil)
		}, []row{{"gpu-present", "gpu-1", check.Error, "the operator has not labeled the node"}}},
		"node not ready": {func(s *cluster.State) {
			node(s, "gpu-2").Status.Conditions[0] = corev1.NodeCondition{Type: "Ready", Status: "Unknown", Reason: "NodeStatusUnknown", Message: "Kubelet stopped posting node status."}
		}, []row{{"node-ready", "gpu-2", check.Error, "(NodeStatusUnknown): Kubelet stopped posting node status"}}},
		"node cordoned": {func(s *cluster.State) { node(s, "gpu-2").Spec.Unschedulable = true },
			[]row{{"node-ready", "gpu-2", check.Note, "cordoned"}}},
		"operands disabled on the node": {labels("gpu-2", "nvidia.com/gpu.deploy.operands", "false"), []row{{"operands-off", "gpu-2", check.Note, "the other checks are skipped"}}},

		"driver crashes, the others wait": {func(s *cluster.State) {
			policyState(s, "notReady", "Error", "OperandNotReady", "ClusterPolicy is not ready")
			crash(pod(s, "nvidia-driver-daemonset", "gpu-1"))
			inInit(pod(s, "nvidia-container-toolkit-daemonset", "gpu-1"), "driver-validation", running(at.Add(-time.Hour)))
			inInit(pod(s, "nvidia-device-plugin-daemonset", "gpu-1"), "toolkit-validation", running(at.Add(-time.Hour)))
			offers(node(s, "gpu-1"), nil)
			d := set(s, "nvidia-driver-daemonset")
			d.Status.NumberReady, d.Status.NumberAvailable, d.Status.NumberUnavailable = 1, 1, 1
		}, []row{
			{"operand", "gpu-1", check.Error, "2 DaemonSets wait for it"},
			{"operand", "gpu-1", check.Error, "CrashLoopBackOff after 14 restarts: back-off 5m0s restarting failed container; it ended with exit code 1 (Error)"},
			{"operand", "gpu-1", check.Error, "--previous"},
		}},
		"driver is being built": {func(s *cluster.State) {
			p := pod(s, "nvidia-driver-daemonset", "gpu-1")
			p.Status.ContainerStatuses[0].Ready, p.Status.ContainerStatuses[0].State = false, running(at.Add(-2*time.Minute))
			inInit(pod(s, "nvidia-device-plugin-daemonset", "gpu-1"), "toolkit-validation", running(at.Add(-time.Minute)))
			offers(node(s, "gpu-1"), nil)
		}, []row{
			{"operand", "gpu-1", check.Waiting, " waits for it"},
		}},
		"validator waits for the plugin": {func(s *cluster.State) {
			inInit(pod(s, "nvidia-operator-validator", "gpu-1"), "plugin-validation", running(at))
			crash(pod(s, "nvidia-device-plugin-daemonset", "gpu-1"))
		}, []row{{"operand", "gpu-1", check.Error, "device-plugin"}}},
		"validator waits for the toolkit": {func(s *cluster.State) {
			inInit(pod(s, "nvidia-operator-validator", "gpu-1"), "toolkit-validation", corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
				Reason: "RunContainerError", Message: `no runtime for "nvidia" is configured`}})
		}, []row{{"operand", "gpu-1", check.Error, `init container toolkit-validation is in RunContainerError after 0 restarts: no runtime for "nvidia" is configured: it waits for the container toolkit`}}},
		"image cannot be pulled": {func(s *cluster.State) {
			c := &pod(s, "nvidia-driver-daemonset", "gpu-2").Status.ContainerStatuses[0]
			c.Ready, c.State = false, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "Back-off pulling image"}}
		}, []row{{"operand", "gpu-2", check.Error, "cannot get its image nvcr.io/nvidia/driver:580.95.05-ubuntu22.04: ImagePullBackOff: Back-off pulling image"}}},
		"init image cannot be pulled": {func(s *cluster.State) {
			inInit(pod(s, "nvidia-device-plugin-daemonset", "gpu-2"), "config-manager-init", corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}})
		}, []row{{"operand", "gpu-2", check.Error, "init container config-manager-init cannot get its image nvcr.io/nvidia/gpu-operator:v26.7.0"}}},
		"unscheduled pod": {func(s *cluster.State) {
			p := pod(s, "gpu-feature-discovery", "gpu-2")
			p.Status = corev1.PodStatus{Phase: "Pending", Conditions: []corev1.PodCondition{{Type: "PodScheduled", Status: "False", Reason: "Unschedulable", Message: "Too many pods."}}}
		}, []row{{"operand", "gpu-2", check.Error, "the pod cannot be scheduled (Unschedulable): Too many pods"}}},
		"pod has failed": {func(s *cluster.State) {
			pod(s, "nvidia-dcgm-exporter", "gpu-2").Status = corev1.PodStatus{Phase: "Failed", Reason: "UnexpectedAdmissionError", Message: "Allocate failed"}
		}, []row{{"operand", "gpu-2", check.Error, "(UnexpectedAdmissionError): Allocate failed"}, {"operand", "gpu-2", check.Error, "kubectl delete pod"}}},
		"terminating pod": {func(s *cluster.State) {
			now := metav1.NewTime(at)
			pod(s, "nvidia-dcgm-exporter", "gpu-2").DeletionTimestamp = &now
		}, []row{{"operand", "gpu-2", check.Waiting, "terminating"}}},
		"container has ended": {func(s *cluster.State) {
			c := &pod(s, "nvidia-dcgm-exporter", "gpu-2").Status.ContainerStatuses[0]
			c.Ready, c.State = false, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}}
		}, []row{{"operand", "gpu-2", check.Error, "ended with exit code 137 (OOMKilled)"}}},
		"pod starts": {func(s *cluster.State) {
			pod(s, "nvidia-dcgm-exporter", "gpu-2").Status = corev1.PodStatus{Phase: "Pending"}
		}, []row{{"operand", "gpu-2", check.Waiting, "the pod is pending"}}},
		"pod is missing": {func(s *cluster.State) { pod(s, "nvidia-dcgm-exporter", "gpu-2").Spec.NodeName = "elsewhere" }, []row{{"operand", "gpu-2", check.Waiting, "has no pod of this operand"}}},
		"toleration is missing": {func(s *cluster.State) {
			n := node(s, "gpu-2")
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "team", Value: "ml", Effect: "NoSchedule"})
			pod(s, "nvidia-driver-daemonset", "gpu-2").Spec.NodeName = "elsewhere"
		}, []row{{"operand", "gpu-2", check.Error, "kubectl taint node gpu-2 team:NoSchedule-"}}},

		"taints that keep nothing away": {func(s *cluster.State) {
			n := node(s, "gpu-2")
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "soft", Effect: "PreferNoSchedule"}, corev1.Taint{Key: "node.kubernetes.io/unreachable", Effect: "NoExecute"})
			pod(s, "nvidia-driver-daemonset", "gpu-2").Spec.NodeName = "elsewhere"
		}, []row{{"operand", "gpu-2", check.Waiting, "driver the node has no pod of this operand"}}},
		"a toleration of everything": {func(s *cluster.State) {
			n := node(s, "gpu-2")
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "team", Value: "ml", Effect: "NoSchedule"})
			set(s, "nvidia-driver-daemonset").Spec.Template.Spec.Tolerations = []corev1.Toleration{{Operator: "Exists"}}
			pod(s, "nvidia-driver-daemonset", "gpu-2").Spec.NodeName = "elsewhere"
		}, []row{{"operand", "gpu-2", check.Waiting, "driver the node has no pod of this operand"}}},
		"terminating pod listed before its replacement": {func(s *cluster.State) {
			now := metav1.NewTime(at)
			p := pod(s, "nvidia-dcgm-exporter", "gpu-2")
			young := p.DeepCopy()
			p.DeletionTimestamp = &now
			crash(young)
			s.Pods = append(s.Pods, *young)
		}, []row{{"operand", "gpu-2", check.Error, "dcgm-exporter container nvidia-dcgm-exporter is in CrashLoopBackOff"}}},
		"terminating pod listed after its replacement": {func(s *cluster.State) {
			now := metav1.NewTime(at)
			p := pod(s, "nvidia-dcgm-exporter", "gpu-2")
			old := p.DeepCopy()
			old.DeletionTimestamp = &now
			crash(p)
			s.Pods = append(s.Pods, *old)
		}, []row{{"operand", "gpu-2", check.Error, "dcgm-exporter container nvidia-dcgm-exporter is in CrashLoopBackOff"}}},
		"a ConfigMap of two owners": {func(s *cluster.State) {
			shared(s, at.Add(-24*time.Hour))
			late := metav1.NewTime(at.Add(-time.Hour))
			s.ConfigMaps[0].ManagedFields = append(s.ConfigMaps[0].ManagedFields, metav1.ManagedFieldsEntry{Time: &late, FieldsV1: metav1.NewFieldsV1(`{"f:data":{"f:other":{}}}`)})
			offers(node(s, "gpu-1"), map[string]string{"nvidia.com/gpu": "16"})
		}, []row{{"stale-config", "gpu-1", check.Error, "the ConfigMap changed 1h55m0s after the device plugin read it"}}},
		"MIG config missing from the custom ConfigMap": {func(s *cluster.State) {
			divided(s)
			setting(s, "custom", "migManager", "config", "name")
			configMap(s, "custom", map[string]string{"config.yaml": "version: v1\nmig-configs:\n  mine:\n    - devices: all\n      mig-enabled: false\n"}, time.Time{})
		}, []row{{"mig-config", "gpu-1", check.Error, `no MIG config "all-1g.10gb" for the node in ConfigMap/custom`}}},
		"static MIG configs selected, generated ones ignored": {func(s *cluster.State) {
			divided(s)
			setting(s, "default-mig-parted-config", "migManager", "config", "name")
			configMap(s, "gpu-1-mig-config", map[string]string{"config.yaml": "version: v1\nmig-configs:\n  all-1g.10gb:\n    - devices: all\n      mig-enabled: true\n      mig-devices:\n        1g.10gb: 7\n"}, time.Time{})
			configMap(s, "default-mig-parted-config", map[string]string{"config.yaml": "version: v1\nmig-configs:\n  other: []\n"}, time.Time{})
		}, []row{{"mig-config", "gpu-1", check.Error, `no MIG config "all-1g.10gb" for the node in ConfigMap/default-mig-parted-config`}}},
		"desired 0: taint": {func(s *cluster.State) {
			for _, name := range []string{"gpu-1", "gpu-2"} {
				node(s, name).Spec.Taints = []corev1.Taint{{Key: "nvidia.com/gpu", Value: "true", Effect: "NoExecute"}}
			}
			set(s, "nvidia-driver-daemonset").Status = appsv1.DaemonSetStatus{ObservedGeneration: 1}
		}, []row{{"daemonset", "", check.Error, "its pods do not tolerate the taint nvidia.com/gpu=true:NoExecute of gpu-1"}}},
		"desired 0: label": {func(s *cluster.State) {
			for _, name := range []string{"gpu-1", "gpu-2"} {
				label(node(s, name), "nvidia.com/gpu.deploy.driver", "")
			}
			set(s, "nvidia-driver-daemonset").Status = appsv1.DaemonSetStatus{ObservedGeneration: 1}
		}, []row{{"daemonset", "", check.Error, `it selects nvidia.com/gpu.deploy.driver=true, but the label is "" on 2 GPU nodes`}, {"operand", "gpu-1", check.Warning, `the label is ""`}}},
		"desired 0: paused": {func(s *cluster.State) {
			for _, name := range []string{"gpu-1", "gpu-2"} {
				label(node(s, name), "nvidia.com/gpu.deploy.device-plugin", "paused-for-mig-change", "nvidia.com/mig.config.state", "pending")
			}
			set(s, "nvidia-device-plugin-daemonset").Status = appsv1.DaemonSetStatus{ObservedGeneration: 1}
		}, []row{{"daemonset", "", check.Waiting, "paused-for-mig-change"}}},
		"desired 0: no MIG": {func(s *cluster.State) {
			for _, name := range []string{"gpu-1", "gpu-2"} {
				label(node(s, name), "nvidia.com/gpu.deploy.mig-manager", "-", "nvidia.com/mig.capable", "false", "nvidia.com/mig.config", "-", "nvidia.com/mig.config.state", "-")
			}
			set(s, "nvidia-mig-manager").Status = appsv1.DaemonSetStatus{ObservedGeneration: 1}
		}, []row{{"daemonset", "", check.OK, "no node has a GPU with MIG support"}}},
		"desired 0: nodes unknown": {func(s *cluster.State) {
			s.Nodes = nil
			s.Missing = append(s.Missing, cluster.Missing{Kind: cluster.Nodes, Why: cluster.Forbidden, Detail: `nodes is forbidden: User "ci" cannot list resource "nodes"`})
			set(s, "nvidia-driver-daemonset").Status = appsv1.DaemonSetStatus{ObservedGeneration: 1}
		}, []row{{"daemonset", "", check.Unknown, "the cause is unknown"}, {"unread", "", check.Unknown, "kubectl auth can-i list nodes"}}},
		"desired 0: not explained": {func(s *cluster.State) {
			set(s, "nvidia-driver-daemonset").Status = appsv1.DaemonSetStatus{ObservedGeneration: 1}
		}, []row{{"daemonset", "", check.Error, "an affinity excludes the node"}}},
		"DaemonSet was not created": {func(s *cluster.State) {
			s.DaemonSets = slices.DeleteFunc(s.DaemonSets, func(d appsv1.DaemonSet) bool { return d.Name == "nvidia-driver-daemonset" })
		}, []row{{"daemonset", "", check.Error, "driver.enabled enables the operand"}}},
		"rollout": {func(s *cluster.State) { set(s, "nvidia-dcgm-exporter").Status.UpdatedNumberScheduled = 1 },
			[]row{{"daemonset", "", check.Waiting, "kubectl rollout status"}}},
		"driver rollout": {func(s *cluster.State) { set(s, "nvidia-driver-daemonset").Status.UpdatedNumberScheduled = 1 }, []row{{"daemonset", "", check.Waiting, "when the driver upgrade reaches its node"}}},
		"DaemonSet changed": {func(s *cluster.State) { set(s, "nvidia-driver-daemonset").Generation = 2 },
			[]row{{"daemonset", "", check.Waiting, "has not processed the latest change"}}},

		"driver upgrade": {func(s *cluster.State) {
			n := node(s, "gpu-1")
			label(n, "nvidia.com/gpu-driver-upgrade-state", "drain-required", "nvidia.com/gpu.deploy.device-plugin", "paused-for-driver-upgrade")
			offers(n, nil)
		}, []row{
			{"driver-upgrade", "gpu-1", check.Waiting, "is in progress (drain-required)"},
			{"node-operand-paused", "gpu-1", check.Waiting, "until the driver upgrade ends"},
		}},
		"driver upgrade failed": {func(s *cluster.State) {
			label(node(s, "gpu-1"), "nvidia.com/gpu-driver-upgrade-state", "upgrade-failed", "nvidia.com/gpu.deploy.device-plugin", "paused-for-driver-upgrade")
		}, []row{{"driver-upgrade", "gpu-1", check.Error, "fix the driver pod"}, {"node-operand-paused", "gpu-1", check.Error, "nothing resumes the operand"}}},
		"driver upgrade unknown": {func(s *cluster.State) {
			label(node(s, "gpu-1"), "nvidia.com/gpu-driver-upgrade-state", "coffee")
		}, []row{{"driver-upgrade", "gpu-1", check.Unknown, "coffee"}}},

		"MIG pending": {func(s *cluster.State) {
			n := node(s, "gpu-1")
			label(n, "nvidia.com/mig.config", "all-1g.10gb", "nvidia.com/mig.config.state", "pending", "nvidia.com/gpu.deploy.device-plugin", "paused-for-mig-change", "nvidia.com/gpu.deploy.client", "paused-for-mig-change")
			wrote(n, "nvidia.com/mig.config.state", at.Add(-time.Minute))
		}, []row{
			{"node-mig-state", "gpu-1", check.Waiting, "for 1m0s"},
			{"node-operand-paused", "gpu-1", check.Waiting, "nvidia.com/gpu.deploy.device-plugin"},
			{"node-operand-paused", "gpu-1", check.Waiting, "2 operands are paused this way"},
		}},
		"MIG config requested a moment ago": {func(s *cluster.State) {
			n := node(s, "gpu-1")
			label(n, "nvidia.com/mig.config", "all-1g.10gb", "nvidia.com/mig.config.state", "success")
			wrote(n, "nvidia.com/mig.config.state", at.Add(-time.Hour))
			before := n.ManagedFields
			wrote(n, "nvidia.com/mig.config", at.Add(-30*time.Second))
			n.ManagedFields = slices.Concat(before, n.ManagedFields)
		}, []row{
			{"node-mig-state", "gpu-1", check.Waiting, "the state success is from the previous change"},
		}},
		"MIG config requested without a reaction": {func(s *cluster.State) {
			n := node(s, "gpu-1")
			label(n, "nvidia.com/mig.config", "all-1g.10gb", "nvidia.com/mig.config.state", "success")
			wrote(n, "nvidia.com/mig.config.state", at.Add(-time.Hour))
			before := n.ManagedFields
			wrote(n, "nvidia.com/mig.config", at.Add(-10*time.Minute))
			n.ManagedFields = slices.Concat(before, n.ManagedFields)
		}, []row{{"mig-success-without-devices", "gpu-1", check.Error, "offers 8, expected 56"}}},
		"MIG pending for an hour": {func(s *cluster.State) {
			n := node(s, "gpu-1")
			label(n, "nvidia.com/mig.config", "all-1g.10gb", "nvidia.com/mig.config.state", "pending", "nvidia.com/gpu.deploy.dcgm-exporter", "paused-for-mig-change")
			wrote(n, "nvidia.com/mig.config.state", at.Add(-time.Hour))
		}, []row{{"node-mig-state", "gpu-1", check.Error, "it has probably given up without changing the state kubectl label node gpu-1 nvidia.com/mig.config- &&"}}},
		"MIG pending for an unknown time": {func(s *cluster.State) {
			n := node(s, "gpu-1")
			n.ManagedFields = nil
			label(n, "nvidia.com/mig.config.state", "pending")
		}, []row{{"node-mig-state", "gpu-1", check.Waiting, "for an unknown time"}}},
		"MIG failed": {func(s *cluster.State) {
			label(node(s, "gpu-1"), "nvidia.com/mig.config.state", "failed", "nvidia.com/gpu.deploy.dcgm-exporter", "paused-for-mig-change")
		}, []row{{"node-mig-state", "gpu-1", check.Error, "could not be applied"}, {"node-operand-paused", "gpu-1", check.Error, "nothing resumes the operand"}}},
		"MIG restarts the node":   {labels("gpu-1", "nvidia.com/mig.config.state", "rebooting"), []row{{"node-mig-state", "gpu-1", check.Waiting, "the node restarts"}}},
		"MIG without a state":     {labels("gpu-1", "nvidia.com/mig.config.state", "-"), []row{{"node-mig-state", "gpu-1", check.Waiting, "has not set a state"}}},
		"MIG in an unknown state": {labels("gpu-1", "nvidia.com/mig.config.state", "maybe"), []row{{"node-mig-state", "gpu-1", check.Unknown, "maybe"}}},
		"MIG success without devices": {func(s *cluster.State) {
			divided(s)
			n := node(s, "gpu-1")
			label(n, "nvidia.com/mig-1g.10gb.count", "-", "nvidia.com/mig-1g.10gb.replicas", "-", "nvidia.com/mig-1g.10gb.product", "-", "nvidia.com/gpu.replicas", "1")
			offers(n, map[string]string{"nvidia.com/gpu": "8"})
		}, []row{
			{"mig-success-without-devices", "gpu-1", check.Error, "the MIG change to \"all-1g.10gb\" succeeded, but the node offers 0, expected 56"},
			{"allocatable", "gpu-1", check.Error, "offers 8, expected 0"},
		}},
		"MIG success with another profile, single": {func(s *cluster.State) {
			label(node(s, "gpu-1"), "nvidia.com/mig.config", "all-2g.20gb", "nvidia.com/gpu.product", "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", "nvidia.com/gpu.count", "56")
			offers(node(s, "gpu-1"), map[string]string{"nvidia.com/gpu": "56"})
		}, []row{{"mig-success-without-devices", "gpu-1", check.Error, `creates 2g.20gb, but gpu.product is`}}},
		"MIG success with one device missing, single": {func(s *cluster.State) {
			label(node(s, "gpu-1"), "nvidia.com/mig.config", "all-1g.10gb", "nvidia.com/gpu.product", "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", "nvidia.com/gpu.count", "55")
			offers(node(s, "gpu-1"), map[string]string{"nvidia.com/gpu": "55"})
		}, []row{{"mig-success-without-devices", "gpu-1", check.Error, "gpu.count is 55, not a multiple of 7"}}},
		"MIG config of the node's ConfigMap": {func(s *cluster.State) {
			divided(s)
			label(node(s, "gpu-1"), "nvidia.com/mig.config", "mine")
			configMap(s, "gpu-1-mig-config", map[string]string{"config.yaml": "version: v1\nmig-configs:\n  mine:\n    - devices: all\n      mig-enabled: true\n      mig-devices:\n        1g.10gb: 6\n"}, time.Time{})
		}, []row{{"allocatable", "gpu-1", check.Error, "offers 56, expected 48 from 8 × NVIDIA-A100-SXM4-80GB, MIG config mine"}}},
		"unknown MIG config": {labels("gpu-1", "nvidia.com/mig.config", "all-9g.90gb"), []row{{"mig-config", "gpu-1", check.Error, `no MIG config "all-9g.90gb"`}}},
		"MIG config that leaves a GPU out": {func(s *cluster.State) {
			label(node(s, "gpu-1"), "nvidia.com/mig.config", "half", "nvidia.com/mig.config.state", "pending")
			wrote(node(s, "gpu-1"), "nvidia.com/mig.config.state", at.Add(-time.Minute))
			configMap(s, "gpu-1-mig-config", map[string]string{"config.yaml": "version: v1\nmig-configs:\n  half:\n    - devices: [0]\n      mig-enabled: false\n"}, time.Time{})
		}, []row{{"mig-config", "gpu-1", check.Waiting, "no entry covers GPU 1"}}},
		"MIG-INVALID": {func(s *cluster.State) {
			n := node(s, "gpu-1")
			label(n, "nvidia.com/gpu.product", "NVIDIA-A100-SXM4-80GB-MIG-INVALID", "nvidia.com/gpu.count", "0", "nvidia.com/gpu.replicas", "0", "nvidia.com/gpu.memory", "0", "nvidia.com/gpu.sharing-strategy", "")
			offers(n, map[string]string{"nvidia.com/gpu": "0"})
		}, []row{{"node-mig-state", "gpu-1", check.Error, "the strategy single does not support"}}},

		"a GPU is unhealthy": {func(s *cluster.State) {
			node(s, "gpu-2").Status.Allocatable["nvidia.com/gpu"] = resource.MustParse("7")
		}, []row{{"node-capacity-differs", "gpu-2", check.Warning, "7 of 8 are allocatable"}}},
		"no GPU is allocatable": {func(s *cluster.State) {
			node(s, "gpu-2").Status.Allocatable["nvidia.com/gpu"] = resource.MustParse("0")
		}, []row{{"node-capacity-differs", "gpu-2", check.Error, "none of 8 is allocatable"}}},
		"no GPU is allocatable while the driver is replaced": {func(s *cluster.State) {
			node(s, "gpu-2").Status.Allocatable["nvidia.com/gpu"] = resource.MustParse("0")
			label(node(s, "gpu-2"), "nvidia.com/gpu-driver-upgrade-state", "pod-restart-required")
		}, []row{{"driver-upgrade", "gpu-2", check.Waiting, ""}}},
		"a label of two owners": {func(s *cluster.State) {
			n := node(s, "gpu-1")
			label(n, "nvidia.com/mig.config", "all-1g.10gb", "nvidia.com/mig.config.state", "pending")
			wrote(n, "nvidia.com/mig.config.state", at.Add(-time.Second))
			young := n.ManagedFields
			wrote(n, "nvidia.com/mig.config.state", at.Add(-time.Hour))
			old := n.ManagedFields
			wrote(n, "nvidia.com/mig.config", at.Add(-2*time.Hour))
			n.ManagedFields = slices.Concat(young, old, n.ManagedFields)
		}, []row{{"node-mig-state", "gpu-1", check.Error, "for 1h0m0s"}}},
		"sharing ConfigMap absent": {func(s *cluster.State) { setting(s, "gone", "devicePlugin", "config", "name") },
			[]row{{"sharing-config", "", check.Error, "not found, although devicePlugin.config.name refers to it"}}},
		"sharing ConfigMap rejected": {func(s *cluster.State) {
			shared(s, time.Time{})
			s.ConfigMaps[0].Data["any"] = strings.ReplaceAll(slicing, "replicas: 5", "replicas: 1")
		}, []row{{"sharing-config", "", check.Error, "the device plugin requires at least 2"}, {"node-sharing-config", "gpu-1", check.Error, "does not start"}}},
		"sharing ConfigMap with a setting without effect": {func(s *cluster.State) {
			shared(s, time.Time{})
			s.ConfigMaps[0].Data["any"] = "flags:\n  migStrategy: mixed\n" + slicing
		}, []row{{"sharing-config", "", check.Warning, "line 2, flags.migStrategy: no effect with the GPU Operator"}}},
		"sharing ConfigMap not read": {func(s *cluster.State) {
			shared(s, time.Time{})
			s.ConfigMaps = nil
			s.Missing = append(s.Missing, cluster.Missing{Kind: cluster.ConfigMaps, Why: cluster.Forbidden, Detail: `configmaps is forbidden: User "ci" cannot list resource "configmaps"`})
		}, []row{{"unread", "", check.Unknown, "configmaps is forbidden"}, {"prediction", "gpu-1", check.Unknown, "the sharing config could not be read"}}},
		"sharing label names no config": {func(s *cluster.State) {
			shared(s, time.Time{})
			label(node(s, "gpu-1"), "nvidia.com/device-plugin.config", "amy")
		}, []row{{"node-sharing-config", "gpu-1", check.Error, `the ConfigMap has no config "amy": the config manager fails, and the device plugin does not start write any`}}},
		"sharing label without a ConfigMap": {labels("gpu-1", "nvidia.com/device-plugin.config", "any"), []row{{"node-sharing-config", "gpu-1", check.Warning, "the label has no effect"}}},
		"sharing without a default": {func(s *cluster.State) {
			shared(s, time.Time{})
			setting(s, "", "devicePlugin", "config", "default")
		}, []row{{"node-sharing-config", "gpu-1", check.Note, "the node shares no GPU"}, {"allocatable", "gpu-1", check.Error, "offers 40, expected 8"}}},
		"stale ConfigMap": {func(s *cluster.State) {
			shared(s, at.Add(-time.Hour))
			for _, name := range []string{"gpu-1", "gpu-2"} {
				n := node(s, name)
				offers(n, map[string]string{"nvidia.com/gpu": "16"})
				label(n, "nvidia.com/gpu.replicas", "2")
			}
		}, []row{
			{"stale-config", "", check.Error, "kubectl rollout restart -n gpu-operator daemonset/nvidia-device-plugin-daemonset"},
			{"allocatable", "gpu-1", check.Error, "offers 16, expected 40 from 8 × NVIDIA-A100-SXM4-80GB, sharing config any (time-slicing)"},
		}},
		"GFD has not labeled": {func(s *cluster.State) {
			label(node(s, "gpu-1"), "nvidia.com/gpu.product", "-", "nvidia.com/gpu.count", "-", "nvidia.com/gpu.replicas", "-")
		}, []row{{"node-no-gpu-labels", "gpu-1", check.Warning, "GPU Feature Discovery has not labeled"}, {"prediction", "gpu-1", check.Unknown, "its resources cannot be checked"}}},
		"folder with the pods of another namespace only": {func(s *cluster.State) {
			for i := range s.Pods {
				s.Pods[i].Namespace = "default"
			}
			s.Missing = append(s.Missing, cluster.Missing{Kind: cluster.Pods, Why: cluster.Partial, Detail: "the folder contains only the pods of the namespace default"})
		}, []row{{"unread", "", check.Unknown, "the pods of the namespace default"}}},
		"ClusterPolicy not read": {func(s *cluster.State) {
			s.ClusterPolicies = nil
			s.Missing = append(s.Missing, cluster.Missing{Kind: cluster.ClusterPolicies, Why: cluster.Forbidden, Detail: "clusterpolicies.nvidia.com is forbidden"})
		}, []row{{"unread", "", check.Unknown, "list clusterpolicies.nvidia.com"}, {"prediction", "gpu-1", check.Unknown, "the MIG strategy and the sharing config are unknown"}}},
		"label absent":     {labels("gpu-1", "nvidia.com/gpu.deploy.driver", "-"), []row{{"operand", "gpu-1", check.Error, "nvidia.com/gpu.deploy.driver the label is absent"}}},
		"label false":      {labels("gpu-1", "nvidia.com/gpu.deploy.dcgm-exporter", "false"), []row{{"operand", "gpu-1", check.Note, "an administrator keeps the operand off"}}},
		"label misspelled": {labels("gpu-1", "nvidia.com/gpu.deploy.dcgm-exporter", "ture"), []row{{"operand", "gpu-1", check.Warning, `the label is "ture"`}}},
		"label written after the ConfigMap": {func(s *cluster.State) {
			shared(s, at.Add(-2*time.Hour))
			label(node(s, "gpu-1"), "nvidia.com/device-plugin.config", "any")
			wrote(node(s, "gpu-1"), "nvidia.com/device-plugin.config", at.Add(-time.Hour))
			offers(node(s, "gpu-1"), map[string]string{"nvidia.com/gpu": "16"})
			offers(node(s, "gpu-2"), map[string]string{"nvidia.com/gpu": "16"})
		}, []row{{"stale-config", "gpu-2", check.Error, "the node still uses the old config"}}},
	} {
		t.Run(name, func(t *testing.T) {
			rows := verifiedWith(t, test.change, test.want)
			isStale := func(f check.Finding) bool { return f.Check.ID == "stale-config" && f.Node != "gpu-2" }
			if name == "label written after the ConfigMap" && slices.ContainsFunc(rows, isStale) {
				t.Errorf("gpu-1 has a finding of stale-config, want none: the config manager reads the ConfigMap again "+
					"when the label changes\n%s", text(rows))
			}
		})
	}
}

// verifiedWith returns the findings about the healthy cluster after a change. It expects the findings in want, which the
// healthy cluster must not have unless they are OK.
func verifiedWith(t *testing.T, change func(*cluster.State), want []row) []check.Finding {
	t.Helper()
	s := healthy(t)
	change(s)
	rows := verified(t, s)
	for _, w := range want {
		if !w.in(rows) {
			t.Errorf("missing finding: check %s, node %q, severity %s, text %q in\n%s", w.id, w.node, w.state, w.words, text(rows))
		}
		if w.state != check.OK && w.in(verified(t, healthy(t))) {
			t.Errorf("the healthy cluster has the finding %+v, want it only after the change", w)
		}
	}
	return rows
}

// TestMissingKindsAreUnknown removes every combination of lists. Each removed list must yield one finding of the check
// unread, and no finding may be an error, a warning or waiting.
func TestMissingKindsAreUnknown(t *testing.T) {
	kinds := judge.VerifyKinds()
	for mask := range 1 << len(kinds) {
		s := healthy(t)
		var without []string
		for i, kind := range kinds {
			if mask&(1<<i) == 0 {
				continue
			}
			without = append(without, string(kind))
			s.Missing = append(s.Missing, cluster.Missing{Kind: kind, Why: cluster.Forbidden, Detail: string(kind) + " is forbidden"})
			switch kind {
			case cluster.Nodes:
				s.Nodes = nil
			case cluster.Pods:
				s.Pods = nil
			case cluster.DaemonSets:
				s.DaemonSets = nil
			case cluster.ConfigMaps:
				s.ConfigMaps = nil
			case cluster.ClusterPolicies:
				s.ClusterPolicies = nil
			case cluster.NVIDIADrivers:
				s.NVIDIADrivers = nil
			case cluster.GPUClusters:
				s.GPUClusters = nil
			}
		}
		unread := 0
		for _, v := range verified(t, s) {
			if v.Check.ID == "unread" {
				unread++
			}
			if v.Severity == check.Error || v.Severity == check.Waiting || v.Severity == check.Warning {
				t.Errorf("without %v: %s %s on %q is %s: %s", without, v.Check.ID, v.Subject, v.Node, v.Severity, v.Reason)
			}
		}
		if unread != len(without) {
			t.Errorf("without %v: findings of the check unread = %d, want one for each", without, unread)
		}
	}
}

// TestGolden compares the findings of a cluster with several faults with golden files, as text and as JSON.
func TestGolden(t *testing.T) {
	s := healthy(t)
	policyState(s, "notReady", "Error", "OperandNotReady", "ClusterPolicy is not ready; states not ready: [state-driver state-container-toolkit state-device-plugin]")
	crash(pod(s, "nvidia-driver-daemonset", "gpu-1"))
	inInit(pod(s, "nvidia-container-toolkit-daemonset", "gpu-1"), "driver-validation", running(at.Add(-time.Hour)))
	inInit(pod(s, "nvidia-operator-validator", "gpu-1"), "driver-validation", running(at.Add(-time.Hour)))
	for _, name := range []string{"nvidia-device-plugin-daemonset", "gpu-feature-discovery", "nvidia-dcgm-exporter"} {
		inInit(pod(s, name, "gpu-1"), "toolkit-validation", running(at.Add(-time.Hour)))
	}
	offers(node(s, "gpu-1"), nil)
	n := node(s, "gpu-2")
	label(n, "nvidia.com/mig.config", "all-1g.10gb", "nvidia.com/mig.config.state", "pending", "nvidia.com/gpu.deploy.device-plugin", "paused-for-mig-change")
	wrote(n, "nvidia.com/mig.config.state", at.Add(-time.Hour))
	tree := check.Report{Judged: true, Title: s.Title, At: s.At, Findings: verified(t, s)}
	tree.Sort()
	var out bytes.Buffer
	if err := tree.WriteText(&out, check.Style{}, true); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&out, "\n%s\n", tree.Summary())
	golden(t, "broken.txt", out.Bytes())
	out.Reset()
	if err := check.WriteJSON(&out, &tree); err != nil {
		t.Fatal(err)
	}
	golden(t, "broken.json", out.Bytes())
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

// large returns a healthy cluster of n GPU nodes.
func large(t testing.TB, n int) *cluster.State {
	read, err := gathered()
	if err != nil {
		t.Fatal(err)
	}
	s := &cluster.State{At: at, Namespace: read.Namespace, DaemonSets: read.DaemonSets, ClusterPolicies: read.ClusterPolicies,
		ConfigMaps: []corev1.ConfigMap{}, NVIDIADrivers: []unstructured.Unstructured{}, GPUClusters: []unstructured.Unstructured{}}
	for i := range n {
		name := fmt.Sprintf("gpu-%04d", i)
		for _, node := range read.Nodes {
			if node.Name == "gpu-1" {
				node.Name = name
				s.Nodes = append(s.Nodes, node)
			}
		}
		for _, pod := range read.Pods {
			if pod.Spec.NodeName == "gpu-1" || i == 0 && pod.Labels["app"] == "gpu-operator" {
				pod.Name += name
				pod.Spec.NodeName = name
				s.Pods = append(s.Pods, pod)
			}
		}
	}
	return s
}

// TestJudgeIsLinear checks that ten times the nodes cause about ten times the allocations.
func TestJudgeIsLinear(t *testing.T) {
	allocations := func(n int) float64 {
		s := large(t, n)
		if rows := verified(t, s); len(rows) != 10*n+12 {
			t.Errorf("%d nodes: %d findings, want %d", n, len(rows), 10*n+12)
		}
		return testing.AllocsPerRun(1, func() { judge.Verify(s, options) })
	}
	if small, big := allocations(100), allocations(1000); big > 10.5*small {
		t.Errorf("allocations for 1000 nodes = %.0f, want at most 10.5 times the %.0f for 100 nodes", big, small)
	}
}

func BenchmarkJudge5000(b *testing.B) {
	s := large(b, 5000)
	b.ReportAllocs()
	for b.Loop() {
		judge.Verify(s, options)
	}
}
