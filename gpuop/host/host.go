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

// ErrRoot is returned by Inspect if the folder has no files of a node.
var ErrRoot = errors.New("no root of a node")

// Inspect checks the node whose root is mounted at, or was copied to, a folder. Ages are relative to at. The node's
// name is from /etc/hostname. Errors wrap ErrRoot.
func Inspect(folder string, at time.Time) (check.Report, error) {
	return inspect(root{path: folder, stat: os.Stat}, at)
}

// step is one check of the chain. It adds no finding if the reason is empty.
type step struct {
	check   *check.Check
	subject string
	judge   func(*inspection) (state check.Severity, reason, next string)
}

// checks lists the checks with one row each, in dependency order. The checks of operands, runtimes and specifications
// follow.
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
		return check.Report{}, fmt.Errorf("%w: %s has none of the folders %v: specify the folder with the node's root file system", ErrRoot, r.path, known)
	}
	hostname, _ := r.read("/etc/hostname") // without it, the title is the root
	n := &inspection{root: r, name: cmp.Or(oneLine(hostname), r.path), passed: r.validations()}
	for _, c := range checks {
		if state, reason, next := c.judge(n); reason != "" {
			n.add(c.check, state, c.subject, reason, next)
		}
	}
	n.validated(true)
	n.runtimes()
	n.cdi()
	n.validated(false)
	n.chain()
	return check.Report{Judged: true, Title: r.path, At: at, Rows: n.rows}, nil
}

// inspection holds the findings. Later checks use the results of earlier ones.
type inspection struct {
	root
	name string
	rows []check.Finding

	count    int          // GPUs on the PCI bus
	switches int          // NVSwitches on the PCI bus
	vfio     bool         // every GPU is bound to a driver for virtual machines
	version  string       // version of the loaded kernel module; empty if none is loaded
	passed   *validations // the validator's files; nil if they could not be read
}

// add adds a row.
func (n *inspection) add(id *check.Check, s check.Severity, subject, reason, next string) {
	n.rows = append(n.rows, check.Finding{Check: id, Severity: s, Node: n.name, Subject: subject, Reason: reason, Fix: next})
}

// unread returns the result of a check whose file could not be read.
func unread(err error) (state check.Severity, reason, next string) {
	if errors.Is(err, fs.ErrPermission) {
		next = "run gpuop node as root, or in a privileged pod with the node's root mounted read-only"
	}
	return check.Unknown, "not checked: " + err.Error(), next
}

// chain inserts a row that names the first broken link. Later failures may follow from it.
func (n *inspection) chain() {
	at := slices.IndexFunc(n.rows, func(v check.Finding) bool { return v.Severity == check.Error })
	row := check.Finding{Check: firstBroken, Severity: check.Note, Node: n.name, Subject: "chain"}
	switch unread := slices.IndexFunc(n.rows, func(v check.Finding) bool { return v.Severity == check.Unknown }); {
	case at >= 0:
		row.Subject, row.Reason = n.rows[at].Subject, "the first broken component is "+n.rows[at].Subject+": fix it first; later failures may be consequences"
		if unread >= 0 && unread < at {
			row.Reason += "; " + n.rows[unread].Subject + " before it was not checked"
		}
	case unread >= 0:
		row.Reason = "no broken component found, but " + n.rows[unread].Subject + " was not checked"
	default:
		row.Severity, row.Reason = check.OK, "all checked components work"
	}
	n.rows = slices.Insert(n.rows, 0, row)
}
