package drift

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

const (
	sourceFlux = "Flux: HelmRelease, spec.suspend and status.conditions"
	sourceArgo = "Argo CD: Application, status.sync and resource tracking"
)

// A controller is what installs the chart again and again from a repository: a Flux HelmRelease, or an
// Argo CD Application.
type controller struct {
	kind, namespace, name string
	object                *unstructured.Unstructured // nil where only a label names it
}

func (c controller) String() string {
	if c.namespace == "" {
		return c.kind + " " + c.name
	}
	return c.kind + " " + c.namespace + "/" + c.name
}

// subject is the object as kubectl names it.
func (c controller) subject() string { return c.kind + "/" + c.name }

// change says where the values are changed.
func (c controller) change() string {
	if c.kind == "HelmRelease" {
		return fmt.Sprintf("change spec.values of %s where its manifest is kept, then: flux reconcile helmrelease %s -n %s", c, c.name, c.namespace)
	}
	return fmt.Sprintf("change the values of %s where they are kept, then: argocd app sync %s", c, c.name)
}

// revert says how what the controller wrote is put back.
func (c controller) revert() string {
	if c.kind == "HelmRelease" {
		return fmt.Sprintf("flux reconcile helmrelease %s -n %s --force", c.name, c.namespace)
	}
	return "argocd app sync " + c.name
}

// controllers finds what owns the releases and the custom resources.
func controllers(s *cluster.State, releases []history) []controller {
	var out []controller
	add := func(c controller) {
		if c.name != "" && !slices.ContainsFunc(out, func(o controller) bool {
			return o.kind == c.kind && o.name == c.name && (o.namespace == c.namespace || c.namespace == "")
		}) {
			out = append(out, c)
		}
	}
	for i := range s.HelmReleases {
		h := &s.HelmReleases[i]
		name, _, _ := unstructured.NestedString(h.Object, "spec", "chart", "spec", "chart")
		released, _, _ := unstructured.NestedString(h.Object, "spec", "releaseName")
		target, _, _ := unstructured.NestedString(h.Object, "spec", "targetNamespace")
		if target == "" {
			target = h.GetNamespace()
		}
		if released == "" { // Flux puts the target namespace before the name where one is set
			released = h.GetName()
			if target != h.GetNamespace() {
				released = target + "-" + h.GetName()
			}
		}
		drives := slices.ContainsFunc(releases, func(r history) bool { return r[0].Name == released && r[0].Namespace == target })
		if drives || operatorChart(name) {
			add(controller{"HelmRelease", h.GetNamespace(), h.GetName(), h})
		}
	}
	for i := range s.Applications {
		if a := &s.Applications[i]; applies(a) {
			add(controller{"Application", a.GetNamespace(), a.GetName(), a})
		}
	}
	for i := range s.ClusterPolicies {
		p := &s.ClusterPolicies[i]
		labels, notes := p.GetLabels(), p.GetAnnotations()
		add(controller{"HelmRelease", labels["helm.toolkit.fluxcd.io/namespace"], labels["helm.toolkit.fluxcd.io/name"], nil})
		if tracked, _, found := strings.Cut(notes["argocd.argoproj.io/tracking-id"], ":"); found {
			// the id may begin with the Application's namespace: namespace_name
			namespace, name, both := strings.Cut(tracked, "_")
			if !both {
				namespace, name = "", tracked
			}
			add(controller{"Application", namespace, name, nil})
		}
	}
	return out
}

// applies reports whether an Application installs the operator's chart, or its ClusterPolicy.
func applies(a *unstructured.Unstructured) bool {
	source, _, _ := unstructured.NestedMap(a.Object, "spec", "source")
	sources, _, _ := unstructured.NestedSlice(a.Object, "spec", "sources")
	for _, s := range append(sources, any(source)) {
		m, _ := s.(map[string]any)
		if operatorChart(text(m, "chart")) {
			return true
		}
	}
	resources, _, _ := unstructured.NestedSlice(a.Object, "status", "resources")
	return slices.ContainsFunc(resources, func(r any) bool {
		m, _ := r.(map[string]any)
		return text(m, "group") == "nvidia.com" && text(m, "kind") == "ClusterPolicy"
	})
}

// judge returns the rows of one controller: that it owns the installation, and whether it is able to.
func (c controller) judge() report.Row {
	v := report.Row{ID: "drift-owner", State: report.Note, Subject: c.subject(), Source: sourceFlux,
		Reason: c.String() + " owns the installation: what helm or kubectl change beside it is undone when it next applies its own"}
	if c.kind == "Application" {
		v.Source = sourceArgo
	}
	v.Evidence = report.Seen("metadata", "ClusterPolicy", "names %s", c)
	if c.object == nil {
		v.Reason += "; the metadata of the ClusterPolicy names it, and the object itself was not found"
		return v
	}
	v.Evidence = report.Seen("spec", c.subject(), "%s", c)
	if c.kind == "Application" {
		return c.application(v)
	}
	if suspended, _, _ := unstructured.NestedBool(c.object.Object, "spec", "suspend"); suspended {
		v.State = report.Warning
		v.Reason = c.String() + " owns the installation and is suspended: nothing that is changed where it is kept reaches the cluster"
		v.Fix = fmt.Sprintf("flux resume helmrelease %s -n %s", c.name, c.namespace)
		return v
	}
	conditions, _, _ := unstructured.NestedSlice(c.object.Object, "status", "conditions")
	for _, item := range conditions {
		m, _ := item.(map[string]any)
		if text(m, "type") == "Ready" && text(m, "status") == "False" {
			v.State, v.Since = report.Failed, at(text(m, "lastTransitionTime"))
			v.Evidence = report.Seen("condition", c.subject(), "Ready=False: %s", text(m, "message")).At(v.Since)
			v.Reason = fmt.Sprintf("%s owns the installation and is not ready: %s", c, strings.TrimSuffix(text(m, "message"), "."))
			v.Fix = fmt.Sprintf("flux get helmrelease %s -n %s", c.name, c.namespace)
		}
	}
	return v
}

func (c controller) application(v report.Row) report.Row {
	if status, _, _ := unstructured.NestedString(c.object.Object, "status", "sync", "status"); status == "OutOfSync" {
		v.State = report.Failed
		v.Reason = fmt.Sprintf("%s owns the installation and is OutOfSync: what is in the cluster is not what is kept for it", c)
		v.Fix = "argocd app diff " + c.name
		return v
	}
	if _, heals, _ := unstructured.NestedFieldNoCopy(c.object.Object, "spec", "syncPolicy", "automated"); !heals {
		v.Reason = c.String() + " owns the installation and syncs by hand: what helm or kubectl change beside it is undone by the next sync"
	}
	return v
}

// at reads a time of Kubernetes; zero where it is none.
func at(s string) time.Time {
	t, _ := time.Parse(time.RFC3339, s)
	return t
}
