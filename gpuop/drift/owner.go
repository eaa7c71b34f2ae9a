package drift

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

const (
	sourceFlux = "Flux helm-controller: the labels helm.toolkit.fluxcd.io"
	sourceArgo = "Argo CD: resource tracking"
)

// An Owner is the last writer of a field by metadata.managedFields. Its zero value is unknown.
type Owner struct {
	// Manager is the field manager's name: helm, gpu-operator, kubectl-edit.
	Manager string
	// Operation is Update or Apply.
	Operation string
	// Time is when the manager wrote last; zero where the API server does not say.
	Time time.Time
}

// String names the owner in a sentence.
func (o Owner) String() string {
	if o.Manager == "" {
		return "unknown"
	}
	s := report.OneLine(o.Manager) + " (" + o.Operation + ")"
	if !o.Time.IsZero() {
		s += " on " + o.Time.UTC().Format("2006-01-02 15:04:05") + " UTC"
	}
	return s
}

// seen returns a field of the owner as evidence, with its value as a sentence shows it.
func (o Owner) seen(object, field, value string) report.Evidence {
	return report.Seen("field", object, "%s: %s, written by %s", field, value, o).At(o.Time)
}

// ownerIn is the writer of an entry.
func ownerIn(e metav1.ManagedFieldsEntry) Owner {
	o := Owner{Manager: e.Manager, Operation: string(e.Operation)}
	if e.Time != nil {
		o.Time = e.Time.Time
	}
	return o
}

// OwnerOf returns who wrote the field at the path last. Of several writers the one that names it most closely counts,
// then the latest.
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

// owned ends a sentence with the owner of a field with this value.
func owned(entries []metav1.ManagedFieldsEntry, o Owner, value any) string {
	switch {
	case o.Manager != "":
		return "; owner: " + o.String()
	case len(entries) == 0:
		return "; owner: unknown, as the object has no managedFields (kubectl get --show-managed-fields keeps them)"
	case empty(value):
		return "" // an absent field has no owner
	}
	return "; owner: none that the API server knows"
}

// deployers are the field managers of programs that install a chart: their writes are the release's. kubectl is none
// of them, since it applies what is typed. Helm's own name is written in two ways.
var deployers = []string{
	"helm", "helm-controller", "argocd-controller", "argocd-application-controller", "kustomize-controller",
}

func deploys(manager string) bool { return slices.Contains(deployers, strings.ToLower(manager)) }

// A controller installs the chart again and again from a repository: a Flux HelmRelease, or an Argo CD
// Application.
type controller struct{ kind, namespace, name string }

func (c controller) String() string {
	if c.namespace == "" {
		return c.kind + " " + c.name
	}
	return c.kind + " " + c.namespace + "/" + c.name
}

// change returns the way to change the values.
func (c controller) change() string {
	if c.kind == "HelmRelease" {
		return fmt.Sprintf("change spec.values of %s where its manifest is kept, then: flux reconcile helmrelease %s -n %s",
			c, c.name, c.namespace)
	}
	return fmt.Sprintf("change the values of %s where they are kept, then: argocd app sync %s", c, c.name)
}

// revert returns the command that restores the controller's objects.
func (c controller) revert() string {
	if c.kind == "HelmRelease" {
		return fmt.Sprintf("flux reconcile helmrelease %s -n %s --force", c.name, c.namespace)
	}
	return "argocd app sync " + c.name
}

// controllers finds the owners of the ClusterPolicies, by the marks that Flux and Argo CD leave on them.
func controllers(s *cluster.State) []controller {
	var out []controller
	for i := range s.ClusterPolicies {
		p := &s.ClusterPolicies[i]
		labels := p.GetLabels()
		tracked, _, marked := strings.Cut(p.GetAnnotations()["argocd.argoproj.io/tracking-id"], ":")
		// the id may begin with the Application's namespace: namespace_name
		namespace, name, both := strings.Cut(tracked, "_")
		if !both {
			namespace, name = "", tracked
		}
		if !marked && slices.ContainsFunc(p.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool {
			return strings.HasPrefix(e.Manager, "argocd-")
		}) {
			name = labels["app.kubernetes.io/instance"] // the mark before Argo CD v3
		}
		for _, c := range []controller{
			{"HelmRelease", labels["helm.toolkit.fluxcd.io/namespace"], labels["helm.toolkit.fluxcd.io/name"]},
			{"Application", namespace, name},
		} {
			if c.name != "" && !slices.Contains(out, c) {
				out = append(out, c)
			}
		}
	}
	return out
}

// row says that the controller owns the installation.
func (c controller) row() report.Row {
	v := report.Row{
		ID: "drift-owner", State: report.Note, Subject: c.kind + "/" + c.name, Source: sourceFlux,
		Evidence: report.Seen("metadata", "ClusterPolicy", "names %s", c),
		Reason: c.String() +
			" owns the installation: what helm or kubectl change beside it is undone when it next applies its own",
		Fix: fmt.Sprintf("flux get helmrelease %s -n %s  # whether it is ready", c.name, c.namespace),
	}
	if c.kind == "Application" {
		v.Fix, v.Source = "argocd app get "+c.name+"  # whether it is in sync", sourceArgo
	}
	return v
}
