package kernellog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A Device is an open log, positioned at its first record. Read blocks until there is a record, and returns one. If
// records were overwritten before they were read, its error wraps syscall.EPIPE, and the next Read continues after
// them.
type Device interface {
	io.ReadCloser
	// TryRead is like Read, but does not block: if there is no record, it returns 0 and no error.
	TryRead(b []byte) (int, error)
	// Uptime returns the time since the machine booted.
	Uptime() time.Duration
}

// kmsg is the device number of /dev/kmsg (Linux, Documentation/admin-guide/devices.txt). Neighboring devices such as
// /dev/zero and /dev/urandom can be read forever but have no records.
var kmsg = unix.Mkdev(1, 11)

// open opens the kernel log at path. It fails if the file is not the kernel log device.
func open(path string) (Device, error) {
	var stat unix.Stat_t
	err := unix.Stat(path, &stat)
	if err == nil && (stat.Mode&unix.S_IFMT != unix.S_IFCHR || stat.Rdev != kmsg) {
		err = errors.New("not the kernel log, which is /dev/kmsg, character device 1:11")
	}
	if err == nil {
		var f *os.File
		if f, err = os.Open(path); err == nil {
			return file{f}, nil
		}
	}
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("%w: %w (requires root, and CAP_SYSLOG if kernel.dmesg_restrict is 1)",
			gpu.ErrPermission, err)
	}
	return nil, fmt.Errorf("%w: %w", gpu.ErrUnavailable, err)
}

// A file is the open kernel log of this machine.
type file struct{ *os.File }

// TryRead implements Device. Go opens the file in nonblocking mode.
func (f file) TryRead(b []byte) (n int, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	if failed := raw.Read(func(fd uintptr) bool {
		n, err = syscall.Read(int(fd), b)
		return true
	}); failed != nil {
		return 0, failed
	}
	if errors.Is(err, syscall.EAGAIN) {
		return 0, nil
	}
	return max(n, 0), err
}

// Uptime implements Device.
func (f file) Uptime() time.Duration { return Uptime() }

// Uptime returns the time since this machine booted.
func Uptime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) != nil { // cannot fail: every kernel has this clock
		return 0
	}
	return time.Duration(t.Nano())
}
