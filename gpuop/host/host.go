package host

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
)

// ErrRoot is returned by Inspect if the folder cannot be read or does not look like a node's root file system.
var ErrRoot = errors.New("no root of a node")

// Inspect checks the node whose root file system is mounted at folder, or was copied there. at is the time of the
// report. The node's name is read from /etc/hostname; without the file, it is folder. Errors wrap ErrRoot.
func Inspect(folder string, at time.Time) (check.Report, error) {
	return inspect(root{path: folder, stat: os.Stat}, at)
}

func inspect(r root, at time.Time) (check.Report, error) {
	if info, err := os.Stat(r.path); err != nil {
		return check.Report{}, fmt.Errorf("%w: %w", ErrRoot, err)
	} else if !info.IsDir() {
		return check.Report{}, fmt.Errorf("%w: %s is not a folder", ErrRoot, r.path)
	}
	known := []string{"/proc", "/sys", "/dev", "/run", "/etc"}
	if !r.hasAny(known...) {
		return check.Report{},
			fmt.Errorf("%w: %s has none of the folders %v: specify the folder with the node's root file system",
				ErrRoot, r.path, known)
	}
	hostname, _ := r.read("/etc/hostname") // without the file, the root's path names the node
	n := &inspection{root: r, name: cmp.Or(oneLine(hostname), r.path), passed: r.validations()}
	n.run(gpuOnPCI, "GPUs on PCI", n.gpus)
	n.run(nouveauLoaded, "nouveau", n.nouveau)
	n.run(driverModule, "NVIDIA kernel module", n.driver)
	n.run(driverLibraries, "driver libraries", n.libraries)
	n.run(deviceNodes, "device nodes", n.devices)
	n.run(fabricManager, "fabric manager", n.fabric)
	n.run(validationDone, validationDir, n.validation)
	n.validated(true)
	n.runtimes()
	n.cdi()
	n.validated(false)
	n.addFirstBroken()
	return check.Report{Judged: true, Title: r.path, At: at, Findings: n.findings}, nil
}

// inspection collects the findings of a node, and the results that later checks need.
type inspection struct {
	root
	name     string
	findings []check.Finding

	count    int         // GPUs on the PCI bus
	switches int         // NVSwitches on the PCI bus
	vfio     bool        // every GPU is bound to a driver for virtual machines
	version  string      // version of the loaded kernel module; empty if none is loaded
	passed   validations // the validator's files
}

// run adds the finding of a check, unless the check sets no reason. An error of the check means that it was not
// possible. A warning or an error without a fix gets that of the check.
func (n *inspection) run(id *check.Check, subject string, judge func(*check.Finding) error) {
	f := check.Finding{Check: id, Node: n.name, Subject: subject}
	if err := judge(&f); err != nil {
		f.Say(check.Unknown, "not checked: %v", err)
		if errors.Is(err, fs.ErrPermission) {
			f.Fix = "run gpuop node as root, or in a privileged pod with the node's root mounted read-only"
		}
	}
	if f.Severity >= check.Warning {
		f.Fix = cmp.Or(f.Fix, fixes[id], id.Help)
	}
	if f.Reason != "" {
		n.findings = append(n.findings, f)
	}
}

// addFirstBroken inserts a finding that names the first broken component, because later failures may follow from it. If
// nothing is broken, the finding says so, and names the first component that was not checked.
func (n *inspection) addFirstBroken() {
	first := func(s check.Severity) (int, string) {
		i := slices.IndexFunc(n.findings, func(f check.Finding) bool { return f.Severity == s })
		if i < 0 {
			return len(n.findings), ""
		}
		return i, n.findings[i].Subject
	}
	f := check.Finding{Check: firstBroken, Node: n.name, Subject: "chain", Reason: "all checked components work"}
	at, broken := first(check.Error)
	skippedAt, skipped := first(check.Unknown)
	switch {
	case broken != "":
		f.Subject = broken
		f.Say(check.Note, "the first broken component is %s: fix it first; later failures may be consequences", broken)
		if skippedAt < at {
			f.Reason += "; " + skipped + " before it was not checked"
		}
	case skipped != "":
		f.Say(check.Note, "no broken component found, but %s was not checked", skipped)
	}
	n.findings = slices.Insert(n.findings, 0, f)
}
