package migchange

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/drift"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/mig"
)

// The labels of a MIG change.
const (
	// ConfigLabel names the config that is requested of a node; writing it begins a change.
	ConfigLabel = "nvidia.com/mig.config"
	stateLabel  = "nvidia.com/mig.config.state"
	deploy      = "nvidia.com/gpu.deploy."
	client      = deploy + "client"
	paused      = "paused-for-mig-change"
)

// An Observation is what is seen of a node at one time.
type Observation struct {
	At time.Time
	// Exists is false where the Node object is gone. Ready is the kubelet's condition.
	Exists, Ready bool
	// Config and State are the labels nvidia.com/mig.config and nvidia.com/mig.config.state.
	Config, State string
	// StateSince is when the state was written, or later; ConfigBy is who wrote the config, as its
	// field manager. Both are zero where the API server does not say.
	StateSince time.Time
	ConfigBy   string
	// Deploy are the labels nvidia.com/gpu.deploy.*, by component.
	Deploy map[string]string
	// Off are the components of which there is no DaemonSet, whatever the node's label: the operator
	// labels nodes for dcgm by default and does not install it.
	Off []string
	// Resources are the allocatable GPUs and MIG devices that are more than 0.
	Resources map[string]int
	// Missing is what keeps the MIG manager from acting, as the end of a sentence; empty where its pod on
	// the node is ready, and where the pods could not be read.
	Missing string
	// Pods are those that the MIG manager waits for and starts again, in the order in which it waits.
	Pods []Pod
}

// A Pod is one that a MIG change takes away.
type Pod struct {
	// Component is the part of the label gpu.deploy.* that steers it: "device-plugin", "client".
	Component       string
	Namespace, Name string
	// Ready is false while the pod starts; Ending is true once it is deleted.
	Ready, Ending bool
}

// operands are the pods that the MIG manager waits for by their label app, in its order, and the
// component that steers each. From mig-parted pkg/mig/reconfigure/reconfigure.go.
var operands = [][2]string{
	{"nvidia-device-plugin-daemonset", "device-plugin"}, {"gpu-feature-discovery", "gpu-feature-discovery"},
	{"nvidia-dcgm-exporter", "dcgm-exporter"}, {"nvidia-dcgm", "dcgm"},
}

// Observe reads one node out of a state.
func Observe(s *cluster.State, name string) Observation {
	o := Observation{At: s.At}
	n := nodeIn(s, name)
	if n == nil {
		return o
	}
	o.Exists, o.Config, o.State, o.Deploy = true, n.Labels[ConfigLabel], n.Labels[stateLabel], map[string]string{}
	o.StateSince = drift.OwnerOf(n.ManagedFields, "metadata", "labels", stateLabel).Time
	o.ConfigBy = drift.OwnerOf(n.ManagedFields, "metadata", "labels", ConfigLabel).Manager
	o.Ready = slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	for label, value := range n.Labels {
		if component, ok := strings.CutPrefix(label, deploy); ok {
			o.Deploy[component] = value
		}
	}
	o.Resources = resources(n.Status.Allocatable)
	for _, operand := range operands {
		if s.DaemonSets != nil && !slices.ContainsFunc(s.DaemonSets, func(d appsv1.DaemonSet) bool {
			return d.Namespace == s.Namespace && d.Spec.Template.Labels["app"] == operand[0]
		}) {
			o.Off = append(o.Off, operand[1])
		}
		for i := range s.Pods {
			if p := &s.Pods[i]; p.Spec.NodeName == name && p.Namespace == s.Namespace && p.Labels["app"] == operand[0] {
				o.Pods = append(o.Pods, podOf(p, operand[1]))
			}
		}
	}
	o.Missing = missing(s, name)
	for i := range s.Pods {
		if p := &s.Pods[i]; p.Spec.NodeName == name && evictable(p) {
			o.Pods = append(o.Pods, podOf(p, "client"))
		}
	}
	return o
}

// missing returns what keeps the MIG manager of a node from acting.
func missing(s *cluster.State, node string) string {
	if s.Pods == nil {
		return ""
	}
	why := "no pod of the MIG manager is on the node"
	for i := range s.Pods {
		p := &s.Pods[i]
		if p.Spec.NodeName != node || p.Namespace != s.Namespace || p.Labels["app"] != "nvidia-mig-manager" {
			continue
		}
		if podOf(p, "").Ready {
			return ""
		}
		why = fmt.Sprintf("the MIG manager's pod %s is not ready", p.Name)
	}
	return why
}

func nodeIn(s *cluster.State, name string) *corev1.Node {
	i := slices.IndexFunc(s.Nodes, func(n corev1.Node) bool { return n.Name == name })
	if i < 0 {
		return nil
	}
	return &s.Nodes[i]
}

func podOf(p *corev1.Pod, component string) Pod {
	ready := slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
	return Pod{Component: component, Namespace: p.Namespace, Name: p.Name, Ready: ready, Ending: p.DeletionTimestamp != nil}
}

// evictable reports whether the MIG manager takes a third party's pod away: one of a DaemonSet whose
// nodeSelector has the client's label.
func evictable(p *corev1.Pod) bool {
	_, selects := p.Spec.NodeSelector[client]
	owner := metav1.GetControllerOf(p)
	return selects && owner != nil && owner.Kind == "DaemonSet"
}

// isDevice reports whether a resource is a GPU, a share of one, or a MIG device. Others of nvidia.com
// are network devices.
func isDevice(name string) bool {
	name = strings.TrimSuffix(name, ".shared")
	return name == mig.WholeGPU || strings.HasPrefix(name, "nvidia.com/mig-")
}

// resources are the devices in a list of which there are any.
func resources(list corev1.ResourceList) map[string]int {
	out := map[string]int{}
	for name, q := range list {
		if n := int(q.Value()); isDevice(string(name)) && n > 0 {
			out[string(name)] = n
		}
	}
	return out
}

// positive are the resources of which there are any.
func positive(all map[string]int) map[string]int {
	out := maps.Clone(all)
	maps.DeleteFunc(out, func(_ string, n int) bool { return n <= 0 })
	return out
}
