package pod

import "github.com/gpu-telemetry/dcgm-exporter/gpuop/check"

const scheduling = "Kubernetes documentation: schedule GPUs, device plugins"

// Checks for pods.
var (
	noSpec = check.New("no-pod-spec", check.Error, "The object has no pod spec.", "Add its spec.", scheduling)

	gpuInteger = check.New("gpu-integer", check.Error,
		"The number of GPUs is empty or not an integer: a pod cannot request part of a GPU.",
		"Request 1, and share the GPU with time-slicing, MPS or MIG.", scheduling)
	gpuLimits = check.New("gpu-limits", check.Error,
		"A GPU is requested without an equal limit: the API server rejects the pod.", "Put it under limits.",
		scheduling)
	visibleDevices = check.New("visible-devices", check.Warning,
		"NVIDIA_VISIBLE_DEVICES overrides the devices that the device plugin assigns.", "Delete it.",
		"k8s-device-plugin README")
	gpuResource = check.New("gpu-resource", check.Error,
		"No device plugin offers this resource: the pod stays Pending.",
		"Use the suggested resource.", "k8s-device-plugin internal/rm")
)
