package cluster

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// ErrUnreachable means that the cluster cannot be read: wrong address, connection refused, timeout or rejected
// credentials. The exit code is 3.
var ErrUnreachable = errors.New("cannot reach the cluster")

// ErrInput means that the kubeconfig, context or folder is unusable. The exit code is 2.
var ErrInput = errors.New("unusable input")

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
	if i := slices.IndexFunc(s.Missing, func(m Missing) bool { return m.Kind == k }); i >= 0 {
		return &s.Missing[i]
	}
	if s.list(k).IsNil() {
		return &Missing{Kind: k, Why: Unread, Detail: string(k) + " were not read"}
	}
	return nil
}

// State holds the objects of a cluster. Lists that were not requested or could not be read are nil; empty lists are not
// nil. Nodes and pods lack what no check reads, such as annotations. Of managedFields, nodes have those that own
// nvidia.com labels or annotations, and pods none.
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
	// ConfigMaps, Quotas, Secrets and Events from an API server are only those in Namespace.
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

// addCRD adds or replaces a CRD: its name and, for the operator's CRDs, the schema of the newest version.
func (s *State) addCRD(u *unstructured.Unstructured) {
	c := CRD{Name: u.GetName()}
	versions, _, _ := unstructured.NestedSlice(u.Object, "spec", "versions")
	if n := len(versions); n > 0 && c.ofOperator() {
		newest, _ := versions[n-1].(map[string]any)
		c.Schema, _, _ = unstructured.NestedMap(newest, "schema", "openAPIV3Schema")
	}
	if known := s.CRD(c.Name); known != nil {
		*known = c
	} else {
		s.CRDs = append(s.CRDs, c)
	}
}

// ofOperator reports whether the CRD defines one of OperatorKinds.
func (c *CRD) ofOperator() bool {
	_, known := lists[Kind(c.Name)]
	return known
}

// Policies returns the ClusterPolicies, the one in force first. The operator ignores the others. Since v26.7.0, the
// oldest is in force; ties are broken by name (gpu-operator controllers/active_config.go, getSingletonClusterPolicy).
// Up to v26.3, it was the first one that the operator saw, so policies in the state "ignored" come last. The result
// points into s.ClusterPolicies.
func (s *State) Policies() []*unstructured.Unstructured {
	var inForce, ignored []*unstructured.Unstructured
	for i := range s.ClusterPolicies {
		p := &s.ClusterPolicies[i]
		if state, _, _ := unstructured.NestedString(p.Object, "status", "state"); state == "ignored" {
			ignored = append(ignored, p)
		} else {
			inForce = append(inForce, p)
		}
	}
	older := func(a, b *unstructured.Unstructured) int {
		return cmp.Or(a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time),
			cmp.Compare(a.GetName(), b.GetName()))
	}
	slices.SortStableFunc(inForce, older)
	slices.SortStableFunc(ignored, older)
	return append(inForce, ignored...)
}

// findNamespace sets an empty Namespace from the status of a ClusterPolicy, an operand's DaemonSet or the operator's
// pod. If there is none of these, Namespace stays empty.
func (s *State) findNamespace() {
	for _, p := range s.ClusterPolicies {
		name, _, _ := unstructured.NestedString(p.Object, "status", "namespace")
		s.Namespace = cmp.Or(s.Namespace, name)
	}
	for _, d := range s.DaemonSets {
		if slices.ContainsFunc(d.OwnerReferences, func(o metav1.OwnerReference) bool {
			return strings.HasPrefix(o.APIVersion, "nvidia.com/")
		}) {
			s.Namespace = cmp.Or(s.Namespace, d.Namespace)
		}
	}
	for _, p := range s.Pods {
		if p.Labels["app"] == "gpu-operator" {
			s.Namespace = cmp.Or(s.Namespace, p.Namespace)
		}
	}
}

