package judge

import "github.com/gpu-telemetry/dcgm-exporter/gpuop/check"

const (
	platform      = "GPU Operator documentation, platform support"
	gettingStart  = "GPU Operator documentation, getting started"
	stateManager  = "gpu-operator controllers/state_manager.go"
	objectControl = "gpu-operator controllers/object_controls.go"
	policyControl = "gpu-operator controllers/clusterpolicy_controller.go"
	podAdmission  = "Kubernetes documentation, Pod Security Admission"
	taintsPage    = "Kubernetes documentation, taints and tolerations"
	reconfigure   = "mig-parted pkg/mig/reconfigure/reconfigure.go"
	configManager = "k8s-device-plugin cmd/config-manager/main.go"
	pluginLabels  = "k8s-device-plugin internal/lm and internal/rm"
)

// Checks before an installation or an upgrade.
var (
	kubernetesVersion = check.New("kubernetes-version", check.Error,
		"The support matrix does not list this version of Kubernetes.", "Use a release that supports it.", platform)
	osSupported = check.New("os-supported", check.Warning,
		"The support matrix does not list a node's operating system.", "See the release's support matrix.", platform)
	runtimeSupported = check.New("runtime-supported", check.Warning,
		"The support matrix does not list the container runtime.", "See the release's support matrix.", platform)
	cdiSupport = check.New("cdi-support", check.Error, "The runtime does not support CDI, the default since v25.10.0.",
		"Upgrade containerd to 1.7 or later, or set cdi.enabled=false.", "GPU Operator documentation, CDI")
	architecture = check.New("architecture", check.Error, "A node is neither amd64 nor arm64, or runs RHEL 9 on arm64.",
		"Keep the operands off the node, or install its driver yourself.", platform)
	gpuNodes = check.New("gpu-nodes", check.Error, "No node has a label that shows an NVIDIA GPU.",
		"Check that Node Feature Discovery runs.", stateManager)
	driverOS = check.New("driver-os", check.Error,
		"All nodes get the same driver image, but some run a different operating system.",
		"Create an NVIDIADriver with a nodeSelector for each operating system.", stateManager)
	containerRuntime = check.New("container-runtime", check.Error,
		"The toolkit configures one runtime, but some nodes run another.", "Use one runtime on GPU nodes.",
		stateManager)
	nfd = check.New("nfd", check.Error, "Node Feature Discovery is installed twice or not at all.",
		"Set nfd.enabled as the message says.", gettingStart)
	devicePlugin = check.New("device-plugin", check.Error,
		"Two plugins register nvidia.com/gpu, and the last one wins.", "Delete one of the two.", gettingStart)
	podSecurity = check.New("pod-security", check.Error, "The namespace does not allow privileged pods.",
		"Label the namespace pod-security.kubernetes.io/enforce=privileged.", podAdmission)
	priorityQuota = check.New("priority-quota", check.Error,
		"The quota for system-node-critical pods is missing or used up.",
		"Create or raise the quota as the message says.", "GPU Operator documentation, Google GKE")
	serviceMonitorCRD = check.New("servicemonitor-crd", check.Error,
		"A ServiceMonitor is enabled without its CRD: before v26.7.0 the operator never becomes ready.",
		"Install the Prometheus Operator, or disable the ServiceMonitor.", objectControl)
	crdStale = check.New("crd-stale", check.Error, "The custom resource definitions are not those of the release.",
		"Apply those of the release: Helm never updates them.", "Helm documentation, custom resource definitions")
	untainted = check.New("gpu-node-untainted", check.Note, "Pods that request no GPU may run on the GPU nodes.",
		"Taint the nodes to reserve them for GPU pods.", taintsPage)
	untolerated = check.New("taint", check.Error, "Operands or pods do not tolerate a taint of the GPU nodes.",
		"Add the toleration.", taintsPage)
	gpuClient = check.New("gpu-client", check.Warning,
		"Pods use GPUs without requesting them, and block MIG changes and driver upgrades.",
		"Add the nodeSelector nvidia.com/gpu.deploy.client=true.", "gpu-operator v26.7.0, nvidia.com/gpu.deploy.client")
	podsRefused = check.New("pods-refused", check.Error,
		"The API server rejects a DaemonSet's pods: Pod Security, a quota, a RuntimeClass or a webhook.",
		"Read the event.", podAdmission)
	nodeReady = check.New("node-ready", check.Error, "The node is not ready or is cordoned.", "Fix the node first.",
		"Kubernetes documentation, node status")
	NotRead = check.New("unread", check.Warning, "A resource could not be read.",
		"Grant the permission or add the file, as the message says.", "Kubernetes documentation, RBAC")
)

