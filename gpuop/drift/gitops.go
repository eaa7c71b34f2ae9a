package drift

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

const (
	sourceFlux = "Flux helm-controller: the labels helm.toolkit.fluxcd.io"
	sourceArgo = "Argo CD: resource tracking"
)

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
		return fmt.Sprintf("change spec.values of %s where its manifest is kept, then: flux reconcile helmrelease %s -n %s", c, c.name, c.namespace)
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
		if !marked && slices.ContainsFunc(p.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool { return strings.HasPrefix(e.Manager, "argocd-") }) {
			name = labels["app.kubernetes.io/instance"] // the mark before Argo CD v3
		}
		for _, c := range []controller{
			{"HelmRelease", labels["helm.toolkit.fluxcd.io/namespace"], labels["helm.toolkit.fluxcd.io/name"]}, {"Application", namespace, name},
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
		ID: "drift-owner", State: report.Note, Subject: c.kind + "/" + c.name, Evidence: report.Seen("metadata", "ClusterPolicy", "names %s", c),
		Reason: c.String() + " owns the installation: what helm or kubectl change beside it is undone when it next applies its own",
		Fix:    fmt.Sprintf("flux get helmrelease %s -n %s  # whether it is ready", c.name, c.namespace), Source: sourceFlux,
	}
	if c.kind == "Application" {
		v.Fix, v.Source = "argocd app get "+c.name+"  # whether it is in sync", sourceArgo
	}
	return v
}