// keepPods keeps only the pods that State.Pods lists.
func (s *State) keepPods() {
	gpuNodes := map[string]bool{}
	for i := range s.Nodes {
		gpuNodes[s.Nodes[i].Name] = GPUNode(&s.Nodes[i])
	}
	s.Pods = slices.DeleteFunc(s.Pods, func(p corev1.Pod) bool {
		return p.Namespace != s.Namespace && !operatorPod(&p) && !AsksForGPU(&p.Spec) && !gpuNodes[p.Spec.NodeName]
	})
}

// operatorPod reports whether a pod belongs to the operator or to NFD, according to its labels.
func operatorPod(p *corev1.Pod) bool {
	app, part := p.Labels["app"], p.Labels["app.kubernetes.io/part-of"]
	return app == "gpu-operator" || p.Labels["app.kubernetes.io/managed-by"] == "gpu-operator" ||
		part == "nvidia-gpu" || part == "gpu-operator" ||
		p.Labels["app.kubernetes.io/name"] == "node-feature-discovery" ||
		strings.HasPrefix(app, "nvidia-") && p.Labels["pod-template-generation"] != ""
}

// NFD sets pciLabels on GPU nodes (the operator's gpuNodeLabels in controllers/state_manager.go). Cloud providers set
// cloudLabels before NFD runs.
var (
	pciLabels = []string{"feature.node.kubernetes.io/pci-10de.present",
		"feature.node.kubernetes.io/pci-0302_10de.present", "feature.node.kubernetes.io/pci-0300_10de.present"}
	cloudLabels = []string{"cloud.google.com/gke-accelerator", "k8s.amazonaws.com/accelerator",
		"karpenter.k8s.aws/instance-gpu-name", "eks.amazonaws.com/instance-gpu-name"}
)

// OperatorGPUNode reports whether the operator treats the node as a GPU node: NFD found an NVIDIA PCI device, or the
// operator has labeled it.
func OperatorGPUNode(n *corev1.Node) bool {
	return n.Labels["nvidia.com/gpu.present"] == "true" ||
		slices.ContainsFunc(pciLabels, func(l string) bool { return n.Labels[l] == "true" })
}

// GPUNode reports whether a node has NVIDIA GPUs according to its resources, or to labels of the operator, NFD or the
// cloud provider.
func GPUNode(n *corev1.Node) bool {
	return OperatorGPUNode(n) || hasGPU(n.Status.Capacity) ||
		n.Labels["kubernetes.azure.com/accelerator"] == "nvidia" ||
		slices.ContainsFunc(cloudLabels, func(l string) bool { return n.Labels[l] != "" })
}

func hasGPU(list corev1.ResourceList) bool {
	for name, q := range list {
		if strings.HasPrefix(string(name), "nvidia.com/") && !q.IsZero() {
			return true
		}
	}
	return false
}

// AsksForGPU reports whether a pod requests an nvidia.com resource, or has a ResourceClaim. The spec does not name the
// driver of a claim, so every claim counts.
func AsksForGPU(s *corev1.PodSpec) bool {
	return len(s.ResourceClaims) > 0 ||
		slices.ContainsFunc(slices.Concat(s.Containers, s.InitContainers), func(c corev1.Container) bool {
			return hasGPU(c.Resources.Limits) || hasGPU(c.Resources.Requests)
		})
}

// Owns returns how deep into path the ownership of a managedFields entry reaches. The result is len(path) if the entry
// owns the field or anything below it. It is the depth of a parent if the entry owns that parent atomically, and 0
// otherwise.
func Owns(e metav1.ManagedFieldsEntry, path ...string) int {
	var fields map[string]any
	if e.FieldsV1 == nil || json.Unmarshal(e.FieldsV1.GetRawBytes(), &fields) != nil {
		return 0
	}
	for i, name := range path {
		below, found := fields["f:"+name].(map[string]any)
		if !found {
			return 0
		}
		delete(below, ".") // the entry owns the field itself
		if len(below) == 0 {
			return i + 1
		}
		fields = below
	}
	return len(path)
}
