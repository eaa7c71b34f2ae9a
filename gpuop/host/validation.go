package host

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

const (
	// validationDir is the directory of the operator's validator.
	validationDir = "/run/nvidia/validations"
	// driverDir is the root of the operator's driver container, unless hostPaths.driverInstallDir is set.
	driverDir = "/run/nvidia/driver"
	// hostDriverFile replaces driver-ready up to v24.3 if the driver is installed on the host.
	hostDriverFile = "host-driver-ready"
)

// operand is a step of the validator. The validator deletes the operand's file before it checks the operand. So a
// missing file means that the operand is not ready, was never enabled, or is being checked.
type operand struct {
	// id is the ID of its row, which ends with the operand's name.
	id report.ID
	// workload is the value of nvidia.com/gpu.workload.config with which the operand is always validated. flag is the
	// key in .driver-ctr-ready that enables it. Both are empty if the operand is always enabled.
	workload, flag string
	// other is the file that the validator writes for a driver or vGPU manager on the host.
	other string
	// missing says what fails while the operand is not ready.
	missing string
}

// name returns the operand's name, such as "driver".
func (o operand) name() string { return strings.TrimPrefix(string(o.id), "validation-") }

func (o operand) file() string { return o.name() + "-ready" }

// operands lists the operands in order of dependence.
var operands = []operand{
	{id: "validation-mofed", missing: "the driver container waits for the network driver"},
	{id: "validation-driver", other: hostDriverFile, workload: "container", missing: "every other operand waits for it"},
	{id: "validation-nvidia-peermem", flag: "GPU_DIRECT_RDMA_ENABLED", missing: "no GPUDirect RDMA through nvidia-peermem"},
	{id: "validation-nvidia-fs", flag: "GDS_ENABLED", missing: "no GPUDirect Storage"},
	{id: "validation-gdrcopy", flag: "GDRCOPY_ENABLED", missing: "no GDRCopy"},
	{id: "validation-toolkit", workload: "container", missing: "the device plugin, GPU Feature Discovery, DCGM and the MIG manager wait for it"},
	{id: "validation-cuda", workload: "container", missing: "no CUDA program has run on the node"},
	{id: "validation-plugin", workload: "container",
		missing: "the node offers no nvidia.com resource, or no pod with one has run; as intended only where devicePlugin.enabled is false"},
	{id: "validation-vfio-pci", workload: "vm-passthrough", missing: "no GPU can be passed to a virtual machine"},
	{id: "validation-vgpu-manager", other: "host-vgpu-manager-ready", workload: "vm-vgpu", missing: "no vGPU can be created"},
	{id: "validation-host-vgpu-manager", missing: "no vGPU can be created"},
	{id: "validation-vgpu-devices", workload: "vm-vgpu", missing: "no vGPU can be given to a virtual machine"},
	{id: "validation-cc-manager", missing: "the mode of confidential computing is not set"},
}

// early reports whether an operand is validated before the container runtime is needed.
func (o operand) early() bool { return o.name() == "driver" || o.name() == "mofed" || o.flag != "" }

// pods returns the command that shows the log of the pod that writes an operand's file.
func (o operand) pods() string {
	app, container := "nvidia-operator-validator", o.name()
	if strings.HasPrefix(o.workload, "vm-") {
		app = "nvidia-sandbox-validator"
	}
	if o.flag != "" {
		container = "driver" // it also validates the optional parts of the driver container
	}
	return fmt.Sprintf("kubectl logs -n gpu-operator -l app=%s -c %s-validation", app, container)
}

// validations has the content of the validator's files.
type validations struct {
	// workload is the node's workload type; "container" if unknown.
	workload string
	// driverRoot is where the driver was found; empty if unknown. host means that it is installed on the host.
	driverRoot string
	host       bool
	// container means that the operator's driver container has reported ready; flags is its configuration.
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
	_ = yaml.Unmarshal([]byte(flags), &v.flags) // empty up to v24.3
	text, err := r.read(validationDir + "/driver-ready")
	switch m := driverRoot.FindStringSubmatch(text); {
	case m != nil:
		v.driverRoot, v.host = m[1], strings.Contains(text, "IS_HOST_DRIVER=true")
	case err == nil && v.container:
		v.driverRoot = driverDir // v22.9 to v24.3
	case r.has(path.Join(validationDir, hostDriverFile)):
		v.driverRoot, v.host = "/", true
	}
	return v
}

// validation checks that the validator has written its files.
func (n *inspection) validation() (report.State, string, string) {
	switch _, err := n.names(validationDir); {
	case err == nil:
		return report.OK, "", ""
	case absent(err) && n.has("/run"):
		return report.Failed, "the folder is not there: the operator's validator has not run on the node since it was booted",
			"kubectl get pods -n gpu-operator -o wide --field-selector spec.nodeName=" + n.name
	default:
		return unread(err)
	}
}

// validated checks each operand that is or should be ready: those of the driver (early), or those that need the
// container runtime.
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
		row := report.Row{ID: o.id, Node: n.name, Subject: o.file()}
		switch {
		case err == nil:
			row.Since, row.Reason = info.ModTime(), "the validator has passed "+o.name()
			if o.name() == "driver" && !v.host && !v.container && (v.driverRoot == "/" || path.Clean(v.driverRoot) == driverDir) {
				// another root is hostPaths.driverInstallDir, where some clouds install their driver
				row.State = report.Warning
				row.Reason = "it names a driver container, and .driver-ctr-ready is not there: the container is restarting or was removed, or another project's driver is mounted at " + v.driverRoot
				row.Fix = "kubectl get pods -n gpu-operator -l app=nvidia-driver-daemonset -o wide"
			}
		case !absent(err):
			row.State, row.Reason, row.Fix = unread(err)
		case o.workload == v.workload:
			row.State, row.Reason, row.Fix = report.Failed, o.file()+" is missing: "+o.missing, o.pods()
		case v.flags[o.flag]:
			row.State, row.Fix = report.Failed, o.pods()
			row.Reason = fmt.Sprintf("%s is missing, and .driver-ctr-ready says %s: true: %s", o.file(), o.flag, o.missing)
		default:
			continue // nothing says that the node needs it
		}
		n.rows = append(n.rows, row)
	}
}
