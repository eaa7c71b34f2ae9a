package host

import "github.com/gpu-telemetry/dcgm-exporter/gpuop/check"

const (
	toolkitRuntime = "nvidia-container-toolkit cmd/nvidia-ctk-installer/container/runtime"
	validator      = "gpu-operator cmd/nvidia-validator/main.go"
)

// Checks for nodes.
var (
	firstBroken = check.New("first-broken-link", check.Error,
		"Names the first broken component of the node; the later ones depend on it.",
		"Fix this component first.", "gpu-operator assets/")
	gpuOnPCI = check.New("gpu-on-pci", check.Error,
		"No GPU is on the PCI bus, or some GPUs are not bound to the nvidia driver.",
		"Bind them to nvidia.",
		"PCI codes: vendor 10de, classes 03 and 0680, as NVIDIA's go-nvlib pkg/nvpci reads them")
	nouveauLoaded = check.New("nouveau", check.Error, "The nouveau driver holds the GPUs.",
		"Blacklist it and restart the node.",
		"https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/")
	driverModule = check.New("driver-module", check.Error,
		"The NVIDIA kernel module is not loaded: wrong kernel, missing headers or Secure Boot.",
		"Read the driver container's log.",
		"NVIDIA driver README, using the /proc file system interface")
	driverLibraries = check.New("driver-libraries", check.Error,
		"The driver libraries are missing, installed twice, or do not match the kernel module's version.",
		"Remove one of the two drivers.",
		"gpu-operator internal/driver/root.go, cmd/nvidia-validator/main.go")
	deviceNodes = check.New("device-nodes", check.Error,
		"Device nodes are missing, or left over from an unloaded module.",
		"sudo nvidia-modprobe -u -c 0", "NVIDIA driver README, the kernel module's device files")
	fabricManager = check.New("fabric-manager", check.Error,
		"The node has NVSwitches but no running fabric manager: CUDA does not start.",
		"Start nv-fabricmanager.",
		"https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/")
	runtimeConfig = check.New("runtime", check.Error,
		"The container runtime has no handler for the RuntimeClass nvidia, or its binary is missing.",
		"Read the toolkit's log.", toolkitRuntime)
	runtimeImports = check.New("runtime-imports", check.Error, "containerd does not read the toolkit's drop-in file.",
		"Add it to imports, and restart containerd.", "containerd docs/man/containerd-config.toml.5.md")
	runtimeStray = check.New("runtime-stray", check.Warning,
		"The toolkit has written to a file that the container runtime does not read.",
		"Write to the file that it reads.", toolkitRuntime)
	devChar = check.New("dev-char", check.Warning,
		"/dev/char lacks links to the device nodes: containers lose their GPUs when systemd reloads.",
		"sudo nvidia-ctk system create-dev-char-symlinks --create-all",
		"https://github.com/NVIDIA/gpu-operator/issues/430")
	cdiFiles = check.New("cdi", check.Error, "A CDI specification is invalid or names missing files.",
		"sudo nvidia-ctk cdi generate",
		"Container Device Interface, SPEC.md")
	validationDone = check.New("validation", check.Error, "The folder of validation files is missing.",
		"Check that the validator runs.", validator)
)

const driverLog = "kubectl logs -n gpu-operator -l app=nvidia-driver-daemonset -c nvidia-driver-ctr"

// fixes are the fixes of findings for which a check sets none. Other checks have a command as their help.
var fixes = map[*check.Check]string{
	gpuOnPCI: "lspci -nnk -d 10de: && sudo dmesg | grep -i -e nvrm -e nvidia",
	nouveauLoaded: "echo 'blacklist nouveau' | sudo tee /etc/modprobe.d/blacklist-nouveau.conf, " +
		"rebuild the initramfs, and reboot",
	driverModule:    driverLog,
	driverLibraries: "set driver.enabled=false, or uninstall the node's driver",
	fabricManager:   "systemctl status nvidia-fabricmanager; with a driver container: " + driverLog,
	runtimeConfig:   toolkitLog,
	runtimeImports: `add imports = ["/etc/containerd/conf.d/*.toml"] to ` + mainConfig +
		", then sudo systemctl restart containerd",
}
