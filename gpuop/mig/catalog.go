package mig

import "github.com/gpu-telemetry/dcgm-exporter/gpuop/check"

const (
	migParted  = "mig-parted api/spec/v1"
	placements = "MIG User Guide, supported MIG profiles and placements"
	labelMaker = "k8s-device-plugin internal/lm"
)

// Checks for MIG configs.
var (
	DoesNotFit = check.New("mig-does-not-fit", check.Error, "The profiles do not fit on one GPU together.",
		"See gpuop mig profiles MODEL for the combinations that fit.", placements)
	Coverage = check.New("mig-coverage", check.Error,
		"No entry covers a GPU of the node, or an entry names a missing GPU: the change never completes.",
		"Cover every GPU.", migParted)

	configVersion = check.New("mig-config-version", check.Error,
		"mig-parted does not support this version and rejects the file.", "Write version: v1.", migParted)
	configName = check.New("mig-config-name", check.Error,
		"The name is not a valid label value, so no node can select it.",
		"Use letters, digits, - _ and . only.", migParted)
	configMissing = check.New("mig-config-missing", check.Error,
		"A required field is missing, or the file or a config is empty.", "Add what is missing.", migParted)
	unknownProfile = check.New("mig-profile", check.Error, "No board has this profile, or its spelling is wrong.",
		"Use the suggested profile.", migParted)
	deviceFilter = check.New("mig-device-filter", check.Error, "The PCI id matches no GPU.",
		"Write it as 0x<device>10DE.", migParted)
	modeDevices = check.New("mig-mode", check.Error, "mig-enabled and mig-devices contradict each other.",
		"Write mig-enabled: true, or delete mig-devices.", migParted)
)

// Checks for predictions.
var (
	singleInvalid = check.New("mig-single-invalid", check.Error,
		"The strategy single needs equal MIG devices: the node offers no GPU.", "Use mixed, or another config.",
		"k8s-device-plugin internal/rm/device_map.go")
	hidden = check.New("mig-hidden", check.Warning,
		"MIG is enabled, but with the strategy none the device plugin does not advertise MIG devices.",
		"Use the strategy single or mixed, or disable MIG.", "k8s-device-plugin internal/rm/device_map.go")
	mixedModels = check.New("mixed-gpu-models", check.Warning,
		"The node has several GPU models, and its label names only one.",
		"Label the nodes yourself, or use one model for each node.", labelMaker)
	variantResource = check.New("mig-variant-resource", check.Warning,
		"A variant of a profile is offered under another resource name.", "Request the resource in the message.",
		"k8s-device-plugin v0.20.0 release; internal/rm/rm.go")
	enabledEmpty = check.New("mig-enabled-empty", check.Warning,
		"GPUs in MIG mode without an instance are not offered.",
		"Partition them, or disable MIG.", "k8s-device-plugin internal/rm/device_map.go")
	besideWhole = check.New("mig-beside-whole", check.Note,
		"The node has whole GPUs and MIG devices: GPU pods stay Pending with some drivers.",
		"See the versions in the message.", "GPU Operator release notes, known issues")
	mpsWithMIG = check.New("mps-with-mig", check.Error, "MPS does not work while a GPU is in MIG mode.",
		"Use time-slicing, or disable MIG.", labelMaker)
)
