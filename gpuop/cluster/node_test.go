package cluster_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/node"
)

// What kubectl prints of a node and what the API server answers are one node.
func TestJudgedNode(t *testing.T) {
	printed, err := node.Parse([]byte(`{"kind": "Node", "metadata": {"name": "gpu-1", "labels": {"nvidia.com/gpu.count": "8"}, "annotations": {"a": "b"}},
		"status": {"capacity": {"nvidia.com/gpu": "8", "memory": "1Gi"}, "allocatable": {"nvidia.com/gpu": "7", "memory": "1Gi"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	got := cluster.JudgedNode(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "gpu-1", Labels: map[string]string{"nvidia.com/gpu.count": "8"}, Annotations: map[string]string{"a": "b"}},
		Status: corev1.NodeStatus{
			Capacity:    corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8"), "memory": resource.MustParse("1Gi")},
			Allocatable: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("7"), "memory": resource.MustParse("1Gi")},
		},
	})
	if diff := cmp.Diff(printed, got, cmpopts.IgnoreFields(node.Node{}, "Lines", "CapacityLine")); diff != "" {
		t.Errorf("(-as printed +as answered):\n%s", diff)
	}
}
