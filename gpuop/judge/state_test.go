package judge_test

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/judge"
)

var at = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// gathered reads testdata/healthy once. The cluster has two nodes with eight A100 GPUs each, and one without GPUs.
// Every operand is ready.
var gathered = sync.OnceValues(func() (*cluster.State, error) {
	return cluster.Folder(filepath.Join("testdata", "healthy")).Read(context.Background(), judge.VerifyKinds()...)
})

// healthy returns testdata/healthy as the state of a live cluster, after the patches.
func healthy(t *testing.T, patches ...map[string]any) *cluster.State {
	t.Helper()
	read, err := gathered()
	if err != nil {
		t.Fatal(err)
	}
	live := *read
	live.Title, live.At, live.Version, live.Missing = "https://10.0.0.1:6443", at, "v1.36.3", nil
	live.ConfigMaps = []corev1.ConfigMap{}
	live.NVIDIADrivers, live.GPUClusters = []unstructured.Unstructured{}, []unstructured.Unstructured{}
	if len(live.Nodes) != 3 || len(live.Pods) != 15 || len(live.DaemonSets) != 8 || len(live.ClusterPolicies) != 1 {
		t.Fatalf("testdata/healthy: %d nodes, %d pods, %d DaemonSets and %d policies, want 3, 15, 8 and 1",
			len(live.Nodes), len(live.Pods), len(live.DaemonSets), len(live.ClusterPolicies))
	}
	return patched(t, &live, patches...)
}

// A situation is a change to a cluster, and the findings that it leads to.
type situation[Finding any] struct {
	Name    string
	Base    string // the patch that comes before Patch
	Patch   map[string]any
	Version string         // the release to install
	Values  map[string]any // chart values
	Config  string         // the MIG config to apply
	Want    []Finding
	Not     []Finding
	Says    string // text that a reason must contain
}

// situations are the contents of a file.
type situations[Finding any] struct {
	Bases           map[string]map[string]any
	Healthy, States []situation[Finding]
}

// load reads a file of testdata.
func load[Finding any](t *testing.T, name string) (all situations[Finding]) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err == nil {
		err = yaml.UnmarshalStrict(data, &all)
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return all
}

// patched returns a state after JSON merge patches (RFC 7386). In the document that is patched, the objects of a kind
// are a map by name. The result has them sorted by name.
func patched(t testing.TB, s *cluster.State, patches ...map[string]any) *cluster.State {
	t.Helper()
	doc := document(t, s)
	for _, p := range patches {
		merge(doc, p)
	}
	for kind, value := range doc {
		if objects, ok := value.(map[string]any); ok && kind != "DriverLogs" {
			list := []any{}
			for _, name := range slices.Sorted(maps.Keys(objects)) {
				object := objects[name].(map[string]any)
				merge(object, map[string]any{"Name": name, "kind": kind, "metadata": map[string]any{"name": name}})
				list = append(list, object)
			}
			doc[kind] = list
		}
	}
	data, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	out := &cluster.State{}
	if err := json.Unmarshal(data, out); err != nil {
		t.Fatalf("patched state is invalid: %v", err)
	}
	return out
}

// document returns a state as JSON, with the objects of each kind in a map by name.
func document(t testing.TB, s *cluster.State) map[string]any {
	t.Helper()
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	for kind, value := range doc {
		list, ok := value.([]any)
		if !ok || kind == "Missing" || len(list) == 0 {
			continue
		}
		objects := map[string]any{}
		for _, e := range list {
			object := e.(map[string]any)
			name, ok := object["Name"].(string) // a cluster.CRD has this key
			if !ok {
				metadata, _ := object["metadata"].(map[string]any)
				name, _ = metadata["name"].(string)
			}
			objects[name] = object
		}
		doc[kind] = objects
	}
	return doc
}

