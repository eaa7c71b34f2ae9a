package values

import "github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"

// A platform is where the operator is to run: what it brings, and what must be set for it.
type platform struct {
	name, about string
	// driver and toolkit say what the nodes bring themselves.
	driver, toolkit bool
	namespace       string
	values          []chart.Setting
	before, after   []Step
	source          string
}

// A Step is a command to run beside helm, or a manifest to apply.
type Step struct {
	Why     string `json:"why"`
	Command string `json:"command"`
}

const (
	docsEKS       = "NVIDIA GPU Operator with Amazon EKS"
	docsAKS       = "NVIDIA GPU Operator with Azure Kubernetes Service"
	docsGKE       = "NVIDIA GPU Operator with Google GKE"
	docsOpenShift = "NVIDIA GPU Operator on Red Hat OpenShift"
	docsInstall   = "Installing the NVIDIA GPU Operator"
)

var socket = chart.Set("toolkit.env", []any{map[string]any{"name": "CONTAINERD_SOCKET", "value": "/run/k3s/containerd/containerd.sock"}},
	"The distribution's own containerd listens here, not at /run/containerd/containerd.sock.")

// platforms are the places that NVIDIA documents, in the order in which they are listed.
var platforms = []platform{
	{name: "generic", about: "nodes without a driver; containerd or CRI-O", source: docsInstall},
	{name: "eks", about: "EKS with the accelerated AMI, which brings driver and toolkit", driver: true, toolkit: true, source: docsEKS},
	{name: "eks-ubuntu", about: "EKS with Ubuntu nodes, which bring nothing", source: docsEKS},
	{name: "aks", about: "AKS with the driver that Azure installs", driver: true, toolkit: true, source: docsAKS, values: []chart.Setting{
		chart.Set("operator.runtimeClass", "nvidia-container-runtime", "The name of the RuntimeClass that AKS nodes have."),
	}},
	{name: "aks-skip-driver", about: "AKS node pools made with --gpu-driver none", source: docsAKS},
	{name: "gke-cos", about: "GKE Standard with Container-Optimized OS and Google's driver installer", driver: true, source: docsGKE,
		values: []chart.Setting{
			chart.Set("hostPaths.driverInstallDir", "/home/kubernetes/bin/nvidia", "Where Google's installer puts the driver."),
			chart.Set("toolkit.installDir", "/home/kubernetes/bin/nvidia", "The root file system is read-only; this directory is not."),
			chart.Set("toolkit.env", []any{map[string]any{"name": "RUNTIME_CONFIG_SOURCE", "value": "file"}}, "GKE 1.33 and later: read containerd's configuration from its file."),
		},
		before: []Step{
			{"Keep Google's own device plugin off the GPU nodes; set the label on the node pool.", "gcloud container node-pools update POOL --cluster CLUSTER --node-labels=gke-no-default-nvidia-gpu-device-plugin=true"},
			{"The operands run as system-node-critical, which GKE allows in a namespace by quota alone.", "kubectl create namespace gpu-operator\nkubectl apply -f - <<'EOF'\n" +
				"apiVersion: v1\nkind: ResourceQuota\nmetadata:\n  name: gpu-operator-quota\n  namespace: gpu-operator\nspec:\n  hard:\n    pods: 100\n" +
				"  scopeSelector:\n    matchExpressions:\n      - operator: In\n        scopeName: PriorityClass\n        values: [system-node-critical, system-cluster-critical]\nEOF"},
		}},
	{name: "openshift", about: "OpenShift, without the Operator Lifecycle Manager", namespace: "nvidia-gpu-operator", source: docsOpenShift,
		values: []chart.Setting{
			chart.Set("platform.openshift", true, "Renders the security context constraints that OpenShift wants."),
			chart.Set("operator.use_ocp_driver_toolkit", true, "Builds the driver with the image that fits the nodes' kernel."),
			chart.Set("nfd.enabled", false, "OpenShift has a Node Feature Discovery operator of its own: install that."),
		}},
	{name: "rke2", about: "RKE2", values: []chart.Setting{socket}, source: docsInstall},
	{name: "k3s", about: "K3s", values: []chart.Setting{socket}, source: docsInstall},
	{name: "air-gapped", about: "nodes that reach a private registry alone (--registry)", source: docsInstall},
}
