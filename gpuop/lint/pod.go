package lint

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/mig"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/node"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// podSpec returns the spec of the pod that a manifest makes, or nil.
func podSpec(root *yaml.Node) *yaml.Node {
	switch fields.Text(root, "kind") {
	case "Pod":
		return fields.Get(root, "spec")
	case "Deployment", "DaemonSet", "StatefulSet", "ReplicaSet", "Job", "ReplicationController":
		return fields.Get(root, "spec", "template", "spec")
	case "CronJob":
		return fields.Get(root, "spec", "jobTemplate", "spec", "template", "spec")
	}
	return nil
}

// podSpecs finds pods in any object by their shape: a mapping with a list of containers, each with an image.
func podSpecs(root *yaml.Node) (out []*yaml.Node) {
	left := 20_000
	var below func(n *yaml.Node, depth int)
	below = func(n *yaml.Node, depth int) {
		n = fields.Resolve(n)
		if left--; n == nil || left < 0 || depth > 24 {
			return
		}
		if n.Kind == yaml.MappingNode {
			if list := fields.Items(fields.Get(n, "containers")); len(list) > 0 && fields.Get(list[0], "image") != nil {
				out = append(out, n)
				return
			}
		}
		for i, c := range n.Content {
			if n.Kind != yaml.MappingNode || i%2 == 1 {
				below(c, depth+1)
			}
		}
	}
	below(fields.Get(root, "spec"), 0)
	return out
}

// pod judges a manifest with one pod or more in it.
func (r *run) pod(d *doc) {
	specs := podSpecs(d.root)
	if spec := podSpec(d.root); spec != nil && len(specs) == 0 {
		specs = []*yaml.Node{spec}
	}
	if len(specs) == 0 || specs[0].Kind != yaml.MappingNode {
		r.report(d, []report.Row{{ID: "no-pod-spec", State: report.Failed, Line: d.root.Line, Subject: "spec", Source: sourceKubernetes,
			Reason: "the manifest has no pod spec, so nothing runs", Fix: "put containers under spec, two spaces further right"}})
		return
	}
	for _, spec := range specs {
		r.podSpec(d, spec)
	}
}

// podSpec judges one pod.
func (r *run) podSpec(d *doc, spec *yaml.Node) {
	p := &podJudge{}
	gpus := false
	for _, list := range []string{"initContainers", "containers"} {
		for i, c := range fields.Items(fields.Get(spec, list)) {
			gpus = p.container(fmt.Sprintf("%s[%d]", list, i), c) || gpus
		}
	}
	if gpus {
		tolerations := podTolerations(spec)
		for _, t := range r.taints {
			if !node.Covered(tolerations, t) {
				p.add("taint", report.Failed, spec, "spec.tolerations", fmt.Sprintf("the taint %s of the GPU nodes is not tolerated: the pod stays Pending", t),
					"add {key: "+t.Key+", operator: Exists, effect: "+t.Effect+"}", sourceKubernetes)
			}
		}
	}
	r.report(d, p.findings)
}

// podJudge collects the findings about one pod.
type podJudge struct {
	findings []report.Row
}

func (p *podJudge) add(id report.ID, severity report.State, at *yaml.Node, subject, reason, fix, source string) {
	p.findings = append(p.findings, report.Row{ID: id, State: severity, Line: at.Line, Column: at.Column, Subject: subject, Reason: reason, Fix: fix, Source: source})
}

