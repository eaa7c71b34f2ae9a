package sharing

import "github.com/gpu-telemetry/dcgm-exporter/gpuop/check"

const pluginConfig = "k8s-device-plugin api/config/v1"

// These checks are for the device plugin's configs. Package fields has more.
var (
	badValue = check.New("sharing-value", check.Error, "The device plugin does not accept this value.",
		"Use one of the listed values.", pluginConfig)
	badReplicas = check.New("sharing-replicas", check.Error,
		"The resource, its name or its replicas are missing, or there are fewer than 2 replicas.",
		"Add what is missing, and use 2 or more replicas.", pluginConfig)
	badResource = check.New("sharing-resource", check.Error,
		"The resource is misspelled, or the device plugin does not support it.",
		"Use nvidia.com/gpu or nvidia.com/mig-<profile>.", pluginConfig)
	bothStrategies = check.New("sharing-both", check.Warning, "timeSlicing and mps are both set: MPS wins silently.",
		"Keep one of them.", pluginConfig)
	ignoredKey = check.New("sharing-ignored", check.Warning, "The device plugin accepts the key and ignores it.",
		"Delete it.", pluginConfig)
	mpsOnMIG = check.New("sharing-mps", check.Error, "MPS does not support MIG devices.", "Use timeSlicing for them.",
		pluginConfig)
	Overridden = check.New("sharing-dead", check.Warning,
		"The operator overrides the key with an environment variable.", "Set it in the operator's values.",
		"gpu-operator controllers/object_controls.go")
	otherChoice = check.New("sharing-choice", check.Warning,
		"The node selects no config, or one that the ConfigMap does not have.",
		"Set the default or the node's label to a config of the ConfigMap.",
		"k8s-device-plugin cmd/config-manager/main.go")
	tooManyClients = check.New("sharing-clients", check.Error,
		"The number of replicas exceeds the limit of MPS clients, so the MPS control daemon does not start.",
		"Use at most the number in the message.", pluginConfig)
	noIsolation = check.New("sharing-no-isolation", check.Note, "Time-slicing isolates neither memory nor faults.",
		"Share among trusted workloads only, or use MIG.", "k8s-device-plugin README, shared access to GPUs")
)
