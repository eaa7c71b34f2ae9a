package cluster

import (
	"context"
	"errors"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// ErrUnreachable means that the cluster cannot be read: wrong address, connection refused, timeout or rejected
// credentials. The exit code is 3.
var ErrUnreachable = errors.New("cannot reach the cluster")

// ErrInput means that the kubeconfig, context or folder is unusable. The exit code is 2.
var ErrInput = errors.New("unusable input")

// Kind is a kind of object, written as its resource and API group in RBAC: "daemonsets.apps". Kinds of the core group
// have no group: "nodes".
type Kind string

// These are the kinds that gpuop reads.
const (
	Nodes           Kind = "nodes"
	Pods            Kind = "pods"
	DaemonSets      Kind = "daemonsets.apps"
	ConfigMaps      Kind = "configmaps"
	Namespaces      Kind = "namespaces"
	Quotas          Kind = "resourcequotas"
	Secrets         Kind = "secrets" // from an API server, only those of Helm releases
	CRDs            Kind = "customresourcedefinitions.apiextensions.k8s.io"
	ClusterPolicies Kind = "clusterpolicies.nvidia.com"
	NVIDIADrivers   Kind = "nvidiadrivers.nvidia.com"
	GPUClusters     Kind = "gpuclusters.nvidia.com"
	Events          Kind = "events" // only warnings
)

// Missing says that the list of a kind is nil or incomplete, and why.
type Missing struct {
	Kind Kind
	// Why is Forbidden, Absent, Unread, Failed or Partial.
	Why Why
	// Detail is the server's message, the file's parse error, or what the folder lacks.
	Detail string
}

// Why is the reason why the list of a kind is nil or incomplete.
type Why string

// These are the reasons for which a kind is missing.
const (
	Forbidden Why = "forbidden" // RBAC forbids the request; Detail names the verb, resource and user
	Absent    Why = "absent"    // the cluster does not serve the resource because its CRD is not installed
	Unread    Why = "unread"    // the folder has no file with the kind, or the kind was not requested
	Failed    Why = "failed"    // the request failed, or the file is invalid
	// Partial means that the list is incomplete, but not nil. An object that is not in the list may exist. must-gather
	// has only the nodes with GPUs and the pods of the operator's namespace.
	Partial Why = "partial"
)

// Lacks returns why the list of a kind is nil or incomplete. It returns nil if the list is complete. A kind that was
// never requested is Unread.
func (s *State) Lacks(k Kind) *Missing {
	for i := range s.Missing {
		if s.Missing[i].Kind == k {
			return &s.Missing[i]
		}
	}
	if l, known := lists[k]; known && l.known(s) {
		return nil
	}
	return &Missing{Kind: k, Why: Unread, Detail: string(k) + " were not read"}
}

// State holds the objects of a cluster. Lists that were not requested or could not be read are nil; empty lists are not
// nil. Objects are trimmed, and callers may change them. managedFields are dropped, with three exceptions: those of
// ConfigMaps, the entries that own a node's nvidia.com labels or annotations, and those that Options.ManagedFields or
// Folder.ManagedFields keeps.
type State struct {
	// Title is the server's address, or the folder.
	Title string
	// At is the time when the state was read or, for a folder, gathered.
	At time.Time
	// Version is the server's version, such as "v1.36.3". It is empty if unknown.
	Version string
	// Namespace is the operator's namespace. If it is neither specified nor found, it is "gpu-operator".
	Namespace string

	Nodes []corev1.Node
	// Pods are those that request an nvidia.com resource or a ResourceClaim, run on a GPU node, belong to the operator
	// or NFD, or are in Namespace.
	Pods       []corev1.Pod
	DaemonSets []appsv1.DaemonSet
	// From an API server, ConfigMaps, Quotas, Secrets and Events are only those in Namespace.
	ConfigMaps      []corev1.ConfigMap
	Namespaces      []corev1.Namespace
	Quotas          []corev1.ResourceQuota
	Secrets         []corev1.Secret
	CRDs            []CRD
	ClusterPolicies []unstructured.Unstructured
	NVIDIADrivers   []unstructured.Unstructured
	GPUClusters     []unstructured.Unstructured
	// Events are warnings, in any order. By default, the API server keeps events for one hour.
	Events []corev1.Event
	// DriverLogs are the logs of driver pods by pod name. Only folders of must-gather.sh have them.
	DriverLogs map[string]string

	// Missing lists the requested kinds whose lists are nil or incomplete.
	Missing []Missing
}

// CRD is a CustomResourceDefinition.
type CRD struct {
	Name string
	// Schema is the OpenAPI schema of the newest version. It is nil for CRDs that are not the operator's, and for
	// folders that list only names.
	Schema map[string]any
}

// CRD returns the CustomResourceDefinition with a name, or nil.
func (s *State) CRD(name string) *CRD {
	i := slices.IndexFunc(s.CRDs, func(c CRD) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &s.CRDs[i]
}

// Source reads the state of a cluster.
type Source interface {
	// Read reads the kinds. Kinds that it cannot read are listed in State.Missing. Errors wrap ErrUnreachable or
	// ErrInput, or are ctx.Err().
	Read(ctx context.Context, kinds ...Kind) (*State, error)
}
