package drift

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// An Owner is who wrote a field of an object last, by its managedFields. Its zero value is unknown.
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

// deployers are the field managers of programs that install a chart: their writes are the release's. kubectl is none
// of them, since it applies what is typed. Helm's own name is written in two ways.
var deployers = []string{
	"helm", "helm-controller", "argocd-controller", "argocd-application-controller", "kustomize-controller",
}

func deploys(manager string) bool { return slices.Contains(deployers, strings.ToLower(manager)) }

// A controller installs the chart again and again from a repository: a Flux HelmRelease, or an Argo CD
// Application.
type controller struct{ kind, name string }

// controllerOf finds the owner of the ClusterPolicies, by the marks that Flux and Argo CD leave on them.
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
			name = labels["app.kubernetes.io/instance"] // the mark before Argo CD v3
		}
		if name != "" {
			// the id may begin with the Application's namespace: namespace_name
			return controller{"Application", strings.Replace(name, "_", "/", 1)}
		}
	}
	return controller{}
}

// row says that the controller owns the installation.
func (c controller) row() report.Row {
	return report.Row{
		ID: "drift-owner", State: report.Note, Subject: c.kind + "/" + c.name,
		Evidence: report.Seen("metadata", "ClusterPolicy", "names %s %s", c.kind, c.name),
		Reason:   "it owns the installation: what helm or kubectl change beside it is undone when it next applies its own",
		Fix:      c.change(),
	}
}

// change returns the way to change the values.
func (c controller) change() string {
	return "change the values of " + c.kind + " " + c.name + " where they are kept"
}
