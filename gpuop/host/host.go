package host

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// ErrRoot is wrapped by Inspect where the root is no folder with a node's files.
var ErrRoot = errors.New("no root of a node")

// Inspect judges the node whose root is mounted in, or was copied to, a folder; ages refer to the time at. The report
// names the node by its /etc/hostname. The error wraps ErrRoot.
func Inspect(folder string, at time.Time) (report.Report, error) {
	return inspect(root{path: folder, stat: os.Stat}, at)
}

// A check judges one link of the chain. It makes no row without a reason.
type check struct {
	id      report.ID
	subject string
	judge   func(*node) (state report.State, reason, next string)
}

// checks are those of one row each, in the order in which the links depend on each other. What comes after them has a
// row for each operand, runtime and specification.
var checks = []check{
	{"gpu-on-pci", "GPUs on PCI", (*node).gpus},
	{"nouveau", "nouveau", (*node).nouveau},
	{"driver-module", "NVIDIA kernel module", (*node).driver},
	{"driver-libraries", "driver libraries", (*node).libraries},
	{"device-nodes", "device nodes", (*node).devices},
	{"fabric-manager", "fabric manager", (*node).fabric},
	{"validation", validationDir, (*node).validation},
}

func inspect(r root, at time.Time) (report.Report, error) {
	if info, err := os.Stat(r.path); err != nil {
		return report.Report{}, fmt.Errorf("%w: %w", ErrRoot, err)
	} else if !info.IsDir() {
		return report.Report{}, fmt.Errorf("%w: %s is no folder", ErrRoot, r.path)
	}
	known := []string{"/proc", "/sys", "/dev", "/run", "/etc"}
	if !r.hasAny(known...) {
		return report.Report{}, fmt.Errorf("%w: %s has none of the folders %v: give the folder in which / of the node is mounted", ErrRoot, r.path, known)
	}
	hostname, _ := r.read("/etc/hostname") // a node without is named by its root
	n := &node{root: r, name: cmp.Or(oneLine(hostname), r.path), passed: r.validations()}
	for _, c := range checks {
		if state, reason, next := c.judge(n); reason != "" {
			n.add(c.id, state, c.subject, reason, next)
		}
	}
	n.validated(true)
	n.runtimes()
	n.cdi()
	n.validated(false)
	n.chain()
	return report.Report{Judged: true, Title: r.path, At: at, Rows: n.rows}, nil
}

// A node collects findings while it is judged: each step reads those of the steps before it.
type node struct {
	root
	name string
	rows []report.Row

	count    int          // GPUs on PCI
	switches int          // NVSwitches on PCI
	vfio     bool         // every GPU is bound to a driver for virtual machines
	version  string       // of the kernel module, empty where none is loaded
	passed   *validations // the validation files, nil where they could not be read
}

// add appends a row.
func (n *node) add(id report.ID, s report.State, subject, reason, next string) {
	n.rows = append(n.rows, report.Row{ID: id, State: s, Node: n.name, Subject: subject, Reason: reason, Fix: next})
}

// unread is the verdict on what could not be read.
func unread(err error) (state report.State, reason, next string) {
	if errors.Is(err, fs.ErrPermission) {
		next = "run gpuop node as root, or in a privileged pod with the node's root mounted read-only"
	}
	return report.Unknown, "not judged: " + err.Error(), next
}

// chain puts a row first that names the first broken link: what comes after it may be its consequence.
func (n *node) chain() {
	at := slices.IndexFunc(n.rows, func(v report.Row) bool { return v.State == report.Failed })
	row := report.Row{ID: "first-broken-link", State: report.Note, Node: n.name, Subject: "chain"}
	switch unread := slices.IndexFunc(n.rows, func(v report.Row) bool { return v.State == report.Unknown }); {
	case at >= 0:
		row.Subject, row.Reason = n.rows[at].Subject, "the first broken link is "+n.rows[at].Subject+": mend it first, since what comes after it may be its consequence"
		if unread >= 0 && unread < at {
			row.Reason += "; " + n.rows[unread].Subject + " before it was not judged"
		}
	case unread >= 0:
		row.Reason = "no broken link was found, and " + n.rows[unread].Subject + " was not judged"
	default:
		row.State, row.Reason = report.OK, "every link that was looked at holds"
	}
	n.rows = slices.Insert(n.rows, 0, row)
}
