package cluster

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpuop/node"
)

// JudgedNode returns what package node judges of a Node. It shares the maps of labels and annotations.
func JudgedNode(n *corev1.Node) *node.Node {
	return &node.Node{
		Name: n.Name, Labels: n.Labels, Annotations: n.Annotations,
		Capacity: amounts(n.Status.Capacity), Allocatable: amounts(n.Status.Allocatable),
	}
}

func amounts(list corev1.ResourceList) map[string]string {
	all := make(map[string]string, len(list))
	for name, q := range list {
		all[string(name)] = q.String()
	}
	return all
}

// ConfigMap returns the ConfigMap of that name in the operator's namespace, nil where none was read. It
// belongs to the state.
func (s *State) ConfigMap(name string) *corev1.ConfigMap {
	i := slices.IndexFunc(s.ConfigMaps, func(m corev1.ConfigMap) bool { return m.Name == name && m.Namespace == s.Namespace })
	if i < 0 {
		return nil
	}
	return &s.ConfigMaps[i]
}