// container judges a container's resources and reports whether it requests a GPU.
func (p *podJudge) container(where string, c *yaml.Node) bool {
	if name := fields.Text(c, "name"); name != "" {
		where = "container " + name
	}
	resources := fields.Get(c, "resources")
	limits, requests := fields.Get(resources, "limits"), fields.Get(resources, "requests")
	requested := false
	amounts := map[string]string{}
	for _, f := range fields.Of(limits) {
		if gpuResource(f.Name) {
			requested = true
			amounts[f.Name] = f.Value.Value
			p.resource(where+": limits."+f.Name, f)
		}
	}
	for _, f := range fields.Of(requests) {
		if !gpuResource(f.Name) {
			continue
		}
		requested = true
		limit, limited := amounts[f.Name]
		switch {
		case !limited:
			p.add("gpu-limits", report.Failed, f.Key, where+": requests."+f.Name, "a GPU needs a limit: the API server refuses requests without limits", "put it under limits", sourceKubernetes)
			p.resource(where+": requests."+f.Name, f)
		case limit != f.Value.Value:
			p.add("gpu-limits", report.Failed, f.Value, where+": requests."+f.Name, fmt.Sprintf("the request %s and the limit %s must be equal: a GPU cannot be overcommitted", f.Value.Value, limit), "leave out the request", sourceKubernetes)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		if n, _ := strconv.Atoi(amounts[name]); n > 1 && strings.HasSuffix(name, ".shared") {
			p.add("shared-many", report.Warning, limits, where+": limits."+name, fmt.Sprintf("%d replicas of a shared GPU give no more time than 1, and failRequestsGreaterThanOne refuses them", n), "request 1", "k8s-device-plugin README")
		}
	}
	if visible := envNode(c, "NVIDIA_VISIBLE_DEVICES"); visible != nil && requested {
		p.add("visible-devices", report.Warning, visible, where+": NVIDIA_VISIBLE_DEVICES", "the device plugin sets this variable to the GPUs of the container; yours may show others", "delete it", "k8s-device-plugin README")
	}
	return requested
}

func gpuResource(name string) bool {
	return strings.HasPrefix(name, "nvidia.com/") || name == "nvidia/gpu" || name == "nvidia.com.gpu" || name == "gpu"
}

// whole reports whether the API server takes an amount for a whole number: 1, 1.0 and 1k.
func whole(amount string) bool {
	q, err := resource.ParseQuantity(amount)
	return err == nil && q.Sign() >= 0 && q.MilliValue()%1000 == 0
}

// resource judges one GPU resource: its name and its amount.
func (p *podJudge) resource(subject string, f fields.Field) {
	if f.Value.Kind != yaml.ScalarNode || !whole(f.Value.Value) {
		found := f.Value.Value
		if f.Value.Kind != yaml.ScalarNode {
			found = "a group"
		}
		p.add("gpu-integer", report.Failed, f.Value, subject, fmt.Sprintf("found %s, want a whole number: an extended resource cannot be split", found),
			"request 1; share a GPU with time-slicing, MPS or MIG (gpuop share, gpuop mig)", sourceKubernetes)
	}
	if slices.Contains(otherPlugins, f.Name) {
		p.add("gpu-resource", report.Note, f.Key, subject, "HAMi's device plugin advertises this resource, and NVIDIA's does not", "", "HAMi documentation")
	} else if fix, ok := resourceName(f.Name); !ok {
		p.add("gpu-resource", report.Failed, f.Key, subject, "no device plugin advertises this resource: the pod stays Pending", fix, "k8s-device-plugin internal/rm")
	}
}

// otherPlugins are resources of HAMi's device plugin, which uses NVIDIA's domain.
var otherPlugins = []string{"nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores", "nvidia.com/priority"}

// resourceName reports whether a resource of NVIDIA's can exist, and else what may be meant.
func resourceName(name string) (fix string, ok bool) {
	base := strings.TrimSuffix(name, ".shared")
	if profile, isMIG := strings.CutPrefix(base, "nvidia.com/mig-"); isMIG {
		var names []string
		for _, p := range mig.Profiles() {
			if mig.ResourceName(p) == base || mig.ResourceName(p) == profile || "nvidia.com/"+mig.ResourceName(p) == base {
				return "", true
			}
			names = append(names, "nvidia.com/mig-"+strings.TrimPrefix(strings.TrimPrefix(mig.ResourceName(p), "nvidia.com/"), "mig-"))
		}
		return write(base, names, "see gpuop mig profiles"), false
	}
	known := []string{"nvidia.com/gpu", "nvidia.com/pgpu", "nvidia.com/vgpu"}
	if slices.Contains(known, base) {
		return "", true
	}
	if base == "gpu" || base == "nvidia/gpu" || base == "nvidia.com.gpu" {
		return "write nvidia.com/gpu", false
	}
	// KubeVirt and vGPU devices are named after the GPU: nvidia.com/GRID_T4-1Q
	fix = write(base, known, "")
	return fix, fix == ""
}

// envNode returns the entry of a container's environment variable, or nil.
func envNode(c *yaml.Node, name string) *yaml.Node {
	for _, e := range fields.Items(fields.Get(c, "env")) {
		if fields.Text(e, "name") == name {
			return e
		}
	}
	return nil
}
