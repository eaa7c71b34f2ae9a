package process

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Resolver finds the pods of processes by their host PIDs. Its methods are safe for concurrent use.
type Resolver struct {
	proc fs.FS

	mu    sync.Mutex
	host  bool // the PIDs here are the host's
	known map[uint32]process
}

// process is what is remembered about a process.
type process struct {
	start     string   // in ticks since boot; identifies a process if its PID is reused
	inode     uint64   // inode of its folder in proc; 0 if the file system has none
	uids      []string // UIDs of its pods
	requested time.Time
	ended     time.Time // when it was first found missing; zero while it runs
	// again is when its PID was first seen to be reused; zero if it was not.
	again time.Time
}

const (
	// maxProcesses is the maximum number of processes that are remembered, more than run on the GPUs of any node.
	maxProcesses = 4096
	// lastRead is how long the pods of a process are remembered after it is first found missing. The driver still
	// reports its work at the next read, on every GPU that it used. It must be short because PIDs are reused.
	lastRead = time.Second
	// forgotten is how long a process is remembered without requests.
	forgotten = 5 * time.Minute
)

// NewResolver returns a Resolver that reads a proc file system, such as os.DirFS("/proc").
func NewResolver(proc fs.FS) *Resolver {
	return &Resolver{proc: proc, known: map[uint32]process{}}
}

// PodOf returns the UIDs of the process's pods, outermost first (see Pods), or nil if it is in no pod. A process that
// has ended keeps known pods for one more read. The error wraps gpu.ErrPIDNamespace if the PIDs here are not the
// host's, or gpu.ErrPermission if /proc is not readable. It wraps gpu.ErrUnavailable for one read after a PID is reused
// by another pod, because the driver reports both processes as one.
func (r *Resolver) PodOf(pid uint32) ([]string, error) { return r.lookup(pid, true) }

// CachedPodOf is like PodOf, for requests outside the reads of the driver. It does not start the time for which an
// ended process keeps its pods.
func (r *Resolver) CachedPodOf(pid uint32) ([]string, error) { return r.lookup(pid, false) }

// lookup returns the pods of a process. isRead is set during a read of the driver.
func (r *Resolver) lookup(pid uint32, isRead bool) ([]string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.check(); err != nil {
		return nil, err
	}
	now := time.Now()
	dir := strconv.FormatUint(uint64(pid), 10)
	p, known := r.known[pid]
	inode := r.inode(dir)
	if !known || inode == 0 || inode != p.inode {
		stat, err := r.read(dir + "/stat")
		if err != nil {
			return nil, err
		}
		if stat == nil {
			return r.ended(pid, now, isRead).uids, nil
		}
		if _, _, start := statOf(stat); !known || p.start != start {
			text, err := r.read(dir + "/cgroup")
			if err != nil {
				return nil, err
			}
			if len(r.known) >= maxProcesses {
				r.forget(now)
			}
			next := process{start: start, uids: Pods(string(text))} // none if it has ended since its stat was read
			reported := now.Sub(p.requested) <= forgotten && (p.ended.IsZero() || now.Sub(p.ended) < lastRead)
			if known && reported && !slices.Equal(next.uids, p.uids) {
				next.again = now
			}
			p = next
		}
	}
	p.inode, p.requested, p.ended = inode, now, time.Time{}
	r.known[pid] = p
	if !p.again.IsZero() && now.Sub(p.again) < lastRead {
		return nil, fmt.Errorf("cgroup: process %d belonged to another pod a moment ago: %w", pid, gpu.ErrUnavailable)
	}
	return p.uids, nil
}

// inode returns the inode of a process's folder, or 0 if there is none. The kernel gives every process a new one
// (fs/proc/base.c), even if the PID is reused, and may change it. An equal inode therefore means the same process,
// which saves reading its files.
func (r *Resolver) inode(dir string) uint64 {
	info, err := fs.Stat(r.proc, dir)
	if err != nil {
		return 0
	}
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return s.Ino
	}
	return 0
}

// ended returns what is remembered about a process that can no longer be read, and records its end during a read of
// the driver. It returns the zero process if the PID may have been reused: it was found missing at least lastRead ago
// or, outside a read, it was not requested lately.
func (r *Resolver) ended(pid uint32, now time.Time, isRead bool) process {
	p, known := r.known[pid]
	if known && isRead && p.ended.IsZero() {
		p.ended, p.inode = now, 0
		r.known[pid] = p
	}
	if !p.ended.IsZero() && now.Sub(p.ended) >= lastRead || !isRead && now.Sub(p.requested) > forgotten {
		if isRead {
			delete(r.known, pid)
		}
		return process{}
	}
	return p
}

// forget drops processes to make room.
func (r *Resolver) forget(now time.Time) {
	maps.DeleteFunc(r.known, func(_ uint32, p process) bool {
		return !p.ended.IsZero() || now.Sub(p.requested) > forgotten
	})
	if len(r.known) >= maxProcesses {
		clear(r.known)
	}
}

// check checks for the host's PID namespace, in which process 2 is the kernel thread kthreadd (kernel/kthread.c,
// init/main.c).
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

// read returns the content of a file, or nil if it does not exist.
func (r *Resolver) read(name string) ([]byte, error) {
	b, err := fs.ReadFile(r.proc, name)
	switch {
	case err == nil:
		return b, nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ESRCH): // the process has ended
		return nil, nil
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("cgroup: %w: %w", gpu.ErrPermission, err)
	default:
		return nil, fmt.Errorf("cgroup: %w: %w", gpu.ErrUnavailable, err)
	}
}

// statOf returns the name, flags and start time in /proc/<pid>/stat, its fields 2, 9 and 22 (proc_pid_stat(5)). A name
// can contain spaces and parentheses.
func statOf(stat []byte) (name string, flags uint64, start string) {
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 0 || end < open {
		return "", 0, ""
	}
	name = string(stat[open+1 : end])
	fields := bytes.Fields(stat[end+1:]) // from the third field
	if len(fields) > 22-3 {
		flags, _ = strconv.ParseUint(string(fields[9-3]), 10, 64)
		start = string(fields[22-3])
	}
	return name, flags, start
}
