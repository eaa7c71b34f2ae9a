package cluster

import (
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	// pageSize is the number of objects in a page; it equals the default of kubectl's --chunk-size.
	pageSize = 500
	// defaultNamespace is the namespace in NVIDIA's installation instructions.
	defaultNamespace = "gpu-operator"
)

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

// OperatorKinds are the operator's custom resources. The Kind is also the name of the CustomResourceDefinition.
var OperatorKinds = []struct {
	Name string
	Kind Kind
}{{"ClusterPolicy", ClusterPolicies}, {"NVIDIADriver", NVIDIADrivers}, {"GPUCluster", GPUClusters}}

// list describes where to read a kind.
type list struct {
	field func(*State) any // a pointer to the objects in the state
	// files are the names of files with the kind, without extension and separated by spaces. Names with an underscore
	// are those of gpu-operator's hack/must-gather.sh.
	files string

	version    string // of the kind's API group, if not v1
	namespaced bool   // an API server is asked only for objects in the operator's namespace
	options    metav1.ListOptions
}

var lists = map[Kind]list{
	Nodes:      {field: func(s *State) any { return &s.Nodes }, files: "gpu_nodes nodes node"},
	Pods:       {field: func(s *State) any { return &s.Pods }, files: "gpu_operand_pods gpu_operator_pod pods pod"},
	DaemonSets: {field: func(s *State) any { return &s.DaemonSets }, files: "gpu_operand_ds daemonsets ds"},
	ConfigMaps: {field: func(s *State) any { return &s.ConfigMaps }, files: "configmaps cm", namespaced: true},
	Namespaces: {field: func(s *State) any { return &s.Namespaces }, files: "namespaces ns"},
	Quotas:     {field: func(s *State) any { return &s.Quotas }, files: "resourcequotas quotas", namespaced: true},
	Secrets: {field: func(s *State) any { return &s.Secrets }, files: "secrets", namespaced: true,
		options: metav1.ListOptions{LabelSelector: "owner=helm", Limit: 25}}, // a release can be 1 MiB
	Events: {field: func(s *State) any { return &s.Events }, files: "events event", namespaced: true,
		options: metav1.ListOptions{FieldSelector: "type=Warning"}},
	CRDs: {field: func(s *State) any { return &s.CRDs }, files: "crds customresourcedefinitions"},
	ClusterPolicies: {field: func(s *State) any { return &s.ClusterPolicies },
		files: "cluster_policy clusterpolicies clusterpolicy"},
	NVIDIADrivers: {field: func(s *State) any { return &s.NVIDIADrivers }, files: "nvidiadrivers", version: "v1alpha1"},
	GPUClusters:   {field: func(s *State) any { return &s.GPUClusters }, files: "gpuclusters", version: "v1alpha1"},
}

// kindOf returns the Kind of an object, or false if gpuop does not read such objects.
func kindOf(o *unstructured.Unstructured) (Kind, bool) {
	resource, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
	k := Kind(resource.GroupResource().String())
	_, known := lists[k]
	return k, known
}

// kindIn returns the Kind that a file name without its extension indicates, or "".
func kindIn(file string) Kind {
	for k, l := range lists {
		if slices.Contains(strings.Fields(l.files), file) {
			return k
		}
	}
	return ""
}

// list returns the objects of a kind, which is a slice that can be set.
func (s *State) list(k Kind) reflect.Value { return reflect.ValueOf(lists[k].field(s)).Elem() }

// add adds an object to those of its kind. It removes what takes much memory, and what no check reads.
func (s *State) add(k Kind, object runtime.Object) error {
	switch o := object.(type) {
	case *unstructured.Unstructured:
		if k == CRDs {
			s.addCRD(o)
			return nil
		}
	case *corev1.Node:
		o.Annotations, o.Status.Images = nil, nil
		// the entries that own nvidia.com labels show the age of the labels
		o.ManagedFields = slices.DeleteFunc(o.ManagedFields, func(e metav1.ManagedFieldsEntry) bool {
			return e.Subresource != "" || e.FieldsV1 == nil ||
				!strings.Contains(e.FieldsV1.GetRawString(), `"f:nvidia.com/`)
		})
	case *corev1.Pod:
		o.Annotations, o.ManagedFields = nil, nil
		for _, all := range [][]corev1.Container{o.Spec.InitContainers, o.Spec.Containers} {
			for i, c := range all {
				all[i] = corev1.Container{Name: c.Name, Image: c.Image, Command: c.Command, Resources: c.Resources}
				// this variable grants GPUs without a request; other variables may be secret
				all[i].Env = slices.Clone(slices.DeleteFunc(c.Env,
					func(e corev1.EnvVar) bool { return e.Name != "NVIDIA_VISIBLE_DEVICES" }))
			}
		}
	case *corev1.Event:
		if o.Type != corev1.EventTypeWarning {
			return nil
		}
		switch { // LastTimestamp becomes the time of the last occurrence
		case o.Series != nil && o.Series.LastObservedTime.After(o.LastTimestamp.Time):
			o.LastTimestamp.Time = o.Series.LastObservedTime.Time
		case o.LastTimestamp.IsZero():
			o.LastTimestamp.Time = o.EventTime.Time
		}
	}
	objects, value := s.list(k), reflect.ValueOf(object).Elem()
	if value.Type().AssignableTo(objects.Type().Elem()) { // objects of an unknown version are left out
		objects.Set(reflect.Append(objects, value))
	}
	return nil
}
