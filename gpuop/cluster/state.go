package cluster

import (
	"context"
	"errors"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// ErrUnreachable means that no API server answers: wrong address, connection refused, timeout or rejected credentials.
// The exit code is 3.
var ErrUnreachable = errors.New("cannot reach the cluster")

// ErrInput means that the kubeconfig, context or folder is unusable. The exit code is 2.
var ErrInput = errors.New("unusable input")

// Kind is a kind of objects, named by the resource as in RBAC, with its API group: "nodes", "daemonsets.apps".
type Kind string

// Kinds that gpuop reads.
const (
	Nodes           Kind = "nodes"
	Pods            Kind = "pods"
	DaemonSets      Kind = "daemonsets.apps"
	ConfigMaps      Kind = "configmaps"
	Namespaces      Kind = "namespaces"
	Quotas          Kind = "resourcequotas"
	Secrets         Kind = "secrets" // only Secrets of Helm releases
	CRDs            Kind = "customresourcedefinitions.apiextensions.k8s.io"
	ClusterPolicies Kind = "clusterpolicies.nvidia.com"
	NVIDIADrivers   Kind = "nvidiadrivers.nvidia.com"
	GPUClusters     Kind = "gpuclusters.nvidia.com"
	Events          Kind = "events" // only warnings in the operator's namespace
)

// Missing is a kind that was requested and could not be read.
type Missing struct {
	Kind Kind
	// Why is Forbidden, Absent, Unread, Failed or Partial.
	Why Why
	// Detail is one sentence: the server's message, or the file that the folder lacks.
	Detail string
}

// Why is the reason why a kind is missing.
type Why string

// Reasons why a kind is missing.
const (
	Forbidden Why = "forbidden" // RBAC forbids it; Detail names the verb, the resource and the user
	Absent    Why = "absent"    // the cluster does not serve the resource: its CRD is not installed
	Unread    Why = "unread"    // the folder does not have it
	Failed    Why = "failed"    // the request failed
	// Partial means that the list is not nil but incomplete. must-gather has only the nodes with GPUs and the pods of
	// the operator's namespace. Absence from the list proves nothing.
	Partial Why = "partial"
)

// Lacks returns why a kind's list is nil or incomplete, or nil if it is complete. A kind that was never requested is
// Unread.
func (s *State) Lacks(k Kind) *Missing {
	for i := range s.Missing {
		if s.Missing[i].Kind == k {
			return &s.Missing[i]
		}
	}
	if s.holds(k) {
		return nil
	}
	return &Missing{Kind: k, Why: Unread, Detail: string(k) + " were not read"}
}

// State holds the objects of a cluster. A list that was not requested or is missing is nil; one that is empty is not
// nil. Objects are trimmed. managedFields are kept only for drift, and for nodes and ConfigMaps to tell when labels and
// data were written. Callers may change the state.
type State struct {
	// Title is the server's address, or the folder.
	Title string
	// At is when the state was read or, for a folder, gathered.
	At time.Time
	// Version is the server's version, such as "v1.36.3". It is empty if unknown.
	Version string
	// Namespace is the operator's namespace: that of its Deployment or operands, or "gpu-operator".
	Namespace string

	Nodes []corev1.Node
	// Pods are those that request a GPU, run on a node with a GPU, or are in Namespace.
	Pods       []corev1.Pod
	DaemonSets []appsv1.DaemonSet
	// ConfigMaps are those in Namespace.
	ConfigMaps      []corev1.ConfigMap
	Namespaces      []corev1.Namespace
	Quotas          []corev1.ResourceQuota
	Secrets         []corev1.Secret
	CRDs            []string
	ClusterPolicies []unstructured.Unstructured
	NVIDIADrivers   []unstructured.Unstructured
	GPUClusters     []unstructured.Unstructured
	// Events are warnings about objects in Namespace, unsorted. The API server keeps them for one hour by default.
	Events []corev1.Event

	// Missing lists the kinds that were requested and could not be read.
	Missing []Missing
}

// Source reads States.
type Source interface {
	// Read reads the kinds. An error means that nothing could be read. It wraps ErrUnreachable or ErrInput, or is the
	// context's error.
	Read(ctx context.Context, kinds ...Kind) (*State, error)
}
