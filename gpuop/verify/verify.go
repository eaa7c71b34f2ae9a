package verify

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/verdict"
)

// The labels and prefixes that are judged.
const (
	deployPrefix  = "nvidia.com/gpu.deploy."
	labelPresent  = "nvidia.com/gpu.present"
	labelOperands = "nvidia.com/gpu.deploy.operands"
	labelWorkload = "nvidia.com/gpu.workload.config"
	labelUpgrade  = "nvidia.com/gpu-driver-upgrade-state"
	labelSkip     = "nvidia.com/gpu-driver-upgrade.skip"
	labelMIG      = "nvidia.com/mig.config"
	labelMIGState = "nvidia.com/mig.config.state"
	labelVGPU     = "nvidia.com/vgpu.config"
	labelVGPUDone = "nvidia.com/vgpu.config.state"
	nfdPrefix     = "feature.node.kubernetes.io/"
)

// preInstalled is the value of the driver's deploy label where the driver manager found a driver of the
// host's, and keeps the driver container off the node.
const preInstalled = "pre-installed"

// Where the expectations are documented.
const (
	sourcePolicy    = "gpu-operator controllers/clusterpolicy_controller.go"
	sourceDriver    = "gpu-operator controllers/nvidiadriver_controller.go"
	sourceLabels    = "gpu-operator controllers/state_manager.go"
	sourceDaemonSet = "gpu-operator controllers/object_controls.go"
	sourceAssets    = "gpu-operator assets/"
	sourceUpgrade   = "k8s-operator-libs pkg/upgrade/consts.go"
	sourceManager   = "k8s-driver-manager cmd/driver-manager/main.go"
	sourceMIG       = "mig-parted pkg/mig/reconfigure/reconfigure.go"
	sourceVGPU      = "vgpu-device-manager cmd/nvidia-k8s-vgpu-dm/main.go"
	sourceValidator = "gpu-operator cmd/nvidia-validator/main.go"
	sourcePredict   = "k8s-device-plugin internal/lm and internal/rm"
	sourceSharing   = "k8s-device-plugin cmd/config-manager/main.go"
	sourceRestart   = "GPU Operator documentation, time-slicing GPUs"
	sourceTaints    = "Kubernetes documentation, taints and tolerations"
	sourceRBAC      = "Kubernetes documentation, RBAC"
)

// Kinds are what Judge reads of a cluster.
func Kinds() []cluster.Kind {
	return []cluster.Kind{
		cluster.Nodes, cluster.Pods, cluster.DaemonSets, cluster.ConfigMaps,
		cluster.ClusterPolicies, cluster.NVIDIADrivers, cluster.GPUClusters, cluster.Events,
	}
}

// Judge returns the rows of a cluster: first the cluster's own, then those of each node with a GPU.
// Within both the rows are in the order in which they depend on each other. A kind that could not be
// read yields a row that is unknown, and nothing is said of what depends on it.
func Judge(s *cluster.State) []verdict.Verdict {
	j := newJudge(s)
	policies := j.chosen()
	j.missing()
	j.policies(policies)
	j.discovery()
	j.daemonSets()
	j.configs()
	for i := range s.Nodes {
		if isGPUNode(&s.Nodes[i]) {
			j.node(&s.Nodes[i])
		}
	}
	j.conclude()
	j.rows = verdict.Together(j.rows)
	for i := range j.rows {
		if j.rows[i].State == verdict.OK {
			// a healthy node differs from the next in these times alone, and shares its branch
			j.rows[i].Since = time.Time{}
		}
	}
	return j.rows
}

// conclude makes a ClusterPolicy that waits for operands one that has failed where an operand has:
// no waiting ends that.
func (j *judge) conclude() {
	i := slices.IndexFunc(j.rows, func(v verdict.Verdict) bool { return v.ID == "cluster-policy" && v.State == verdict.Waiting })
	if i >= 0 && slices.ContainsFunc(j.rows, func(v verdict.Verdict) bool {
		return v.State == verdict.Failed && (v.ID == "operand" || v.ID == "daemonset" || v.ID == "sharing-config")
	}) {
		j.rows[i].State = verdict.Failed
	}
}

