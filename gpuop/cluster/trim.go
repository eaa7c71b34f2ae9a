package cluster

import (
	"fmt"
	"slices"
	"strings"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// trimmer removes the parts of objects that no check reads. Equal parts of pods are stored once.
type trimmer struct {
	managed bool // managedFields are kept

	// the fields below are for pods; learn sets gpuNodes and namespace
	gpuNodes  map[string]bool
	namespace string
	specs     map[string]*corev1.PodSpec
	labels    map[string]map[string]string
}

func newTrimmer(managed bool) *trimmer {
	return &trimmer{managed: managed, gpuNodes: map[string]bool{}, specs: map[string]*corev1.PodSpec{},
		labels: map[string]map[string]string{}}
}

// learn records which nodes have GPUs, and the operator's namespace. They determine the pods to keep.
func (t *trimmer) learn(s *State) {
	t.namespace = s.Namespace
	for i := range s.Nodes {
		t.gpuNodes[s.Nodes[i].Name] = GPUNode(&s.Nodes[i])
	}
}

// meta drops managedFields and the last-applied annotation, unless managedFields are to be kept.
func (t *trimmer) meta(m metav1.Object) {
	if t.managed {
		return
	}
	m.SetManagedFields(nil)
	if notes := m.GetAnnotations(); notes[lastApplied] != "" {
		delete(notes, lastApplied)
		m.SetAnnotations(notes)
	}
}

// interned returns a copy of the map whose strings are interned, so that equal strings are stored once.
func interned(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	shared := make(map[string]string, len(m))
	for k, v := range m {
		shared[unique.Make(k).Value()] = unique.Make(v).Value()
	}
	return shared
}

func (t *trimmer) node(n *corev1.Node) bool {
	n.ObjectMeta = metav1.ObjectMeta{
		Name: n.Name, UID: n.UID, CreationTimestamp: n.CreationTimestamp, DeletionTimestamp: n.DeletionTimestamp,
		Labels: interned(n.Labels), ManagedFields: labelWriters(n.ManagedFields),
	}
	n.Spec = corev1.NodeSpec{Taints: n.Spec.Taints, Unschedulable: n.Spec.Unschedulable, ProviderID: n.Spec.ProviderID}
	n.Status = corev1.NodeStatus{Capacity: n.Status.Capacity, Allocatable: n.Status.Allocatable,
		Conditions: n.Status.Conditions, NodeInfo: n.Status.NodeInfo}
	return true
}

// labelWriters returns the managedFields entries that own nvidia.com labels or annotations, with only their times and
// fields. The times show the age of the labels.
func labelWriters(all []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	var kept []metav1.ManagedFieldsEntry
	for _, e := range all {
		if e.FieldsV1 == nil || e.Subresource != "" {
			continue
		}
		if fields := e.FieldsV1.GetRawString(); strings.Contains(fields, `"f:nvidia.com/`) {
			kept = append(kept,
				metav1.ManagedFieldsEntry{Time: e.Time, FieldsV1: metav1.NewFieldsV1(unique.Make(fields).Value())})
		}
	}
	return kept
}

// event sets LastTimestamp to the time of the last occurrence. It keeps only warnings.
func (t *trimmer) event(e *corev1.Event) bool {
	switch {
	case e.Series != nil && e.Series.LastObservedTime.After(e.LastTimestamp.Time):
		e.LastTimestamp.Time = e.Series.LastObservedTime.Time
	case e.LastTimestamp.IsZero():
		e.LastTimestamp.Time = e.EventTime.Time
	}
	e.ManagedFields = nil
	return e.Type == corev1.EventTypeWarning
}

// configMap keeps managedFields, which show the age of the data. It drops binaryData.
func (t *trimmer) configMap(c *corev1.ConfigMap) bool {
	written := c.ManagedFields
	t.meta(c)
	c.ManagedFields, c.BinaryData = written, nil
	return true
}

// crd keeps the name and, for the operator's CRDs, the schema of the newest version.
func (t *trimmer) crd(o *unstructured.Unstructured) (CRD, bool) {
	c := CRD{Name: o.GetName()}
	versions, _, _ := unstructured.NestedSlice(o.Object, "spec", "versions")
	if n := len(versions); n > 0 && c.ofOperator() {
		newest, _ := versions[n-1].(map[string]any)
		c.Schema, _, _ = unstructured.NestedMap(newest, "schema", "openAPIV3Schema")
	}
	return c, true
}

// ofOperator reports whether the CRD defines one of OperatorKinds.
func (c *CRD) ofOperator() bool {
	for _, k := range OperatorKinds {
		if c.Name == string(k.Kind) {
			return true
		}
	}
	return false
}

// pod trims a pod, and reports whether to keep it. A nil trimmer keeps all pods unchanged.
func (t *trimmer) pod(p *corev1.Pod) bool {
	if t == nil {
		return true
	}
	if !t.keeps(p) {
		return false
	}
	var owners []metav1.OwnerReference
	for _, o := range p.OwnerReferences {
		owners = append(owners,
			metav1.OwnerReference{Kind: unique.Make(o.Kind).Value(), Name: unique.Make(o.Name).Value(),
				Controller: o.Controller})
	}
	node := unique.Make(p.Spec.NodeName).Value()
	p.ObjectMeta = metav1.ObjectMeta{
		Name: p.Name, Namespace: unique.Make(p.Namespace).Value(), Labels: t.sharedLabels(p.Labels),
		OwnerReferences:   owners,
		CreationTimestamp: p.CreationTimestamp, DeletionTimestamp: p.DeletionTimestamp,
	}
	p.Spec = *t.sharedSpec(spec(&p.Spec))
	p.Spec.NodeName = node
	p.Status = status(&p.Status)
	return true
}

// keeps reports whether a check may need the pod: it is in the operator's namespace, belongs to the operator or NFD,
// requests an nvidia.com resource or a ResourceClaim, or runs on a GPU node.
func (t *trimmer) keeps(p *corev1.Pod) bool {
	return p.Namespace == t.namespace && t.namespace != "" || operatorPod(p) || AsksForGPU(&p.Spec) ||
		t.gpuNodes[p.Spec.NodeName]
}

func spec(s *corev1.PodSpec) *corev1.PodSpec {
	kept := &corev1.PodSpec{
		NodeSelector: s.NodeSelector, Tolerations: s.Tolerations, RuntimeClassName: s.RuntimeClassName,
		ResourceClaims: s.ResourceClaims,
		InitContainers: containers(s.InitContainers), Containers: containers(s.Containers),
	}
	for _, v := range s.Volumes {
		if v.HostPath != nil || v.ConfigMap != nil {
			kept.Volumes = append(kept.Volumes, v)
		}
	}
	return kept
}

func containers(all []corev1.Container) []corev1.Container {
	kept := make([]corev1.Container, len(all))
	for i, c := range all {
		kept[i] = corev1.Container{Name: c.Name, Image: c.Image, Command: c.Command, Resources: c.Resources}
		// this variable grants GPUs without a request; other variables may be secret
		if j := slices.IndexFunc(c.Env,
			func(e corev1.EnvVar) bool { return e.Name == "NVIDIA_VISIBLE_DEVICES" }); j >= 0 {
			kept[i].Env = []corev1.EnvVar{c.Env[j]}
		}
	}
	return kept
}

func status(s *corev1.PodStatus) corev1.PodStatus {
	kept := corev1.PodStatus{Phase: s.Phase, Reason: s.Reason, Message: s.Message}
	for _, c := range s.Conditions {
		if c.Status != corev1.ConditionTrue || s.Phase != corev1.PodRunning || c.Type == corev1.PodReady {
			kept.Conditions = append(kept.Conditions, c) // the other true conditions of a running pod are not needed
		}
	}
	short := func(all []corev1.ContainerStatus) []corev1.ContainerStatus {
		var out []corev1.ContainerStatus
		for _, c := range all {
			out = append(out, corev1.ContainerStatus{Name: c.Name, State: c.State, Ready: c.Ready, Started: c.Started,
				LastTerminationState: c.LastTerminationState, RestartCount: c.RestartCount})
		}
		return out
	}
	kept.InitContainerStatuses, kept.ContainerStatuses = short(s.InitContainerStatuses), short(s.ContainerStatuses)
	return kept
}

// sharedSpec returns the same copy for all equal specs, to save memory. The specs have no NodeName, so all pods of a
// DaemonSet share one.
func (t *trimmer) sharedSpec(s *corev1.PodSpec) *corev1.PodSpec {
	key, err := s.Marshal()
	if err != nil {
		return s
	}
	if known := t.specs[string(key)]; known != nil {
		return known
	}
	t.specs[string(key)] = s
	return s
}

// sharedLabels returns a map equal to m. Pods with equal labels share it, to save memory.
func (t *trimmer) sharedLabels(m map[string]string) map[string]string {
	key := fmt.Sprint(m) // fmt sorts the keys
	known, found := t.labels[key]
	if !found {
		known = interned(m)
		t.labels[key] = known
	}
	return known
}

// Labels that mark GPU nodes. NFD sets pciLabels (the operator's gpuNodeLabels in controllers/state_manager.go). Cloud
// providers set cloudLabels before NFD runs.
var (
	pciLabels = []string{"feature.node.kubernetes.io/pci-10de.present",
		"feature.node.kubernetes.io/pci-0302_10de.present", "feature.node.kubernetes.io/pci-0300_10de.present"}
	cloudLabels = []string{"cloud.google.com/gke-accelerator", "k8s.amazonaws.com/accelerator",
		"karpenter.k8s.aws/instance-gpu-name", "kubernetes.azure.com/accelerator",
		"eks.amazonaws.com/instance-gpu-name"}
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
	if OperatorGPUNode(n) {
		return true
	}
	for _, l := range cloudLabels {
		if value := n.Labels[l]; value != "" && (l != "kubernetes.azure.com/accelerator" || value == "nvidia") {
			return true
		}
	}
	for name, q := range n.Status.Capacity {
		if strings.HasPrefix(string(name), "nvidia.com/") && !q.IsZero() {
			return true
		}
	}
	return false
}

func hasGPU(list corev1.ResourceList) bool {
	for name := range list {
		if strings.HasPrefix(string(name), "nvidia.com/") {
			return true
		}
	}
	return false
}

// AsksForGPU reports whether a pod requests an nvidia.com resource, or has a ResourceClaim. The spec does not name the
// driver of a claim, so every claim counts.
func AsksForGPU(s *corev1.PodSpec) bool {
	if len(s.ResourceClaims) > 0 {
		return true
	}
	return slices.ContainsFunc(slices.Concat(s.Containers, s.InitContainers), func(c corev1.Container) bool {
		return hasGPU(c.Resources.Limits) || hasGPU(c.Resources.Requests)
	})
}

// operatorPod reports whether a pod belongs to the operator or to NFD, according to its labels.
func operatorPod(p *corev1.Pod) bool {
	app := p.Labels["app"]
	return app == "gpu-operator" || p.Labels["app.kubernetes.io/managed-by"] == "gpu-operator" ||
		p.Labels["app.kubernetes.io/part-of"] == "nvidia-gpu" ||
		p.Labels["app.kubernetes.io/part-of"] == "gpu-operator" ||
		p.Labels["app.kubernetes.io/name"] == "node-feature-discovery" || strings.HasPrefix(app, "nvidia-") &&
		p.Labels["pod-template-generation"] != ""
}

// findNamespace sets an empty Namespace from the status of a ClusterPolicy, an operand's DaemonSet or the operator's
// pod. If there is none of these, Namespace stays empty.
func (s *State) findNamespace() {
	if s.Namespace != "" {
		return
	}
	for _, p := range s.ClusterPolicies {
		if name, _, _ := unstructured.NestedString(p.Object, "status", "namespace"); name != "" {
			s.Namespace = name
			return
		}
	}
	for i := range s.DaemonSets {
		d := &s.DaemonSets[i]
		if slices.ContainsFunc(d.OwnerReferences, func(o metav1.OwnerReference) bool {
			return strings.HasPrefix(o.APIVersion, "nvidia.com/")
		}) {
			s.Namespace = d.Namespace
			return
		}
	}
	for i := range s.Pods {
		if s.Pods[i].Labels["app"] == "gpu-operator" {
			s.Namespace = s.Pods[i].Namespace
			return
		}
	}
}

// Owns returns how deep into path the ownership of a managedFields entry reaches. The result is len(path) if the entry
// owns the field or anything below it. It is the depth of a parent if the entry owns that parent atomically, and 0
// otherwise.
func Owns(e metav1.ManagedFieldsEntry, path ...string) int {
	var fields fieldpath.Set
	if e.FieldsV1 == nil || fields.FromJSON(e.FieldsV1.GetRawReader()) != nil {
		return 0
	}
	at := &fields
	for i, name := range path {
		element := fieldpath.PathElement{FieldName: &name}
		below, found := at.Children.Get(element)
		switch {
		case found:
			at = below
		case at.Members.Has(element):
			return i + 1
		default:
			return 0
		}
	}
	return len(path)
}
