package process

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"syscall"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A Resolver tells the pod of processes by their ids in the host's namespace.
// It is not safe for concurrent use.
type Resolver struct {
	proc  fs.FS
	most  int
	host  bool // the ids here are the host's
	known map[uint32]process
}

// A process is what is remembered of one.
type process struct {
	start string // in ticks since boot: ids come again, this does not
	uid   string
}

// maxProcesses is how many processes a Resolver remembers: more than run on
// the GPUs of any node.
const maxProcesses = 4096

// NewResolver returns a Resolver over a proc file system, as os.DirFS("/proc").
func NewResolver(proc fs.FS) *Resolver {
	return &Resolver{proc: proc, most: maxProcesses, known: map[uint32]process{}}
}

// PodOf returns the UID of the process's pod, "" for a process that is in no
// pod or has ended. The error wraps gpu.ErrPIDNamespace if the ids here are not
// the host's: then the id is that of another process, or of none; and
// gpu.ErrPermission if /proc may not be read.
func (r *Resolver) PodOf(pid uint32) (string, error) {
	if err := r.check(); err != nil {
		return "", err
	}
	dir := strconv.FormatUint(uint64(pid), 10)
	stat, err := r.read(dir + "/stat")
	if err != nil || stat == nil {
		delete(r.known, pid)
		return "", err
	}
	_, _, start := statOf(stat)
	if p, ok := r.known[pid]; ok && p.start == start {
		return p.uid, nil
	}
	text, err := r.read(dir + "/cgroup")
	if err != nil || text == nil {
		delete(r.known, pid)
		return "", err
	}
	if len(r.known) >= r.most {
		clear(r.known)
	}
	p := process{start: start, uid: Parse(string(text)).PodUID}
	r.known[pid] = p
	return p.uid, nil
}

// check finds out whether this is the host's PID namespace: there process 2 is
// kthreadd, a thread of the kernel (kernel/kthread.c, init/main.c).
func (r *Resolver) check() error {
	if r.host {
		return nil
	}
	stat, err := r.read("2/stat")
	if err != nil {
		return err
	}
	name, flags, _ := statOf(stat)
	const kernelThread = 0x00200000 // PF_KTHREAD, include/linux/sched.h
	if r.host = name == "kthreadd" && flags&kernelThread != 0; !r.host {
		return fmt.Errorf("cgroup: /proc shows another PID namespace (set hostPID: true): %w", gpu.ErrPIDNamespace)
	}
	return nil
}

// Known returns how many processes are remembered.
func (r *Resolver) Known() int { return len(r.known) }

// read returns the content of a file, nil where there is none.
func (r *Resolver) read(name string) ([]byte, error) {
	b, err := fs.ReadFile(r.proc, name)
	switch {
	case err == nil:
		return b, nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ESRCH): // it ended, perhaps just now
		return nil, nil
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("cgroup: %w: %w", gpu.ErrPermission, err)
	default:
		return nil, fmt.Errorf("cgroup: %w: %w", gpu.ErrUnavailable, err)
	}
}

// statOf returns the name, the flags and the start time in /proc/<pid>/stat:
// fields 2, 9 and 22 (proc_pid_stat(5)). A name can hold blanks and brackets.
func statOf(stat []byte) (name string, flags uint64, start string) {
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 0 || end < open {
		return "", 0, ""
	}
	name = string(stat[open+1 : end])
	fields := bytes.Fields(stat[end+1:]) // from the third on
	if len(fields) > 22-3 {
		flags, _ = strconv.ParseUint(string(fields[9-3]), 10, 64)
		start = string(fields[22-3])
	}
	return name, flags, start
}