// Settled reports whether waiting longer can bring nothing: no row waits and none failed. Rows that
// are unknown or a warning do not change by themselves.
func Settled(rows []verdict.Verdict) bool {
	return !slices.ContainsFunc(rows, func(v verdict.Verdict) bool {
		return v.State == verdict.Waiting || v.State == verdict.Failed
	})
}

// judge holds the state with what finds its way in it.
type judge struct {
	*cluster.State
	rows []verdict.Verdict
	// policy is the ClusterPolicy in force; nil without one.
	policy *unstructured.Unstructured
	// operands are those of the operator's release, in the order in which it makes them.
	operands []chart.Operand
	// sets are the DaemonSets of operands, in the order of dependence.
	sets []operandSet
	// pods are those of operands by node.
	pods map[string][]*corev1.Pod
	// maps are the ConfigMaps of the operator's namespace by name: each node may have one.
	maps map[string]*corev1.ConfigMap
	// sharing are the device plugin's configs, by name; nil without a ConfigMap.
	sharing *sharingConfigs
}

func newJudge(s *cluster.State) *judge {
	j := &judge{State: s, pods: map[string][]*corev1.Pod{}, maps: map[string]*corev1.ConfigMap{}}
	for i := range s.ConfigMaps {
		if m := &s.ConfigMaps[i]; m.Namespace == s.Namespace {
			j.maps[m.Name] = m
		}
	}
	for i := range s.Pods {
		if p := &s.Pods[i]; p.Namespace == s.Namespace && p.Spec.NodeName != "" {
			j.pods[p.Spec.NodeName] = append(j.pods[p.Spec.NodeName], p)
		}
	}
	for i := range s.DaemonSets {
		d := &s.DaemonSets[i]
		if component := componentOf(d); component != "" && d.Namespace == s.Namespace {
			j.sets = append(j.sets, operandSet{DaemonSet: d, component: component})
		}
	}
	table := chart.Load()
	release := table.Latest()
	for _, p := range s.Policies() {
		if v, ok := table.Labeled(p.GetLabels()); ok {
			release = v
			break
		}
	}
	j.operands = operandsOf(release)
	slices.SortStableFunc(j.sets, func(a, b operandSet) int {
		return cmp.Or(cmp.Compare(j.order(a.component), j.order(b.component)), cmp.Compare(a.Name, b.Name))
	})
	return j
}

// operandSet is the DaemonSet of an operand.
type operandSet struct {
	*appsv1.DaemonSet
	component string
}

// componentOf is what follows nvidia.com/gpu.deploy. in the DaemonSet's nodeSelector; empty where
// the DaemonSet is no operand's. The component client marks other programs' DaemonSets.
func componentOf(d *appsv1.DaemonSet) string {
	for _, key := range slices.Sorted(maps.Keys(d.Spec.Template.Spec.NodeSelector)) {
		if component, ok := strings.CutPrefix(key, deployPrefix); ok && component != "client" {
			return component
		}
	}
	return ""
}

func (j *judge) add(v verdict.Verdict) { j.rows = append(j.rows, v) }

// lacks reports whether what is judged of a kind could not be read. A part of a list is enough where
// it holds the operator's namespace, or nodes.
func (j *judge) lacks(kind cluster.Kind) bool {
	m := j.Lacks(kind)
	switch {
	case m == nil:
		return false
	case m.Why != cluster.Partial:
		return true
	case kind == cluster.Pods:
		return !slices.ContainsFunc(j.Pods, func(p corev1.Pod) bool { return p.Namespace == j.Namespace })
	case kind == cluster.DaemonSets:
		return !slices.ContainsFunc(j.DaemonSets, func(d appsv1.DaemonSet) bool { return d.Namespace == j.Namespace })
	}
	return false
}

