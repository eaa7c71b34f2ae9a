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

// step is a check that adds at most one finding. It adds none if run returns no reason.
type step struct {
	check   *check.Check
	subject string
	run     func(*inspection) (state check.Severity, reason, next string)
}

// checks lists the first checks, in dependency order. inspect then runs the checks that can add several findings.
var checks = []step{
	{gpuOnPCI, "GPUs on PCI", (*inspection).gpus},
	{nouveauLoaded, "nouveau", (*inspection).nouveau},
	{driverModule, "NVIDIA kernel module", (*inspection).driver},
	{driverLibraries, "driver libraries", (*inspection).libraries},
	{deviceNodes, "device nodes", (*inspection).devices},
	{fabricManager, "fabric manager", (*inspection).fabric},
	{validationDone, validationDir, (*inspection).validation},
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
	for _, c := range checks {
		if state, reason, next := c.run(n); reason != "" {
			n.add(c.check, state, c.subject, reason, next)
		}
	}
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

	count    int          // GPUs on the PCI bus
	switches int          // NVSwitches on the PCI bus
	vfio     bool         // every GPU is bound to a driver for virtual machines
	version  string       // version of the loaded kernel module; empty if none is loaded
	passed   *validations // the validator's files; nil if they could not be read
}

func (n *inspection) add(id *check.Check, s check.Severity, subject, reason, next string) {
	n.findings = append(n.findings,
		check.Finding{Check: id, Severity: s, Node: n.name, Subject: subject, Reason: reason, Fix: next})
}

// unread returns the result of a check that could not read a file. For a missing permission, next says how to get it.
func unread(err error) (state check.Severity, reason, next string) {
	if errors.Is(err, fs.ErrPermission) {
		next = "run gpuop node as root, or in a privileged pod with the node's root mounted read-only"
	}
	return check.Unknown, "not checked: " + err.Error(), next
}

// addFirstBroken inserts a finding that names the first broken component, because later failures may follow from it. If
// nothing is broken, the finding says so, and names the first component that was not checked.
func (n *inspection) addFirstBroken() {
	at := slices.IndexFunc(n.findings, func(v check.Finding) bool { return v.Severity == check.Error })
	f := check.Finding{Check: firstBroken, Severity: check.Note, Node: n.name, Subject: "chain"}
	switch unread := slices.IndexFunc(n.findings, func(v check.Finding) bool { return v.Severity == check.Unknown }); {
	case at >= 0:
		f.Subject, f.Reason = n.findings[at].Subject,
			"the first broken component is "+n.findings[at].Subject+": fix it first; later failures may be consequences"
		if unread >= 0 && unread < at {
			f.Reason += "; " + n.findings[unread].Subject + " before it was not checked"
		}
	case unread >= 0:
		f.Reason = "no broken component found, but " + n.findings[unread].Subject + " was not checked"
	default:
		f.Severity, f.Reason = check.OK, "all checked components work"
	}
	n.findings = slices.Insert(n.findings, 0, f)
}
