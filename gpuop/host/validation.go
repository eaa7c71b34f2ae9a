package host

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

const (
	// validationDir is the folder of the operator's validator.
	validationDir = "/run/nvidia/validations"
	// driverDir is the root of the operator's driver container, unless hostPaths.driverInstallDir names
	// another folder.
	driverDir = "/run/nvidia/driver"

	sourceValidator = "gpu-operator cmd/nvidia-validator/main.go"

	// The two files with content.
	containerFile = ".driver-ctr-ready"
	workloadFile  = "workload-type"
	// hostDriverFile stands in place of driver-ready up to v24.3, where the driver is the host's.
	hostDriverFile = "host-driver-ready"
)

// The types of workload of a node, by the label nvidia.com/gpu.workload.config.
const (
	forContainers  = "container"
	forPassthrough = "vm-passthrough"
	forVGPU        = "vm-vgpu"
)

// An operand is one step of the validator. It deletes the operand's file before it checks the operand, so that a
// missing file is an operand that is not ready, one that was never enabled, or one that is being checked.
type operand struct {
	// name is the operand: "driver". Its file is "driver-ready".
	name string
	// workload is the type of workload for which the operand is always validated; empty for one that the
	// installation enables.
	workload string
	// other is a file that the validator writes in place: where an older release has found a driver of the host's,
	// or the host's vGPU manager, which is an operand of its own; empty where there is none.
	other string
	// flag is the key of .driver-ctr-ready that says whether the operand is enabled; empty where there is none.
	flag string
	// missing is the consequence while the operand is not ready.
	missing string
}

func (o operand) file() string { return o.name + "-ready" }

// operands are all, in the order in which they depend on each other.
var operands = []operand{
	{name: "mofed", missing: "the driver container waits for the network driver"},
	{name: "driver", other: hostDriverFile, workload: forContainers, missing: "every other operand waits for it"},
	{name: "nvidia-peermem", flag: "GPU_DIRECT_RDMA_ENABLED", missing: "no GPUDirect RDMA through nvidia-peermem"},
	{name: "nvidia-fs", flag: "GDS_ENABLED", missing: "no GPUDirect Storage"},
	{name: "gdrcopy", flag: "GDRCOPY_ENABLED", missing: "no GDRCopy"},
	{name: "toolkit", workload: forContainers,
		missing: "the device plugin, GPU Feature Discovery, DCGM and the MIG manager wait for it"},
	{name: "cuda", workload: forContainers, missing: "no CUDA program has run on the node"},
	{name: "plugin", workload: forContainers,
		missing: "the node offers no nvidia.com resource, or no pod with one has run"},
	{name: "vfio-pci", workload: forPassthrough, missing: "no GPU can be passed to a virtual machine"},
	{name: "vgpu-manager", other: "host-vgpu-manager-ready", workload: forVGPU, missing: "no vGPU can be created"},
	{name: "host-vgpu-manager", missing: "no vGPU can be created"},
	{name: "vgpu-devices", workload: forVGPU, missing: "no vGPU can be given to a virtual machine"},
	{name: "cc-manager", missing: "the mode of confidential computing is not set"},
}

// OperandNames are the names of all operands that have a validation file.
func OperandNames() []string {
	var names []string
	for _, o := range operands {
		names = append(names, o.name)
	}
	return names
}

// validations are the content of the validator's files.
type validations struct {
	// workload is the node's type of workload, for containers where the files do not say.
	workload string
	// known says that driver-ready had the settings: the driver is the host's own, or has its root there.
	known, host bool
	driverRoot  string
	// container says that a driver container of the operator has reported ready.
	container bool
	// flags are the driver container's.
	flags map[string]bool
	// partial are sentences about files whose content is not as the validator writes it.
	partial []string
}

// readValidations reads the validator's files. The error wraps fs.ErrNotExist where there is no folder: the
// validator has not run since the node was booted.
func (n *node) readValidations() (*validations, error) {
	if _, err := n.names(validationDir); err != nil {
		return nil, err
	}
	v := &validations{workload: forContainers, flags: map[string]bool{}}
	if text, found := n.validation(v, workloadFile); found {
		switch w := strings.TrimSpace(text); w {
		case forContainers, forPassthrough, forVGPU:
			v.workload = w
		default:
			v.partial = append(v.partial, fmt.Sprintf("%s is %.40q, want %s, %s or %s", workloadFile, w, forContainers, forPassthrough, forVGPU))
		}
	}
	text, found := n.validation(v, containerFile)
	v.container = found
	if found && yaml.Unmarshal([]byte(text), &v.flags) != nil {
		v.flags = map[string]bool{}
		v.partial = append(v.partial, containerFile+" is not the list of flags that the driver's startup probe writes")
	}
	switch text, found := n.validation(v, "driver-ready"); {
	case found && text == "" && v.container:
		// v22.9 to v24.3; later releases write the settings in one step
		v.known, v.driverRoot = true, driverDir
	case found:
		for line := range strings.Lines(text) {
			switch name, value, _ := strings.Cut(strings.TrimSpace(line), "="); name {
			case "IS_HOST_DRIVER":
				v.host = value == "true"
			case "NVIDIA_DRIVER_ROOT":
				v.driverRoot = value
			}
		}
		if v.known = strings.HasPrefix(v.driverRoot, "/"); !v.known {
			v.partial = append(v.partial, "driver-ready has no NVIDIA_DRIVER_ROOT: it is of an older validator, or a part of the file, and where the driver's libraries are is not known")
		}
	case n.has(path.Join(validationDir, hostDriverFile)):
		v.known, v.host, v.driverRoot = true, true, "/"
	}
	return v, nil
}

