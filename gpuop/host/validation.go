package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/operand"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/verdict"
)

// readValidations reads the validator's files, which later steps need.
func (n *node) readValidations() (*reading, error) {
	dir, err := n.at(operand.Dir)
	if err != nil {
		return nil, err
	}
	r, err := operand.Read(os.DirFS(dir))
	if err != nil {
		return nil, renamed(err, operand.Dir)
	}
	return &reading{r}, nil
}

// pods are the pods whose init container or driver writes an operand's file.
func (n *node) pods(o operand.Operand) string {
	app, container := "nvidia-operator-validator", o.Name+"-validation"
	if o.Workload == operand.VMPassthrough || o.Workload == operand.VMVGPU {
		app = "nvidia-sandbox-validator"
	}
	if o.Flag != "" {
		container = "driver-validation" // which validates what the driver container is configured for, too
	}
	return fmt.Sprintf("kubectl logs -n gpu-operator -l app=%s -c %s", app, container)
}

// ofDriver are the operands that are validated before the container runtime matters.
func ofDriver(o operand.Operand) bool { return o.Name == "driver" || o.Name == "mofed" || o.Flag != "" }

// driverValidations has a row for each operand of the driver that the node should have, or one that
// says why there are none.
func (n *node) driverValidations() {
	if n.passed == nil {
		switch _, err := n.readValidations(); {
		case errors.Is(err, fs.ErrNotExist) && n.has("/run"):
			n.add("validation", verdict.Failed, operand.Dir, "the folder is not there: the operator's validator has not run on the node since it was booted",
				"kubectl get pods -n gpu-operator -o wide --field-selector spec.nodeName="+n.name, operand.Source)
		case err != nil:
			n.unknown("validation", operand.Dir, err, operand.Source)
		}
		return
	}
	for _, why := range n.passed.Partial {
		n.add("validation-content", verdict.Unknown, operand.Dir, why, "", operand.Source)
	}
	n.validations(ofDriver)
}

// lateValidations has a row for each operand that needs the container runtime, after what is known
// of that.
func (n *node) lateValidations() {
	n.validations(func(o operand.Operand) bool { return !ofDriver(o) })
}

func (n *node) validations(of func(operand.Operand) bool) {
	if n.passed == nil {
		return
	}
	for _, s := range n.passed.Operands {
		if !of(s.Operand) {
			continue
		}
		row := verdict.Verdict{ID: "validation-" + s.Name, Node: n.name, Subject: s.File, Source: operand.Source}
		switch {
		case s.State == operand.Ready:
			row.Since, row.Reason = s.Since, "the validator has passed "+s.Name
			if s.Name == "driver" && n.passed.Driver.Known && !n.passed.Driver.Host && !n.passed.DriverContainer && (n.passed.Driver.Root == "/" || path.Clean(n.passed.Driver.Root) == operand.DriverDir) {
				// another root is that of hostPaths.driverInstallDir, where a cloud installs its driver
				row.State = verdict.Warning
				row.Reason = "it names a driver container, and .driver-ctr-ready is not there: the container is restarting or was removed, or another project's driver is mounted at " + n.passed.Driver.Root
				row.Next = "kubectl get pods -n gpu-operator -l app=nvidia-driver-daemonset -o wide"
			}
		case s.State == operand.NotReady:
			row.State, row.Reason, row.Next = verdict.Failed, s.Why, n.pods(s.Operand)
			if s.Name == "plugin" {
				row.Reason += "; as intended only where devicePlugin.enabled is false"
			}
		case s.Err == nil:
			continue // nothing says that the node should have it
		default:
			row.State, row.Reason = verdict.Unknown, "not judged: "+s.Why
		}
		n.rows = append(n.rows, row)
	}
}