// merge applies a JSON merge patch to a document.
func merge(doc, patch map[string]any) {
	for key, value := range patch {
		group, isGroup := value.(map[string]any)
		if value == nil {
			delete(doc, key)
		} else if !isGroup {
			doc[key] = value
		} else {
			if _, ok := doc[key].(map[string]any); !ok {
				doc[key] = map[string]any{}
			}
			merge(doc[key].(map[string]any), group)
		}
	}
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

// unlabel removes the labels of the operator from a node.
func unlabel(n *corev1.Node) {
	maps.DeleteFunc(n.Labels, func(name, _ string) bool { return strings.HasPrefix(name, "nvidia.com/") })
}

func setting(s *cluster.State, value any, path ...string) {
	if err := unstructured.SetNestedField(s.ClusterPolicies[0].Object, value, append([]string{"spec"}, path...)...); err != nil {
		panic(err)
	}
}

// scheduled acts like the DaemonSet controller. It sets the number of pods of each DaemonSet to the number of nodes
// that match the node selector, and removes pods from other nodes.
func scheduled(s *cluster.State) {
	for i := range s.DaemonSets {
		d, nodes := &s.DaemonSets[i], int32(0)
		for k := range s.Nodes {
			fits := true
			for key, value := range d.Spec.Template.Spec.NodeSelector {
				if have, found := s.Nodes[k].Labels[key]; !found || have != value {
					fits = false
				}
			}
			if fits {
				nodes++
			} else {
				s.Pods = slices.DeleteFunc(s.Pods, func(p corev1.Pod) bool {
					return p.Spec.NodeName == s.Nodes[k].Name && len(p.OwnerReferences) > 0 && p.OwnerReferences[0].Name == d.Name
				})
			}
		}
		d.Status.DesiredNumberScheduled, d.Status.CurrentNumberScheduled = nodes, nodes
		d.Status.NumberReady, d.Status.NumberAvailable, d.Status.UpdatedNumberScheduled = nodes, nodes, nodes
	}
}

// machines reserves both nodes for virtual machines: by the label if workload is not empty, otherwise by the default.
func machines(s *cluster.State, workload string) {
	setting(s, true, "sandboxWorkloads", "enabled")
	for _, name := range []string{"gpu-1", "gpu-2"} {
		n := node(s, name)
		for key := range n.Labels {
			if strings.HasPrefix(key, "nvidia.com/") && key != "nvidia.com/gpu.present" {
				delete(n.Labels, key)
			}
		}
		if workload != "" {
			label(n, "nvidia.com/gpu.workload.config", workload)
		}
		label(n, "nvidia.com/gpu.deploy.vfio-manager", "true", "nvidia.com/gpu.deploy.sandbox-validator", "true", "nvidia.com/gpu.deploy.sandbox-device-plugin", "true")
		offers(n, map[string]string{"nvidia.com/GA100_A100_SXM4_80GB": "8"})
	}
	scheduled(s)
}

// own labels nodes as having a preinstalled driver, as the driver manager does, and removes their driver pods.
func own(s *cluster.State, names ...string) {
	for _, name := range names {
		label(node(s, name), "nvidia.com/gpu.deploy.driver", "pre-installed")
	}
	scheduled(s)
}

// driverPool adds a driver DaemonSet for the nodes labeled key=value, and makes it the owner of their driver pods.
// NVIDIADrivers, precompiled drivers and OpenShift's driver toolkit use such DaemonSets.
func driverPool(s *cluster.State, name, key, value string) {
	d := set(s, "nvidia-driver-daemonset").DeepCopy()
	d.Name, d.UID = name, ""
	d.Spec.Template.Spec.NodeSelector[key] = value
	s.DaemonSets = append(s.DaemonSets, *d)
	for i := range s.Pods {
		p := &s.Pods[i]
		if len(p.OwnerReferences) == 0 || p.OwnerReferences[0].Name != "nvidia-driver-daemonset" {
			continue
		}
		if node(s, p.Spec.NodeName).Labels[key] == value {
			p.OwnerReferences[0].Name, p.OwnerReferences[0].UID = name, ""
		}
	}
}

// onlyPools removes the cluster-wide driver DaemonSet and its pods, so that only those of node pools are left.
func onlyPools(s *cluster.State) {
	s.DaemonSets = slices.DeleteFunc(s.DaemonSets, func(d appsv1.DaemonSet) bool { return d.Name == "nvidia-driver-daemonset" })
	s.Pods = slices.DeleteFunc(s.Pods, func(p corev1.Pod) bool {
		return len(p.OwnerReferences) > 0 && p.OwnerReferences[0].Name == "nvidia-driver-daemonset"
	})
	scheduled(s)
}

// noSandbox gives a pod the RuntimeClass nvidia and the status it has before the kubelet creates its sandbox. The
// status starts at since.
func noSandbox(p *corev1.Pod, since time.Time) {
	class := "nvidia"
	p.Spec.RuntimeClassName = &class
	p.CreationTimestamp = metav1.NewTime(since)
	inInit(p, p.Status.InitContainerStatuses[0].Name, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}})
	p.Status.Conditions = []corev1.PodCondition{
		{Type: "PodReadyToStartContainers", Status: "False", LastTransitionTime: metav1.NewTime(since)},
		{Type: "Initialized", Status: "False", Reason: "ContainersNotInitialized", LastTransitionTime: metav1.NewTime(since)},
		{Type: "Ready", Status: "False", Reason: "ContainersNotReady", LastTransitionTime: metav1.NewTime(since)},
		{Type: "PodScheduled", Status: "True", LastTransitionTime: metav1.NewTime(since)},
	}
}

// workload returns a pod that the validator has started on a node, with an init container that crashes. It belongs to
// the ClusterPolicy, not to the DaemonSet.
func workload(app, on string) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: app + "-x", Namespace: "gpu-operator", Labels: map[string]string{"app": app}, CreationTimestamp: metav1.NewTime(at.Add(-time.Minute)), OwnerReferences: []metav1.OwnerReference{{APIVersion: "nvidia.com/v1", Kind: "ClusterPolicy", Name: "cluster-policy"}}},
		Spec:       corev1.PodSpec{NodeName: on},
		Status: corev1.PodStatus{Phase: corev1.PodPending, InitContainerStatuses: []corev1.ContainerStatus{{
			Name: "cuda-validation", RestartCount: 6,
			State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off"}},
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error"}},
		}}},
	}
}