// validation reads a file of the validator; what cannot be read is a sentence of v.
func (n *node) validation(v *validations, name string) (text string, found bool) {
	text, err := n.read(path.Join(validationDir, name))
	if err != nil && !absent(err) {
		v.partial = append(v.partial, err.Error())
	}
	return text, err == nil
}

// ready reports whether the validator has left an operand's file, and since when. Where it has not, why says whether
// the operand should be ready; it is empty where nothing says that it is enabled on the node. The error is that of a
// file that may be there and cannot be read.
func (n *node) ready(o operand) (ready bool, since time.Time, why string, err error) {
	info, err := n.info(path.Join(validationDir, o.file()))
	if o.other != "" && err != nil && absent(err) {
		switch other, otherErr := n.info(path.Join(validationDir, o.other)); {
		case otherErr != nil:
		case o.other == hostDriverFile:
			info, err = other, nil
		default:
			return false, time.Time{}, "", nil // an operand of its own
		}
	}
	switch {
	case err == nil && info.Mode().IsRegular():
		return true, info.ModTime(), "", nil
	case err == nil:
		return false, time.Time{}, "", fmt.Errorf("%s is no regular file", o.file())
	case !absent(err):
		return false, time.Time{}, "", err
	case o.workload == n.passed.workload:
		return false, time.Time{}, o.file() + " is missing: " + o.missing, nil
	case n.passed.flags[o.flag]:
		return false, time.Time{}, fmt.Sprintf("%s is missing, and %s says %s: true: %s", o.file(), containerFile, o.flag, o.missing), nil
	}
	return false, time.Time{}, "", nil
}

// pods is the log of the pod whose init container writes an operand's file.
func (o operand) pods() string {
	app, container := "nvidia-operator-validator", o.name+"-validation"
	if o.workload == forPassthrough || o.workload == forVGPU {
		app = "nvidia-sandbox-validator"
	}
	if o.flag != "" {
		container = "driver-validation" // which validates what the driver container is configured for, too
	}
	return fmt.Sprintf("kubectl logs -n gpu-operator -l app=%s -c %s", app, container)
}

// early reports whether an operand is validated before the container runtime matters.
func (o operand) early() bool { return o.name == "driver" || o.name == "mofed" || o.flag != "" }

// driverValidations has a row for each operand of the driver that the node should have, or one that
// says why there are none.
func (n *node) driverValidations() {
	if n.passed == nil {
		switch _, err := n.readValidations(); {
		case errors.Is(err, fs.ErrNotExist) && n.has("/run"):
			n.add("validation", report.Failed, validationDir, "the folder is not there: the operator's validator has not run on the node since it was booted",
				"kubectl get pods -n gpu-operator -o wide --field-selector spec.nodeName="+n.name, sourceValidator)
		case err != nil:
			n.unknown("validation", validationDir, err, sourceValidator)
		}
		return
	}
	for _, why := range n.passed.partial {
		n.add("validation-content", report.Unknown, validationDir, why, "", sourceValidator)
	}
	n.validated(true)
}

// validated has a row for each operand of the driver (early), or of those that need the container runtime.
func (n *node) validated(early bool) {
	if n.passed == nil {
		return
	}
	for _, o := range operands {
		if o.early() != early {
			continue
		}
		row := report.Row{ID: "validation-" + o.name, Node: n.name, Subject: o.file(), Source: sourceValidator}
		ready, since, why, err := n.ready(o)
		v := n.passed
		switch {
		case ready:
			row.Since, row.Reason = since, "the validator has passed "+o.name
			if o.name == "driver" && v.known && !v.host && !v.container && (v.driverRoot == "/" || path.Clean(v.driverRoot) == driverDir) {
				// another root is that of hostPaths.driverInstallDir, where a cloud installs its driver
				row.State = report.Warning
				row.Reason = "it names a driver container, and .driver-ctr-ready is not there: the container is restarting or was removed, or another project's driver is mounted at " + v.driverRoot
				row.Fix = "kubectl get pods -n gpu-operator -l app=nvidia-driver-daemonset -o wide"
			}
		case err != nil:
			row.State, row.Reason = report.Unknown, "not judged: "+err.Error()
		case why == "":
			continue // nothing says that the node should have it
		default:
			row.State, row.Reason, row.Fix = report.Failed, why, o.pods()
			if o.name == "plugin" {
				row.Reason += "; as intended only where devicePlugin.enabled is false"
			}
		}
		n.rows = append(n.rows, row)
	}
}
