package migchange

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/mig"
)

// The labels of a MIG change.
const (
	// ConfigLabel names the config that is requested of a node; writing it begins a change.
	ConfigLabel = "nvidia.com/mig.config"
	stateLabel  = "nvidia.com/mig.config.state"
	deploy      = "nvidia.com/gpu.deploy."
	client      = deploy + "client"
)

func nodeIn(s *cluster.State, name string) *corev1.Node {
	i := slices.IndexFunc(s.Nodes, func(n corev1.Node) bool { return n.Name == name })
	if i < 0 {
		return nil
	}
	return &s.Nodes[i]
}

// ready reports whether a pod says that it is ready.
func ready(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
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

// list names resources: "7 nvidia.com/mig-1g.10gb".
func list(all map[string]int) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(positive(all))) {
		words = append(words, fmt.Sprintf("%d %s", all[name], name))
	}
	if len(words) == 0 {
		return "no device"
	}
	return strings.Join(words, ", ")
}