// Checks for an installation.
var (
	operatorPod = check.New("operator-pod", check.Error, "The operator's pod does not run, so nothing is installed.",
		"Read its log.", policyControl)
	clusterPolicy = check.New("cluster-policy", check.Error, "The ClusterPolicy is missing, not ready or ignored.",
		"Fix the operands in the message.", policyControl)
	nvidiaDriver = check.New("nvidia-driver", check.Error, "An NVIDIADriver is not ready.",
		"Fix what its condition says.", policyControl)
	gpuCluster = check.New("gpu-cluster", check.Error, "A GPUCluster is not ready.", "Fix what its condition says.",
		policyControl)
	gpuPresent = check.New("gpu-present", check.Error, "A GPU node lacks the operator's label and gets no operands.",
		"Restart the operator, or correct the label.", stateManager)
	daemonSet = check.New("daemonset", check.Error, "A DaemonSet is missing, selects no node, or is not ready.",
		"Correct the label or taint in the message.", objectControl)
	operandState = check.New("operand", check.Error, "An operand's pod is waiting, crashing, unscheduled or rejected.",
		"Run the command in the message.", stateManager)
	operandsOff = check.New("operands-off", check.Note,
		"nvidia.com/gpu.deploy.operands=false keeps all operands off the node.", "Delete the label.", stateManager)
	driverUpgrade = check.New("driver-upgrade", check.Error,
		"A driver upgrade is in progress or has failed, or its label is left over.", "Read the driver pod's log.",
		"k8s-operator-libs pkg/upgrade/consts.go")
	allocatable = check.New("allocatable", check.Error, "The node offers more or fewer devices than predicted.",
		"Read the device plugin's log.", pluginLabels)
	sharingConfig = check.New("sharing-config", check.Error, "The device plugin's ConfigMap is missing or invalid.",
		"Check it with gpuop lint.", configManager)
	nodeSharing = check.New("node-sharing-config", check.Error,
		"The node selects a sharing config that does not exist.", "Select an existing config.", configManager)
	staleConfig = check.New("stale-config", check.Error, "The device plugin started before its ConfigMap was changed.",
		"Restart the device plugin.", "GPU Operator documentation, time-slicing GPUs")
	migNoDevices = check.New("mig-success-without-devices", check.Error,
		"The MIG manager reports success, but the node does not offer the config's MIG devices.",
		"Read the MIG manager's log.", pluginLabels)
	migConfig = check.New("mig-config", check.Error, "The MIG config does not exist or cannot be read.",
		"Use an existing config.", "mig-parted config-default.yaml; cmd/nvidia-mig-manager/main.go")
	prediction = check.New("prediction", check.Warning, "The node's resources could not be predicted.",
		"The message says why.", pluginLabels)
)

// Checks before a MIG change.
var (
	migCapable = check.New("mig-capable", check.Error, "The node's GPUs do not support MIG.", "Use another node.",
		"mig-parted cmd/nvidia-mig-manager/main.go")
	migManager = check.New("mig-manager", check.Error,
		"No MIG manager is ready on the node, so nothing reacts to the label.", "Start the MIG manager first.",
		"mig-parted cmd/nvidia-mig-manager/main.go")
	migUnderWay = check.New("mig-under-way", check.Error, "Another MIG change is in progress.", "Wait until it ends.",
		"https://github.com/NVIDIA/mig-parted/issues/485")
	migSame = check.New("mig-same", check.Error, "The node already has this label.",
		"Remove the label first if the last change did not succeed.", "mig-parted cmd/nvidia-mig-manager/main.go")
	migUpgrade = check.New("mig-driver-upgrade", check.Error, "A driver upgrade is in progress.", "Wait until it ends.",
		"k8s-operator-libs pkg/upgrade/consts.go")
	migPaused = check.New("mig-paused", check.Error, "Operands are paused although no change is in progress.",
		"Restore their labels.", reconfigure)
	migPod = check.New("mig-pod", check.Error, "A pod holds GPUs of the node.", "Cordon the node and delete the pod.",
		"NVIDIA Multi-Instance GPU User Guide")
	migClient = check.New("mig-client", check.Error, "A pod uses the GPUs without requesting one.",
		"Add the nodeSelector nvidia.com/gpu.deploy.client=true.", reconfigure)
	migCordon = check.New("mig-cordon", check.Note, "The node is not cordoned: a new pod may take a GPU.",
		"Cordon the node.", "Kubernetes documentation, node status")
	migPredicted = check.New("mig-predicted", check.Warning,
		"The resources that the node will have after the MIG change.", "Compare them with what your pods request.",
		pluginLabels)
)
