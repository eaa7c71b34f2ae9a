package node

import "github.com/gpu-telemetry/dcgm-exporter/gpuop/check"

// Checks for nodes.
var (
	NoResource = check.New("node-no-gpu-resource", check.Error,
		"The node has GPU labels but no nvidia.com resource: the device plugin has not registered.",
		"Read the device plugin's log.", "gpu-operator controllers/state_manager.go")
	NoLabels = check.New("node-no-gpu-labels", check.Warning, "GPU Feature Discovery has not labeled the node.",
		"Read its log.", "k8s-device-plugin internal/lm")
	MIGState = check.New("node-mig-state", check.Error,
		"A MIG change is in progress, has failed or is stuck, or the MIG strategy does not support the MIG devices.",
		"Read the MIG manager's log.", "mig-parted pkg/mig/reconfigure/reconfigure.go")
	OperandPaused = check.New("node-operand-paused", check.Error,
		"An operand is paused for a MIG change or a driver upgrade, or was never resumed.",
		"Find out what holds the GPUs.",
		"gpu-operator controllers/state_manager.go")
	CapacityDiffers = check.New("node-capacity-differs", check.Warning, "Some GPUs are unhealthy and not allocatable.",
		"Look for XIDs in the kernel log.", "Kubernetes device plugins, health")
)