// absent reports whether the cluster does not serve a kind.
func (j *judge) absent(kind cluster.Kind) bool {
	m := j.Lacks(kind)
	return m != nil && m.Why == cluster.Absent
}

// needed reports whether a kind that a folder does not hold leaves something open. NVIDIA's script
// gathers no ConfigMaps, and other custom resources than the ClusterPolicy where there are some.
func (j *judge) needed(kind cluster.Kind) bool {
	switch kind {
	case cluster.ConfigMaps:
		return j.text("devicePlugin", "config", "name") != ""
	case cluster.NVIDIADrivers:
		return j.boolean(false, "driver", "useNvidiaDriverCRD")
	case cluster.GPUClusters:
		return j.policy == nil
	case cluster.Events:
		return false // they name causes, and no row depends on them
	}
	return true
}

// missing is a row for each kind that could not be read. A custom resource that the cluster does not
// serve is judged with the others of its kind.
func (j *judge) missing() {
	custom := []cluster.Kind{cluster.ClusterPolicies, cluster.NVIDIADrivers, cluster.GPUClusters}
	for _, kind := range Kinds() {
		m := j.Lacks(kind)
		if !j.lacks(kind) || m.Why == cluster.Absent && slices.Contains(custom, kind) || m.Why == cluster.Unread && !j.needed(kind) {
			continue
		}
		v := verdict.Verdict{
			ID: "unread", State: verdict.Unknown, Subject: cmp.Or(m.Verb, "list") + " " + string(kind),
			Reason: fmt.Sprintf("%s; nothing is said of what depends on %s", strings.TrimSuffix(cmp.Or(m.Detail, string(m.Why)), "."), kind),
			Source: sourceRBAC,
		}
		switch m.Why {
		case cluster.Forbidden:
			v.Next = fmt.Sprintf("kubectl auth can-i %s %s --all-namespaces", cmp.Or(m.Verb, "list"), kind)
		case cluster.Unread, cluster.Partial:
			v.Source, v.Next = "gpu-operator hack/must-gather.sh", fmt.Sprintf("kubectl get %s -A -o yaml > %s.yaml  # into the folder", kind, kind)
		case cluster.Absent, cluster.Failed:
			v.Source = "Kubernetes documentation, API concepts"
		}
		j.add(v)
	}
}

// isGPUNode reports whether a node has, or is meant to have, a GPU of NVIDIA.
func isGPUNode(n *corev1.Node) bool {
	if cluster.GPUNode(n) {
		return true
	}
	for key := range n.Labels {
		if strings.HasPrefix(key, deployPrefix) && key != labelOperands {
			return true
		}
	}
	return false
}

// owners are when each client that owns a field last wrote to its object, as managedFields says. The
// path is made of names: "metadata", "labels", "nvidia.com/mig.config".
func owners(fields []metav1.ManagedFieldsEntry, path ...string) []time.Time {
	var times []time.Time
	for _, entry := range fields {
		if entry.FieldsV1 == nil || entry.Time == nil {
			continue
		}
		raw := entry.FieldsV1.GetRawBytes()
		for _, name := range path {
			var children map[string]json.RawMessage
			if json.Unmarshal(raw, &children) != nil {
				raw = nil
				break
			}
			raw = children["f:"+name]
		}
		if raw != nil {
			times = append(times, entry.Time.Time)
		}
	}
	return times
}

// labelWritten is when a label of a node had its value at the latest; zero where that is not known.
// A client that changes a value takes it from those that owned it, so that every owner has seen this
// value: the earliest of their times is the nearest.
func labelWritten(n *corev1.Node, label string) time.Time {
	times := owners(n.ManagedFields, "metadata", "labels", label)
	if len(times) == 0 {
		return time.Time{}
	}
	return slices.MinFunc(times, time.Time.Compare)
}

// listed joins up to four names and counts the others.
func listed(names []string) string {
	const most = 4
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}
