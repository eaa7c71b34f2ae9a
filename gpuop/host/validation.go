package host

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
)

const (
	// validationDir is the directory in which the operator's validator writes its files.
	validationDir = "/run/nvidia/validations"
	// driverDir is the root of the operator's driver container, unless hostPaths.driverInstallDir is set.
	driverDir = "/run/nvidia/driver"
	// hostDriverFile was written instead of driver-ready up to v24.3, if the driver was installed on the host.
	hostDriverFile = "host-driver-ready"
)

// operand is a step of the validator. The validator deletes the operand's file before it checks the operand. So a
// missing file means that the operand is not ready, was never enabled, or is being checked.
type operand struct {
	check *check.Check
	// name is the operand's name, such as "driver".
	name string
	// workload is the value of nvidia.com/gpu.workload.config for which the operand is always validated. flag is the
	// key in .driver-ctr-ready that enables the operand. If both are empty, a missing file is never reported.
	workload, flag string
	// other is the file that the validator writes instead if the driver or vGPU manager is installed on the host.
	other string
	// missing says what fails while the operand is not ready.
	missing string
}

func (o operand) file() string { return o.name + "-ready" }

// operands lists the operands in dependency order.
var operands = []operand{
	{name: "mofed", check: newValidation("mofed", "The network driver is not ready.", "Read the MOFED pod's log."),
		missing: "the driver container waits for the network driver"},
	{name: "driver",
		check: newValidation("driver", "The driver is not loaded; every operand waits for it.",
			"Read the driver pod's log."),
		other: hostDriverFile, workload: "container", missing: "every other operand waits for it"},
	{name: "nvidia-peermem",
		check: newValidation("nvidia-peermem", "nvidia-peermem is not loaded: no GPUDirect RDMA.",
			"Read the driver pod's log."),
		flag: "GPU_DIRECT_RDMA_ENABLED", missing: "no GPUDirect RDMA through nvidia-peermem"},
	{name: "nvidia-fs",
		check: newValidation("nvidia-fs", "nvidia-fs is not loaded: no GPUDirect Storage.",
			"Read the driver pod's log."),
		flag: "GDS_ENABLED", missing: "no GPUDirect Storage"},
	{name: "gdrcopy",
		check: newValidation("gdrcopy", "gdrdrv is not loaded: no GDRCopy.", "Read the driver pod's log."),
		flag:  "GDRCOPY_ENABLED", missing: "no GDRCopy"},
	{name: "toolkit", check: newValidation("toolkit", "Containers do not see the GPUs.", "Read the toolkit's log."),
		workload: "container",
		missing:  "the device plugin, GPU Feature Discovery, DCGM and the MIG manager wait for it"},
	{name: "cuda", check: newValidation("cuda", "No CUDA program has run.", "Read the log of cuda-validation."),
		workload: "container", missing: "CUDA has not been validated on the node"},
	{name: "plugin",
		check: newValidation("plugin", "The node offers no GPUs, or no pod with a GPU has run.",
			"Read the log of plugin-validation."),
		workload: "container",
		missing: "the node offers no nvidia.com resource, or no pod with one has run; " +
			"expected only if devicePlugin.enabled is false"},
	{name: "vfio-pci",
		check: newValidation("vfio-pci", "GPUs are not bound to vfio-pci for virtual machines.",
			"Read the VFIO manager's log."),
		workload: "vm-passthrough", missing: "virtual machines cannot use the GPUs"},
	{name: "vgpu-manager", check: newValidation("vgpu-manager", "The vGPU manager is not running.", "Read its log."),
		other: "host-vgpu-manager-ready", workload: "vm-vgpu", missing: "no vGPU can be created"},
	{name: "host-vgpu-manager",
		check: newValidation("host-vgpu-manager", "The host's own vGPU manager is not running.",
			"Check it on the host."),
		missing: "no vGPU can be created"},
	{name: "vgpu-devices",
		check:    newValidation("vgpu-devices", "No vGPUs are created.", "Read the vGPU device manager's log."),
		workload: "vm-vgpu", missing: "virtual machines cannot use vGPUs"},
	{name: "cc-manager",
		check: newValidation("cc-manager", "The confidential computing mode is not set.",
			"Read the CC manager's log."),
		missing: "the confidential computing mode is not set"},
}

// early reports whether an operand is validated before the container runtime is needed.
func (o operand) early() bool { return o.name == "driver" || o.name == "mofed" || o.flag != "" }

