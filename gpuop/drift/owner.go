package drift

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
)

// Owner is the last writer of a field according to managedFields. The zero value means unknown.
type Owner struct {
	// Manager is the name of the field manager, such as helm, gpu-operator or kubectl-edit.
	Manager string
	// Operation is Update or Apply.
	Operation string
	// Time is when the manager last wrote to the object; zero if unknown.
	Time time.Time
}

// String describes the owner for a message.
func (o Owner) String() string {
	if o.Manager == "" {
		return "unknown"
	}
	s := check.OneLine(o.Manager) + " (" + o.Operation + ")"
	if !o.Time.IsZero() {
		s += " on " + o.Time.UTC().Format("2006-01-02 15:04:05") + " UTC"
	}
	return s
}

// ownerIn returns the owner that an entry describes.
func ownerIn(e metav1.ManagedFieldsEntry) Owner {
	o := Owner{Manager: e.Manager, Operation: string(e.Operation)}
	if e.Time != nil {
		o.Time = e.Time.Time
	}
	return o
}

// OwnerOf returns the last writer of the field at a path. The manager that owns the deepest part of the path wins. If
// several own it equally deep, the latest wins.
func OwnerOf(entries []metav1.ManagedFieldsEntry, path ...string) Owner {
	var best Owner
	deepest := 0
	for _, e := range entries {
		d, o := cluster.Owns(e, path...), ownerIn(e)
		if d > deepest || d > 0 && d == deepest && o.Time.After(best.Time) {
			best, deepest = o, d
		}
	}
	return best
}

// deployers lists the field managers of tools that install charts; Argo CD has two. kubectl is not listed, because
// users also edit with it.
var deployers = []string{
	"helm", "helm-controller", "argocd-controller", "argocd-application-controller", "kustomize-controller",
}

func deploys(manager string) bool { return slices.Contains(deployers, strings.ToLower(manager)) }

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

func (c controller) finding() check.Finding {
	return check.Finding{
		Check: otherOwner, Severity: check.Note, Subject: c.kind + "/" + c.name,
		Evidence: check.Seen("metadata", "ClusterPolicy", "names %s %s", c.kind, c.name),
		Reason:   "the " + c.kind + " manages the installation and may undo changes made with helm or kubectl",
		Fix:      c.change(),
	}
}

// change returns the fix for a value that the controller sets.
func (c controller) change() string {
	return "change the values of " + c.kind + " " + c.name + " in its source, for example in Git"
}
