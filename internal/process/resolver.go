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

// A Resolver finds the pods of processes by their ids in the host's namespace. Its methods may be
// called from any goroutine.
type Resolver struct {
	proc fs.FS

	mu    sync.Mutex
	host  bool // the ids here are the host's
	known map[uint32]process
}

// A process is the remembered part of one.
type process struct {
	start     string   // in ticks since boot: ids come again, this does not
	inode     uint64   // of its folder in proc, 0 where the file system has none
	uids      []string // of its pods
	requested time.Time
	ended     time.Time // when it was first missed; zero while it runs
	// again is when its id was first seen to be another process's than before; zero for a new id.
	again time.Time
}

const (
	// maxProcesses is how many processes a Resolver remembers: more than run on the GPUs of any node.
	maxProcesses = 4096
	// lastRead is how long the pod of a process that has ended is known, from the first question that
	// misses it on: a driver reports what a process did since the last read, and requests it on every
	// GPU that it was on. It is not longer, since ids come again.
	lastRead = time.Second
	// forgotten is how long a process is remembered that is not requested.
	forgotten = 5 * time.Minute
)

// NewResolver returns a Resolver over a proc file system, as os.DirFS("/proc").
func NewResolver(proc fs.FS) *Resolver {
	return &Resolver{proc: proc, known: map[uint32]process{}}
}

// PodOf returns the UIDs of the process's pods, the outermost first (see Pods); nil for a process
// that is in no pod. One that has ended and whose pods were known before keeps them for one more
// read. The error wraps gpu.ErrPIDNamespace if the ids here are not the host's: then the id is that
// of another process, or of none; gpu.ErrPermission if /proc may not be read; and
// gpu.ErrUnavailable for one read of an id that was another pod's process before, since the driver
// reports what either did.
func (r *Resolver) PodOf(pid uint32) ([]string, error) { return r.lookup(pid, r.end) }

// Recall is PodOf for requests about a process beside the reads of the driver, perhaps since it has
// just ended: the question does not begin the time of that one more read.
func (r *Resolver) Recall(pid uint32) ([]string, error) { return r.lookup(pid, r.ended) }

// lookup returns the pods of a process; ended, of one that is no more.
func (r *Resolver) lookup(pid uint32, ended func(uint32, time.Time) process) ([]string, error) {
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
			return ended(pid, now).uids, nil
		}
		if _, _, start := statOf(stat); !known || p.start != start {
			text, err := r.read(dir + "/cgroup")
			if err != nil {
				return nil, err
			}
			if text == nil {
				return ended(pid, now).uids, nil
			}
			if len(r.known) >= maxProcesses {
				r.forget(now)
			}
			next := process{start: start, uids: Pods(string(text))}
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
		return nil, fmt.Errorf("cgroup: process %d was another pod's just now: %w", pid, gpu.ErrUnavailable)
	}
	return p.uids, nil
}

// inode returns the number of a process's folder, 0 where there is none. The kernel gives every
// process a new one (fs/proc/base.c), also one whose id has been another's, and may give one
// process several: an equal number says that it is the same process, which saves reading its files.
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

// end returns a process that cannot be looked at any more.
func (r *Resolver) end(pid uint32, now time.Time) process {
	p, known := r.known[pid]
	if !known {
		return process{}
	}
	if p.ended.IsZero() {
		p.ended, p.inode = now, 0
		r.known[pid] = p
	}
	if now.Sub(p.ended) >= lastRead {
		delete(r.known, pid)
		return process{}
	}
	return p
}

// ended returns a process that cannot be looked at any more, and was not missed
// before or only just now. A process that was not requested lately may have ended long ago, and another may have its id.
func (r *Resolver) ended(pid uint32, now time.Time) process {
	p := r.known[pid]
	if now.Sub(p.requested) > forgotten || !p.ended.IsZero() && now.Sub(p.ended) >= lastRead {
		return process{}
	}
	return p
}

// forget makes room.
func (r *Resolver) forget(now time.Time) {
	maps.DeleteFunc(r.known, func(_ uint32, p process) bool { return !p.ended.IsZero() || now.Sub(p.requested) > forgotten })
	if len(r.known) >= maxProcesses {
		clear(r.known)
	}
}

// check finds out whether this is the host's PID namespace: there process 2 is kthreadd, a thread
// of the kernel (kernel/kthread.c, init/main.c).
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

// statOf returns the name, the flags and the start time in /proc/<pid>/stat: fields 2, 9 and 22
// (proc_pid_stat(5)). A name can hold blanks and brackets.
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
