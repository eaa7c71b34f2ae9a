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

// Options name the root and the time.
type Options struct {
	// Root is the folder in which the node's root is mounted, or to which its files were copied; empty
	// means "/".
	Root string
	// At is the time to which ages refer.
	At time.Time
}

// Inspect judges the node. The tree names the node by its /etc/hostname. The error wraps ErrRoot.
func Inspect(opt Options) (report.Report, error) {
	return inspect(root{path: cmp.Or(opt.Root, "/"), stat: os.Stat}, opt)
}

func inspect(r root, opt Options) (report.Report, error) {
	if info, err := os.Stat(r.path); err != nil {
		return report.Report{}, fmt.Errorf("%w: %w", ErrRoot, err)
	} else if !info.IsDir() {
		return report.Report{}, fmt.Errorf("%w: %s is no folder", ErrRoot, r.path)
	}
	known := []string{"/proc", "/sys", "/dev", "/run", "/etc"}
	if !slices.ContainsFunc(known, r.has) {
		return report.Report{}, fmt.Errorf("%w: %s has none of the folders %v: give the folder in which / of the node is mounted", ErrRoot, r.path, known)
	}
	hostname, _ := r.read("/etc/hostname") // a node without is named by its root
	n := &node{root: r, opt: opt, name: cmp.Or(oneLine(hostname), r.path)}
	n.passed, _ = n.readValidations() // which its own row reports
	for _, judge := range []func(){
		n.gpus, n.nouveau, n.driver, n.libraries, n.devices, n.fabric,
		n.driverValidations, n.runtimes, n.cdi, func() { n.validated(false) },
	} {
		judge()
	}
	n.chain()
	return report.Report{Judged: true, Title: r.path, At: opt.At, Rows: n.rows}, nil
}

// A node collects findings while it is judged: each step reads those of the steps before it.
type node struct {
	root
	opt  Options
	name string
	rows []report.Row

	count    int          // GPUs on PCI
	switches int          // NVSwitches on PCI
	vfio     bool         // every GPU is bound to a driver for virtual machines
	version  string       // of the kernel module, empty where none is loaded
	passed   *validations // the validation files, nil where they could not be read
}

// add appends a row.
func (n *node) add(id report.ID, s report.State, subject, reason, next, source string) {
	n.rows = append(n.rows, report.Row{ID: id, State: s, Node: n.name, Subject: subject, Reason: reason, Fix: next, Source: source})
}

// unknown appends a row for what could not be read.
func (n *node) unknown(id report.ID, subject string, err error, source string) {
	next := ""
	if errors.Is(err, fs.ErrPermission) {
		next = "run gpuop node as root, or in a privileged pod with the node's root mounted read-only"
	}
	n.add(id, report.Unknown, subject, "not judged: "+err.Error(), next, source)
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
