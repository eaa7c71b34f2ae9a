// Package pod checks the GPU requests of Pods, and of any object with a pod template, such as Deployments, PyTorchJobs
// and RayClusters. It does not check the rest of a pod.
package pod

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/mig"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"
)

const scheduling = "Kubernetes documentation: schedule GPUs, device plugins"

// Checks for pods.
var (
	noSpec     = check.New("no-pod-spec", check.Error, "The object has no pod spec.", "Add its spec.", scheduling)
	gpuInteger = check.New("gpu-integer", check.Error,
		"The number of GPUs is empty or not an integer: a pod cannot request part of a GPU.",
		"Request 1, and share the GPU with time-slicing, MPS or MIG.", scheduling)
	gpuLimits = check.New("gpu-limits", check.Error,
		"The API server rejects a GPU request without an equal limit.", "Put it under limits.", scheduling)
	visibleDevices = check.New("visible-devices", check.Warning,
		"NVIDIA_VISIBLE_DEVICES overrides the devices that the device plugin assigns.", "Delete it.",
		"k8s-device-plugin README")
	gpuResource = check.New("gpu-resource", check.Error,
		"No device plugin advertises this resource: the pod stays Pending.",
		"Use the suggested resource.", "k8s-device-plugin internal/rm")
)

// Specs finds the pod specs below an object's spec by their shape: a mapping with a list of containers. The first
// container must have an image or resources.
func Specs(root *yaml.Node) (out []*yaml.Node) {
	left := 20_000
	var below func(n *yaml.Node, depth int)
	below = func(n *yaml.Node, depth int) {
		n = fields.Resolve(n)
		if left--; n == nil || left < 0 || depth > 24 {
			return
		}
		if list := fields.Items(fields.Get(n, "containers")); len(list) > 0 &&
			(fields.Get(list[0], "image") != nil || fields.Get(list[0], "resources") != nil) {
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

// Check checks the GPU requests of the pods in a manifest. Findings have lines but no file.
func Check(root *yaml.Node) []check.Finding {
	r := &checker{}
	if fields.IsNull(fields.Get(root, "spec")) && fields.Get(root, "containers") != nil {
		r.Add(noSpec, check.Error, root, "spec", "the manifest has no pod spec", "put containers below spec")
	}
	for _, spec := range Specs(root) {
		for _, list := range []string{"initContainers", "containers"} {
			for i, c := range fields.Items(fields.Get(spec, list)) {
				r.container(fmt.Sprintf("%s[%d]", list, i), c)
			}
		}
	}
	return r.Findings
}

type checker struct{ fields.Reader }

// prefix begins the name of every NVIDIA resource.
const prefix = "nvidia.com/"

// container checks the GPU resources of a container, and NVIDIA_VISIBLE_DEVICES if the container requests a GPU.
func (r *checker) container(where string, c *yaml.Node) {
	requested := false
	if name := fields.Text(c, "name"); name != "" {
		where = "container " + name
	}
	for _, list := range []string{"limits", "requests"} {
		for _, f := range fields.Of(fields.Get(c, "resources", list)) {
			if !strings.HasPrefix(f.Name, prefix) {
				continue
			}
			requested = true
			subject, limit := where+": "+list+"."+f.Name, fields.Get(c, "resources", "limits", f.Name)
			if limit == nil {
				r.Add(gpuLimits, check.Error, f.Key, subject, "the API server rejects a GPU request without a limit",
					"put it under limits")
			} else if limit.Value != f.Value.Value && !model.UnknownNode(limit) {
				r.Add(gpuLimits, check.Error, f.Value, subject, "the request "+f.Value.Value+" must equal the limit "+
					limit.Value+": a GPU cannot be overcommitted", "leave out the request")
			}
			if list == "limits" || limit == nil {
				r.resource(subject, f)
			}
		}
	}
	for _, e := range fields.Items(fields.Get(c, "env")) {
		if requested && fields.Text(e, "name") == "NVIDIA_VISIBLE_DEVICES" {
			r.Add(visibleDevices, check.Warning, e, where+": NVIDIA_VISIBLE_DEVICES",
				"it overrides the device plugin's value, so the container may see GPUs of other pods", "delete it")
		}
	}
}

// resource checks the name and amount of a GPU resource. The API server accepts an amount such as 1, 1.0 and 1k.
func (r *checker) resource(subject string, f fields.Field) {
	q, err := resource.ParseQuantity(f.Value.Value)
	reason, fix := "found "+fields.Describe(f.Value)+", expected an integer", "write a whole number"
	switch {
	case fields.IsNull(f.Value):
		const empty = "empty, which the API server reads as 0: the pod gets no GPU"
		r.Add(gpuInteger, check.Error, f.Value, subject, empty, fix)
	case f.Value.Kind == yaml.ScalarNode && err == nil && q.Sign() >= 0 && q.MilliValue()%1000 == 0:
	case err == nil && q.Sign() > 0:
		r.Add(gpuInteger, check.Error, f.Value, subject, reason+": a pod cannot request part of a GPU",
			"request 1; share a GPU with time-slicing, MPS or MIG (gpuop node predict, gpuop mig)")
	default:
		r.Add(gpuInteger, check.Error, f.Value, subject, reason, fix)
	}
	if fix, ok := resourceName(f.Name); !ok {
		r.Add(gpuResource, check.Error, f.Key, subject, "no device plugin advertises it: the pod stays Pending", fix)
	}
}

// resourceName reports whether an nvidia.com resource can exist. If not, fix suggests what to write. Only MIG resources
// must be known: KubeVirt, vGPU and the network operator define others, such as nvidia.com/GRID_T4-1Q.
func resourceName(name string) (fix string, ok bool) {
	short := strings.TrimPrefix(strings.TrimSuffix(name, ".shared"), prefix)
	// HAMi's device plugin uses NVIDIA's domain for the last four
	known, otherwise := strings.Fields("gpu pgpu vgpu gpumem gpumem-percentage gpucores priority"), ""
	if strings.HasPrefix(short, "mig-") {
		known, otherwise = nil, "see gpuop mig profiles"
		for _, p := range mig.Profiles() {
			known = append(known, strings.TrimPrefix(mig.ResourceName(p), prefix))
		}
	}
	if slices.Contains(known, short) {
		return "", true
	}
	if near := check.Nearest(short, known); near != "" {
		return "write " + prefix + near, false
	}
	return otherwise, otherwise == ""
}
