package lint

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/mig"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/node"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// podSpecs finds pods in any object by their shape: a mapping with a list of containers, each with an image or resources.
func podSpecs(root *yaml.Node) (out []*yaml.Node) {
	left := 20_000
	var below func(n *yaml.Node, depth int)
	below = func(n *yaml.Node, depth int) {
		n = fields.Resolve(n)
		if left--; n == nil || left < 0 || depth > 24 {
			return
		}
		if list := fields.Items(fields.Get(n, "containers")); len(list) > 0 && (fields.Get(list[0], "image") != nil || fields.Get(list[0], "resources") != nil) {
			out = append(out, n)
			return
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

// pods judges the GPUs that the pods of a manifest request.
func pods(root *yaml.Node, taints []corev1.Taint) []report.Row {
	j := &podJudge{}
	if fields.IsNull(fields.Get(root, "spec")) && fields.Get(root, "containers") != nil {
		j.Add("no-pod-spec", report.Failed, root, "spec", "the manifest has no pod spec, so nothing runs", "put containers under spec, two spaces further right")
	}
	for _, spec := range podSpecs(root) {
		gpus := false
		for _, list := range []string{"initContainers", "containers"} {
			for i, c := range fields.Items(fields.Get(spec, list)) {
				gpus = j.container(fmt.Sprintf("%s[%d]", list, i), c) || gpus
			}
		}
		tolerations := tolerationsOf(fields.Get(spec, "tolerations"))
		for _, t := range taints {
			if gpus && !node.Covered(tolerations, t) {
				j.Add("taint", report.Failed, spec, "spec.tolerations", fmt.Sprintf("the taint %s of the GPU nodes is not tolerated: the pod stays Pending", t.ToString()),
					"add {key: "+t.Key+", operator: Exists, effect: "+string(t.Effect)+"}")
			}
		}
	}
	return j.Findings
}

// podJudge collects the findings about pods.
type podJudge struct{ fields.Reader }

// container judges a container's resources and reports whether it requests a GPU.
func (j *podJudge) container(where string, c *yaml.Node) (requested bool) {
	if name := fields.Text(c, "name"); name != "" {
		where = "container " + name
	}
	limits := fields.Get(c, "resources", "limits")
	for _, f := range fields.Of(limits) {
		if gpuResource(f.Name) {
			requested = true
			j.resource(where+": limits."+f.Name, f)
		}
	}
	for _, f := range fields.Of(fields.Get(c, "resources", "requests")) {
		if !gpuResource(f.Name) {
			continue
		}
		requested = true
		subject := where + ": requests." + f.Name
		if limit := fields.Get(limits, f.Name); limit == nil {
			j.Add("gpu-limits", report.Failed, f.Key, subject, "a GPU needs a limit: the API server refuses requests without limits", "put it under limits")
			j.resource(subject, f)
		} else if limit.Value != f.Value.Value && !model.UnknownNode(limit) {
			j.Add("gpu-limits", report.Failed, f.Value, subject, fmt.Sprintf("the request %s and the limit %s must be equal: a GPU cannot be overcommitted", f.Value.Value, limit.Value),
				"leave out the request")
		}
	}
	for _, e := range fields.Items(fields.Get(c, "env")) {
		if requested && fields.Text(e, "name") == "NVIDIA_VISIBLE_DEVICES" {
			j.Add("visible-devices", report.Warning, e, where+": NVIDIA_VISIBLE_DEVICES",
				"the device plugin sets this variable to the GPUs of the container; yours may show others", "delete it")
		}
	}
	return requested
}

// slips are names that people give to nvidia.com/gpu.
var slips = []string{"nvidia/gpu", "nvidia.com.gpu", "gpu"}

func gpuResource(name string) bool {
	return strings.HasPrefix(name, "nvidia.com/") || slices.Contains(slips, name)
}

// whole reports whether the API server takes an amount for a whole number: 1, 1.0 and 1k.
func whole(amount string) bool {
	q, err := resource.ParseQuantity(amount)
	return err == nil && q.Sign() >= 0 && q.MilliValue()%1000 == 0
}

// resource judges one GPU resource: its name and its amount.
func (j *podJudge) resource(subject string, f fields.Field) {
	if f.Value.Kind != yaml.ScalarNode || !whole(f.Value.Value) {
		fix := "write a whole number"
		if _, err := resource.ParseQuantity(f.Value.Value); err == nil {
			fix = "request 1; share a GPU with time-slicing, MPS or MIG (gpuop share, gpuop mig)"
		}
		j.Add("gpu-integer", report.Failed, f.Value, subject, "found "+fields.Describe(f.Value)+", want a whole number: an extended resource cannot be split", fix)
	}
	if fix, ok := resourceName(f.Name); !ok {
		j.Add("gpu-resource", report.Failed, f.Key, subject, "no device plugin advertises this resource: the pod stays Pending", fix)
	}
}

// otherPlugins are resources of HAMi's device plugin, which uses NVIDIA's domain.
var otherPlugins = []string{"nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores", "nvidia.com/priority"}

// resourceName reports whether a resource of NVIDIA's can exist, and else what may be meant. KubeVirt, vGPU and the network
// operator name others: nvidia.com/GRID_T4-1Q, nvidia.com/roce.
func resourceName(name string) (fix string, ok bool) {
	base := strings.TrimSuffix(name, ".shared")
	if slices.Contains(slips, base) {
		return "write " + mig.WholeGPU, false
	}
	short, _ := strings.CutPrefix(base, labelPrefix)
	known, otherwise := []string{"gpu", "pgpu", "vgpu"}, ""
	if strings.HasPrefix(short, "mig-") {
		known, otherwise = nil, "see gpuop mig profiles"
		for _, p := range mig.Profiles() {
			known = append(known, strings.TrimPrefix(mig.ResourceName(p), labelPrefix))
		}
	}
	if slices.Contains(known, short) || slices.Contains(otherPlugins, name) {
		return "", true
	}
	if near := report.Nearest(short, known); near != "" {
		return "write " + labelPrefix + near, false
	}
	return otherwise, otherwise == ""
}

// tolerationsOf reads a list of tolerations, as far as it is one.
func tolerationsOf(list *yaml.Node) (out []corev1.Toleration) {
	if list != nil {
		_ = list.Decode(&out)
	}
	return out
}

// operandTolerations is the key of the operands' tolerations.
const operandTolerations = "daemonsets.tolerations"

// tolerations compares the taints of the GPU nodes with what the operands and the discovery's worker tolerate.
func (r *run) tolerations(in *installation, file string) {
	const worker = "node-feature-discovery.worker.tolerations"
	for _, p := range []struct{ path, what string }{
		{operandTolerations, "the operands"},
		{worker, "Node Feature Discovery's worker, so that the operator never learns of the GPU"},
	} {
		value, known := in.Value(p.path)
		if !known || p.path == worker && in.Is("nfd.enabled", false) {
			continue
		}
		var list yaml.Node
		_ = list.Encode(value) // of what was decoded: does not fail
		have := tolerationsOf(&list)
		if p.path == operandTolerations {
			have = node.OperandTolerations(have)
		}
		f := report.Row{ID: "taint", State: report.Failed, Subject: p.path, File: file}
		if s := in.Explicit(p.path); s != nil {
			f.File, f.Line, f.Column = s.File, s.Line, s.Column
		}
		for _, t := range r.taints {
			if !node.Covered(have, t) {
				f.Reason = fmt.Sprintf("the taint %s of the GPU nodes is not tolerated: it keeps away %s (DaemonSets show DESIRED 0)", t.ToString(), p.what)
				f.Fix = "add {key: " + t.Key + ", operator: Exists, effect: " + string(t.Effect) + "} to the chart's default"
				r.add(file, f)
			}
		}
	}
}
