package cluster

import (
	"encoding/json"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// OperatorKinds are the operator's custom resources. The Kind is also the name of the CustomResourceDefinition.
var OperatorKinds = []struct {
	Name string
	Kind Kind
}{
	{"ClusterPolicy", ClusterPolicies},
	{"NVIDIADriver", NVIDIADrivers},
	{"GPUCluster", GPUClusters},
}

// list describes how to read a kind: its path at the API server, its files in a folder, and its field of State.
type list struct {
	// kind is the kind with its API group, such as "nvidia.com/ClusterPolicy".
	kind string
	// files are the names of files with this kind, without extension and separated by spaces. Names with an underscore
	// are those of gpu-operator's hack/must-gather.sh.
	files      string
	path       string // %s is the operator's namespace; paths without it list the whole cluster
	limit      int
	parameters map[string]string
	accept     string         // Accept header; empty means the client's default
	empty      runtime.Object // a page without items

	// decode decodes an object from JSON. take trims an object and adds it to the state, unless no check needs it.
	decode func([]byte) (runtime.Object, error)
	take   func(*State, *trimmer, runtime.Object)
	known  func(*State) bool // whether the state has the list
	reset  func(*State)      // makes the list empty but not nil
	drop   func(*State)      // makes the list nil
}

// listOf returns the list for a kind whose objects have type T. State stores them as type K.
func listOf[T, K any](
	kind, files, path string, empty runtime.Object, field func(*State) *[]K, keep func(*trimmer, *T) (K, bool),
) list {
	return list{
		kind: kind, files: files, path: path, limit: pageSize, empty: empty,
		decode: func(data []byte) (runtime.Object, error) {
			object := new(T)
			err := json.Unmarshal(data, object)
			return any(object).(runtime.Object), err
		},
		take: func(s *State, t *trimmer, o runtime.Object) {
			if kept, ok := keep(t, any(o).(*T)); ok {
				*field(s) = append(*field(s), kept)
			}
		},
		known: func(s *State) bool { return *field(s) != nil },
		reset: func(s *State) { *field(s) = []K{} },
		drop:  func(s *State) { *field(s) = nil },
	}
}

// builtIn returns the list for a kind whose objects State stores as they are. trim trims an object in place, and
// reports whether to keep it.
func builtIn[T any](
	kind, files, path string, empty runtime.Object, field func(*State) *[]T, trim func(*trimmer, *T) bool,
) list {
	return listOf(kind, files, path, empty, field, func(t *trimmer, o *T) (T, bool) {
		keep := trim(t, o)
		return *o, keep
	})
}

// object trims the metadata of an object. It always reports that the object is kept.
func object[T any, P interface {
	*T
	metav1.Object
}](t *trimmer, o *T) bool {
	t.meta(P(o))
	return true
}

// custom returns the list for one of the operator's custom resources.
func custom(kind, files, path string, field func(*State) *[]unstructured.Unstructured) list {
	l := builtIn("nvidia.com/"+kind, files, "/apis/nvidia.com/"+path, &unstructured.UnstructuredList{}, field,
		object[unstructured.Unstructured])
	l.accept = runtime.ContentTypeJSON
	return l
}

var lists = func() map[Kind]list {
	all := map[Kind]list{
		Nodes: builtIn("Node", "gpu_nodes nodes node", "/api/v1/nodes", &corev1.NodeList{},
			func(s *State) *[]corev1.Node { return &s.Nodes }, (*trimmer).node),
		Pods: builtIn("Pod", "gpu_operand_pods gpu_operator_pod pods pod", "/api/v1/pods", &corev1.PodList{},
			func(s *State) *[]corev1.Pod { return &s.Pods }, (*trimmer).pod),
		DaemonSets: builtIn("apps/DaemonSet", "gpu_operand_ds daemonsets ds", "/apis/apps/v1/daemonsets",
			&appsv1.DaemonSetList{},
			func(s *State) *[]appsv1.DaemonSet { return &s.DaemonSets }, object[appsv1.DaemonSet]),
		ConfigMaps: builtIn("ConfigMap", "configmaps cm", "/api/v1/namespaces/%s/configmaps", &corev1.ConfigMapList{},
			func(s *State) *[]corev1.ConfigMap { return &s.ConfigMaps }, (*trimmer).configMap),
		Namespaces: builtIn("Namespace", "namespaces ns", "/api/v1/namespaces", &corev1.NamespaceList{},
			func(s *State) *[]corev1.Namespace { return &s.Namespaces }, object[corev1.Namespace]),
		Quotas: builtIn("ResourceQuota", "resourcequotas quotas", "/api/v1/namespaces/%s/resourcequotas",
			&corev1.ResourceQuotaList{},
			func(s *State) *[]corev1.ResourceQuota { return &s.Quotas }, object[corev1.ResourceQuota]),
		Secrets: builtIn("Secret", "secrets", "/api/v1/namespaces/%s/secrets", &corev1.SecretList{},
			func(s *State) *[]corev1.Secret { return &s.Secrets }, object[corev1.Secret]),
		Events: builtIn("Event", "events event", "/api/v1/namespaces/%s/events", &corev1.EventList{},
			func(s *State) *[]corev1.Event { return &s.Events }, (*trimmer).event),
		CRDs: listOf("apiextensions.k8s.io/CustomResourceDefinition", "crds customresourcedefinitions",
			"/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &unstructured.UnstructuredList{},
			func(s *State) *[]CRD { return &s.CRDs }, (*trimmer).crd),
		ClusterPolicies: custom("ClusterPolicy", "cluster_policy clusterpolicies clusterpolicy", "v1/clusterpolicies",
			func(s *State) *[]unstructured.Unstructured { return &s.ClusterPolicies }),
		NVIDIADrivers: custom("NVIDIADriver", "nvidiadrivers", "v1alpha1/nvidiadrivers",
			func(s *State) *[]unstructured.Unstructured { return &s.NVIDIADrivers }),
		GPUClusters: custom("GPUCluster", "gpuclusters", "v1alpha1/gpuclusters",
			func(s *State) *[]unstructured.Unstructured { return &s.GPUClusters }),
	}
	change := func(k Kind, change func(*list)) {
		l := all[k]
		change(&l)
		all[k] = l
	}
	// read only the metadata, because a CRD can be 1 MiB; the schemas of the operator's CRDs are read afterwards
	change(CRDs, func(l *list) { l.accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1" })
	change(Secrets,
		func(l *list) { l.limit, l.parameters = largePage, map[string]string{"labelSelector": "owner=helm"} })
	change(Events, func(l *list) { l.parameters = map[string]string{"fieldSelector": "type=Warning"} })
	return all
}()

// kindOf returns the Kind for an object's apiVersion and kind, or false if gpuop does not read such objects.
func kindOf(apiVersion, kind string) (Kind, bool) {
	group, _, found := strings.Cut(apiVersion, "/")
	if found && group != "events.k8s.io" {
		kind = group + "/" + kind
	}
	return find(func(l list) bool { return l.kind == kind })
}

// kindIn returns the Kind that a file name without its extension indicates.
func kindIn(file string) (Kind, bool) {
	return find(func(l list) bool { return slices.Contains(strings.Fields(l.files), file) })
}

func find(is func(list) bool) (Kind, bool) {
	for k, l := range lists {
		if is(l) {
			return k, true
		}
	}
	return "", false
}

// namespaced reports whether the API server is asked only for objects in the operator's namespace.
func (l list) namespaced() bool { return strings.Contains(l.path, "/%s/") }