// logCommand returns the kubectl command that prints the log of the operand's validation container.
func (o operand) logCommand() string {
	app, container := "nvidia-operator-validator", o.name
	if strings.HasPrefix(o.workload, "vm-") {
		app = "nvidia-sandbox-validator"
	}
	if o.flag != "" {
		container = "driver" // the driver container's validation includes its optional parts
	}
	return fmt.Sprintf("kubectl logs -n gpu-operator -l app=%s -c %s-validation", app, container)
}

// validations holds what the validator's files say about the node.
type validations struct {
	// workload is the node's workload type; "container" if unknown.
	workload string
	// driverRoot is where the driver was found; empty if unknown. host means that the driver is installed on the host.
	driverRoot string
	host       bool
	// container means that the operator's driver container has reported ready. flags says which optional drivers the
	// container enables, such as GDS_ENABLED.
	container bool
	flags     map[string]bool
}

var (
	driverRoot = regexp.MustCompile(`(?m)^NVIDIA_DRIVER_ROOT=(/\S*)`)
	workloads  = []string{"container", "vm-passthrough", "vm-vgpu"}
)

// validations reads the validator's files. It returns nil if their directory cannot be read.
func (r root) validations() *validations {
	if _, err := r.names(validationDir); err != nil {
		return nil
	}
	v := &validations{workload: "container"}
	workload, _ := r.read(validationDir + "/workload-type") // older validators do not write it
	if workload = strings.TrimSpace(workload); slices.Contains(workloads, workload) {
		v.workload = workload
	}
	flags, err := r.read(validationDir + "/.driver-ctr-ready")
	v.container = err == nil
	_ = yaml.Unmarshal([]byte(flags), &v.flags) // the file is empty up to v24.3
	text, err := r.read(validationDir + "/driver-ready")
	switch m := driverRoot.FindStringSubmatch(text); {
	case m != nil:
		v.driverRoot, v.host = m[1], strings.Contains(text, "IS_HOST_DRIVER=true")
	case err == nil && v.container:
		v.driverRoot = driverDir // driver-ready is empty from v22.9 to v24.3
	case r.has(path.Join(validationDir, hostDriverFile)):
		v.driverRoot, v.host = "/", true
	}
	return v
}

// validation checks that the directory of the validator's files exists.
func (n *inspection) validation() (check.Severity, string, string) {
	switch _, err := n.names(validationDir); {
	case err == nil:
		return check.OK, "", ""
	case absent(err) && n.has("/run"):
		return check.Error, "the folder does not exist: the operator's validator has not run since the node booted",
			"kubectl get pods -n gpu-operator -o wide --field-selector spec.nodeName=" + n.name
	default:
		return unread(err)
	}
}

// validated checks each operand that is or should be ready. If early is true, it checks the operands that are validated
// before the container runtime is needed; otherwise it checks the others.
func (n *inspection) validated(early bool) {
	v := n.passed
	if v == nil {
		return
	}
	for _, o := range operands {
		if o.early() != early {
			continue
		}
		info, err := n.info(path.Join(validationDir, o.file()))
		if absent(err) && o.other != "" {
			info, err = n.info(path.Join(validationDir, o.other))
		}
		f := check.Finding{Check: o.check, Node: n.name, Subject: o.file()}
		switch {
		case err == nil:
			f.Since, f.Reason = info.ModTime(), "the validator has passed "+o.name
			if o.name == "driver" && !v.host && !v.container &&
				(v.driverRoot == "/" || path.Clean(v.driverRoot) == driverDir) {
				// at another root (hostPaths.driverInstallDir), a cloud provider has installed the driver without a
				// driver container
				f.Severity = check.Warning
				f.Reason = "driver-ready refers to a driver container, but .driver-ctr-ready is missing: " +
					"the container is restarting or was removed, or another driver is mounted at " + v.driverRoot
				f.Fix = "kubectl get pods -n gpu-operator -l app=nvidia-driver-daemonset -o wide"
			}
		case !absent(err):
			f.Severity, f.Reason, f.Fix = unread(err)
		case o.workload == v.workload:
			f.Severity, f.Reason, f.Fix = check.Error, o.file()+" is missing: "+o.missing, o.logCommand()
		case v.flags[o.flag]:
			f.Severity, f.Fix = check.Error, o.logCommand()
			f.Reason = fmt.Sprintf("%s is missing, but .driver-ctr-ready enables %s: %s", o.file(), o.flag, o.missing)
		default:
			continue // nothing shows that the node needs the operand
		}
		n.findings = append(n.findings, f)
	}
}
