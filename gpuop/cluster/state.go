package cluster

import (
	"context"
	"errors"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// ErrUnreachable is wrapped by the error of Read where no API server answers: wrong address, no
// route, refused, a deadline, credentials that are not accepted. The program ends with 3.
var ErrUnreachable = errors.New("cannot reach the cluster")

// ErrInput is wrapped where the kubeconfig, context or folder that was given is unusable. The
// program ends with 2.
var ErrInput = errors.New("unusable input")

// A Kind is a list that a State holds, by the resource's name as RBAC spells it, with its group
// unless it is the core: "nodes", "daemonsets.apps".
type Kind string

// The kinds that gpuop reads.
const (
	Nodes           Kind = "nodes"
	Pods            Kind = "pods"
	DaemonSets      Kind = "daemonsets.apps"
	ConfigMaps      Kind = "configmaps"
	Namespaces      Kind = "namespaces"
	Quotas          Kind = "resourcequotas"
	Secrets         Kind = "secrets" // of Helm's releases only, by label
	CRDs            Kind = "customresourcedefinitions.apiextensions.k8s.io"
	ClusterPolicies Kind = "clusterpolicies.nvidia.com"
	NVIDIADrivers   Kind = "nvidiadrivers.nvidia.com"
	GPUClusters     Kind = "gpuclusters.nvidia.com"
	Events          Kind = "events" // warnings of the operator's namespace
)

// A Missing is a kind that was requested and could not be listed.
type Missing struct {
	Kind Kind
	// Why is Forbidden, Absent, Unread, Failed or Partial.
	Why Why
	// Detail is one sentence: the server's, or the file that the folder lacks.
	Detail string
}

// A Why is the reason for which a kind is missing.
type Why string

// The reasons.
const (
	Forbidden Why = "forbidden" // RBAC refuses; Detail names the verb, the resource and the user
	Absent    Why = "absent"    // the cluster does not serve the resource: its CRD is not installed
	Unread    Why = "unread"    // the folder does not hold it
	Failed    Why = "failed"    // the list broke off
	// Partial says that the list is not nil, and is not the cluster's whole: must-gather holds the
	// nodes with GPUs and the pods of the operator's namespace alone. That something is absent from
	// the list proves nothing.
	Partial Why = "partial"
)

// Lacks returns why the state's list of a kind is nil or partial, or nil where the list is whole. A
// kind that was never read is Unread.
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

// A State holds the objects of a cluster at one time. A list that was not requested, or is missing, is nil; one that
// was read and is empty is not nil. Objects are trimmed: managedFields only where drift needs
// them (of nodes and ConfigMaps when the labels and the data whose age is judged were written), of
// pods the fields that judging needs. Callers own it and may change it.
type State struct {
	// Title is the server's address, or the folder.
	Title string
	// At is when it was read; for a folder when it was gathered.
	At time.Time
	// Version is the server's version, "v1.36.3"; empty where it is unknown.
	Version string
	// Namespace is where the operator runs: where its Deployment or its operands are found, or
	// "gpu-operator".
	Namespace string

	Nodes []corev1.Node
	// Pods request a GPU, run on a node with a GPU, or are in Namespace.
	Pods       []corev1.Pod
	DaemonSets []appsv1.DaemonSet
	// ConfigMaps are Namespace's.
	ConfigMaps      []corev1.ConfigMap
	Namespaces      []corev1.Namespace
	Quotas          []corev1.ResourceQuota
	Secrets         []corev1.Secret
	CRDs            []string
	ClusterPolicies []unstructured.Unstructured
	NVIDIADrivers   []unstructured.Unstructured
	GPUClusters     []unstructured.Unstructured
	// Events are the warnings about objects of Namespace, in no order. The API server forgets them after an
	// hour by default.
	Events []corev1.Event

	// Missing are the kinds that were requested and could not be read.
	Missing []Missing
}

// A Source reads States.
type Source interface {
	// Read lists the kinds. An error means that nothing could be read: it wraps ErrUnreachable or
	// ErrInput, or is the context's.
	Read(ctx context.Context, kinds ...Kind) (*State, error)
}
