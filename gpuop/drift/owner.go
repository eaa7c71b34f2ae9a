package drift

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
)

// written describes the owner of a field, and when it last wrote to the object, for a message.
func written(e metav1.ManagedFieldsEntry) string {
	if e.Manager == "" {
		return "unknown"
	}
	s := check.OneLine(e.Manager) + " (" + string(e.Operation) + ")"
	if !e.Time.IsZero() {
		s += " on " + e.Time.UTC().Format("2006-01-02 15:04:05") + " UTC"
	}
	return s
}

// OwnerOf returns the entry of the last writer of the field at a path, or an empty entry if the owner is unknown. The
// manager that owns the deepest part of the path wins. If several own it equally deep, the latest wins.
func OwnerOf(entries []metav1.ManagedFieldsEntry, path ...string) (owner metav1.ManagedFieldsEntry) {
	deepest := 0
	for _, e := range entries {
		if d := cluster.Owns(e, path...); d > deepest || d > 0 && d == deepest && isLater(e, owner) {
			owner, deepest = e, d
		}
	}
	return owner
}

// isLater reports whether a is later than b, or b has no time.
func isLater(a, b metav1.ManagedFieldsEntry) bool { return b.Time == nil || b.Time.Before(a.Time) }

// deployers lists the field managers of tools that install charts; Argo CD has two. kubectl is not listed, because
// users also edit with it.
var deployers = []string{
	"helm", "helm-controller", "argocd-controller", "argocd-application-controller", "kustomize-controller",
}

// controller is an object that continuously reconciles the installation: a Flux HelmRelease or an Argo CD Application.
type controller struct{ kind, name string }

// controllerOf detects a controller by the labels, annotations and field managers of the ClusterPolicies.
func controllerOf(s *cluster.State) controller {
	for i := range s.ClusterPolicies {
		p := &s.ClusterPolicies[i]
		labels := p.GetLabels()
		if name := labels["helm.toolkit.fluxcd.io/name"]; name != "" {
			return controller{"HelmRelease", labels["helm.toolkit.fluxcd.io/namespace"] + "/" + name}
		}
		name, _, _ := strings.Cut(p.GetAnnotations()["argocd.argoproj.io/tracking-id"], ":")
		if name == "" && slices.ContainsFunc(p.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool {
			return strings.HasPrefix(e.Manager, "argocd-")
		}) {
			name = labels["app.kubernetes.io/instance"] // Argo CD before v3 uses this label
		}
		if name != "" {
			// the ID may contain the Application's namespace, as namespace_name
			return controller{"Application", strings.Replace(name, "_", "/", 1)}
		}
	}
	return controller{}
}

// change returns the fix for a value that the controller sets.
func (c controller) change() string {
	return "change the values of " + c.kind + " " + c.name + " in its source, for example in Git"
}
