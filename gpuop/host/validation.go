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
	// name is the operand's name, such as "driver". missing says what fails while the operand is not ready.
	name, missing string
	// workload is the value of nvidia.com/gpu.workload.config for which the operand is always validated. flag is the
	// key in .driver-ctr-ready that enables the operand. If both are empty, a missing file is never reported.
	workload, flag string
	// other is the file that the validator writes instead if the driver or vGPU manager is installed on the host.
	other string

	check *check.Check
}

func (o operand) file() string { return o.name + "-ready" }

// operands lists the operands in dependency order.
var operands = func() []operand {
	const container, passthrough, vGPU = "container", "vm-passthrough", "vm-vgpu"
	all := []operand{
		{name: "mofed", missing: "the validator has not validated the network driver; " +
			"the driver container waits for it"},
		{name: "driver", workload: container, other: hostDriverFile,
			missing: "the validator has not validated the driver; every other operand waits for it"},
		{name: "nvidia-peermem", flag: "GPU_DIRECT_RDMA_ENABLED",
			missing: "the validator has not validated nvidia-peermem: no GPUDirect RDMA"},
		{name: "nvidia-fs", flag: "GDS_ENABLED",
			missing: "the validator has not validated nvidia-fs: no GPUDirect Storage"},
		{name: "gdrcopy", flag: "GDRCOPY_ENABLED", missing: "the validator has not validated gdrdrv: no GDRCopy"},
		{name: "toolkit", workload: container, missing: "the validator has not validated the toolkit; " +
			"the device plugin, GPU Feature Discovery, DCGM and the MIG manager wait for it"},
		{name: "cuda", workload: container, missing: "CUDA has not been validated on the node"},
		{name: "plugin", workload: container, missing: "the node offers no nvidia.com resource, " +
			"or no pod with one has run; expected only if devicePlugin.enabled is false"},
		{name: "vfio-pci", workload: passthrough, missing: "virtual machines cannot use the GPUs"},
		{name: "vgpu-manager", workload: vGPU, other: "host-vgpu-manager-ready",
			missing: "the validator has not validated the vGPU manager: no vGPU can be created"},
		{name: "host-vgpu-manager", missing: "the validator has not validated the host's own vGPU manager"},
		{name: "vgpu-devices", workload: vGPU, missing: "virtual machines cannot use vGPUs"},
		{name: "cc-manager", missing: "the confidential computing mode is not set"},
	}
	for i, o := range all {
		app, container := o.log()
		all[i].check = check.New("validation-"+o.name, check.Error,
			strings.ToUpper(o.missing[:1])+o.missing[1:]+".",
			fmt.Sprintf("Read the log of %s, container %s.", app, container), validator)
	}
	return all
}()

// early reports whether an operand is validated before the container runtime is needed.
func (o operand) early() bool { return o.name == "driver" || o.name == "mofed" || o.flag != "" }

// log returns the validator and its container that validate the operand.
func (o operand) log() (app, container string) {
	app, container = "nvidia-operator-validator", strings.TrimPrefix(o.name, "host-")
	if o.flag != "" {
		container = "driver" // the driver container's validation includes its optional parts
	} else if o.workload != "container" && o.name != "mofed" {
		app = "nvidia-sandbox-validator"
	}
	return app, container + "-validation"
}

// logCommand returns the kubectl command that prints the log of the operand's validation container.
func (o operand) logCommand() string {
	app, container := o.log()
	return fmt.Sprintf("kubectl logs -n gpu-operator -l app=%s -c %s", app, container)
}

// validations holds what the validator's files say about the node.
type validations struct {
	// workload is the node's workload type. It is empty if the files could not be read.
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
	driverRoot   = regexp.MustCompile(`(?m)^NVIDIA_DRIVER_ROOT=(/\S*)`)
	workloadType = regexp.MustCompile(`^\s*(container|vm-passthrough|vm-vgpu)\s*$`)
)

// validations reads the validator's files.
func (r root) validations() (v validations) {
	if _, err := r.names(validationDir); err != nil {
		return v
	}
	v.workload = "container"
	workload, _ := r.read(validationDir + "/workload-type") // older validators do not write it
	if m := workloadType.FindStringSubmatch(workload); m != nil {
		v.workload = m[1]
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
func (n *inspection) validation(f *check.Finding) error {
	_, err := n.names(validationDir)
	if absent(err) && n.has("/run") {
		f.Say(check.Error, "the folder does not exist: the operator's validator has not run since the node booted")
		f.Fix = "kubectl get pods -n gpu-operator -o wide --field-selector spec.nodeName=" + n.name
		return nil
	}
	return err
}

// validated checks each operand that is or should be ready. If early is true, it checks the operands that are validated
// before the container runtime is needed; otherwise it checks the others.
func (n *inspection) validated(early bool) {
	for _, o := range operands {
		if o.early() == early && n.passed.workload != "" {
			n.run(o.check, o.file(), func(f *check.Finding) error { return n.ready(f, o) })
		}
	}
}

// ready checks an operand. It leaves the reason of f empty if nothing indicates that the node needs the operand.
func (n *inspection) ready(f *check.Finding, o operand) error {
	v := n.passed
	info, err := n.info(path.Join(validationDir, o.file()))
	if absent(err) && o.other != "" {
		info, err = n.info(path.Join(validationDir, o.other))
	}
	switch {
	case err == nil:
		f.Since, f.Reason = info.ModTime(), "the validator has passed "+o.name
		// at another root (hostPaths.driverInstallDir), a cloud provider has installed the driver without a driver
		// container
		if o.name == "driver" && !v.host && !v.container &&
			slices.Contains([]string{"/", driverDir}, path.Clean(v.driverRoot)) {
			f.Say(check.Warning, "driver-ready refers to a driver container, but .driver-ctr-ready is missing: "+
				"the container is restarting or was removed, or another driver is mounted at %s", v.driverRoot)
			f.Fix = "kubectl get pods -n gpu-operator -l app=nvidia-driver-daemonset -o wide"
		}
	case !absent(err):
		return err
	case o.workload == v.workload:
		f.Say(check.Error, "%s is missing: %s", o.file(), o.missing)
		f.Fix = o.logCommand()
	case v.flags[o.flag]:
		f.Say(check.Error, "%s is missing, but .driver-ctr-ready enables %s: %s", o.file(), o.flag, o.missing)
		f.Fix = o.logCommand()
	}
	return nil
}
