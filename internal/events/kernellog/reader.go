package kernellog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

const (
	// maxXIDs bounds what waits for the collector. A storm longer than that loses its newest XIDs,
	// which are counted.
	maxXIDs = 4096
	// maxRecord is more than the kernel's longest record; a read that offers less room is refused.
	maxRecord = 16 << 10
	// fresh is how long a Read blocks at least whose record was not there before.
	fresh = 10 * time.Millisecond
	// current is how long after it was written a record's process is looked up at most: a process with
	// an XID ends soon, and its id comes again.
	current = 10 * time.Second
	// retry is how long a log that cannot be read is left alone.
	retry = 30 * time.Second
)

// A Device is an open log: a Read returns one record, and blocks until there is one. An error that
// wraps syscall.EPIPE says that records were overwritten before they were read; the next Read goes
// on after them.
type Device interface {
	io.ReadSeekCloser
}

// Options configure a Reader.
type Options struct {
	// Path names the log in messages, and is what Open opens if that is nil.
	Path string
	// After is where an earlier process stopped. From the zero Position the reader starts at the end
	// of the log; from one of another boot at the beginning, since nothing of this boot was read.
	After Position
	// Registerer gets the reader's series. Required.
	Registerer prometheus.Registerer
	// Log gets a line when the log ceases or begins to be readable. Required.
	Log *slog.Logger
	// PodOf returns the UID of the pod that a process of the host belongs to, "" for none. It is
	// called on Run's goroutine. Nil where that is not known.
	PodOf func(pid uint32) (string, error)

	// Open, Boot and Uptime stand in for the machine's; nil means the device at Path,
	// /proc/sys/kernel/random/boot_id and the kernel's monotonic clock.
	Open   func() (Device, error)
	Boot   func() (string, error)
	Uptime func() (time.Duration, error)
}

// A Reader follows the kernel's log. Run and Drain may be called from different goroutines.
type Reader struct {
	opt Options

	up   prometheus.Gauge
	lost *prometheus.CounterVec

	mu    sync.Mutex
	found []gpu.XID
	at    Position // how far found goes
	open  bool

	// Run's.
	failing bool
	booted  time.Time // when the clock of the log's records was zero
}

// Why XIDs can be missing, as in dcgm_exporter_kernel_log_lost_total.
const (
	lostRecords = "records" // overwritten before they were read
	lostXIDs    = "xids"    // more than wait for a cycle
)

// New returns a Reader. It opens nothing yet.
func New(opt Options) *Reader {
	if opt.Open == nil {
		opt.Open = func() (Device, error) { return open(opt.Path) }
	}
	if opt.Boot == nil {
		opt.Boot = bootID
	}
	if opt.Uptime == nil {
		opt.Uptime = uptime
	}
	r := &Reader{
		opt: opt, at: opt.After,
		up: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "dcgm_exporter_kernel_log_up",
			Help: "Whether the kernel's log is read for XIDs.",
		}),
		lost: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dcgm_exporter_kernel_log_lost_total",
			Help: "Records of the kernel's log that were overwritten before they were read, and XIDs that waited in too great a number.",
		}, []string{"what"}),
	}
	opt.Registerer.MustRegister(r.up, r.lost)
	for _, what := range []string{lostRecords, lostXIDs} {
		r.lost.WithLabelValues(what)
	}
	return r
}

// Drain appends the XIDs that were found since the previous call, oldest first, and returns how far
// the log was read for them, as Position.String spells it.
func (r *Reader) Drain(into []gpu.XID) ([]gpu.XID, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	into = append(into, r.found...)
	r.found = r.found[:0]
	return into, r.at.String()
}

// Current reports whether the log is read, as far as it goes.
func (r *Reader) Current() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.open
}

// set notes whether the log is read.
func (r *Reader) set(open bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open = open
	if open {
		r.up.Set(1)
	} else {
		r.up.Set(0)
	}
}

// Run reads until ctx is done.
func (r *Reader) Run(ctx context.Context) {
	for ctx.Err() == nil {
		err := r.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		r.set(false)
		if !r.failing {
			r.failing = true
			r.opt.Log.Warn("The kernel's log cannot be read: XIDs come from the driver alone", "path", r.opt.Path, "error", err)
		}
		timer := time.NewTimer(retry)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// follow opens the log and reads it until it cannot any more.
func (r *Reader) follow(ctx context.Context) error {
	boot, err := r.opt.Boot()
	if err != nil {
		return err
	}
	d, err := r.opt.Open()
	if err != nil {
		return err
	}
	// A blocked Read returns once the device is closed.
	stop := context.AfterFunc(ctx, func() { d.Close() })
	defer func() {
		if stop() {
			d.Close()
		}
	}()
	r.mu.Lock()
	if r.at.Boot == "" {
		_, err = d.Seek(0, io.SeekEnd)
	} else {
		_, err = d.Seek(0, io.SeekStart)
	}
	if r.at.Boot != "" && r.at.Boot != boot {
		r.at = Position{Boot: boot}
	}
	at := r.at
	r.mu.Unlock()
	if err != nil {
		return err
	}
	r.set(true)
	if r.failing {
		r.failing = false
		r.opt.Log.Info("The kernel's log is read again", "path", r.opt.Path)
	}
	return r.read(d, boot, at)
}

// read takes records until one cannot be read.
func (r *Reader) read(d Device, boot string, at Position) error {
	known := at.Boot != "" // at.Next is what comes next
	next := at.Next
	buffer := make([]byte, maxRecord)
	r.booted = time.Time{}
	for {
		begin := time.Now()
		n, err := d.Read(buffer)
		waited := time.Since(begin) >= fresh
		if errors.Is(err, syscall.EPIPE) {
			continue // the gap in the sequence is how many
		}
		if err != nil {
			return err
		}
		if n == 0 {
			return io.ErrUnexpectedEOF
		}
		record, ok := ParseRecord(buffer[:n])
		if !ok || known && record.Sequence < next {
			continue
		}
		if known && record.Sequence > next {
			r.lost.WithLabelValues(lostRecords).Add(float64(record.Sequence - next))
		}
		known, next = true, record.Sequence+1
		r.calibrate(record.Uptime, waited)
		r.take(record, Position{Boot: boot, Next: next})
	}
}

// take keeps the XID of a record, if it reports one.
func (r *Reader) take(record Record, at Position) {
	xid, ok := gpu.XID{}, false
	if record.Kernel {
		xid, ok = ParseXID(record.Text)
	}
	if ok {
		now := time.Now().UnixNano()
		xid.Time = min(r.booted.Add(record.Uptime).UnixNano(), now)
		if now-xid.Time <= int64(current) {
			xid.PodUID = r.podOf(xid.PID)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at = at
	if !ok {
		return
	}
	if len(r.found) == maxXIDs {
		r.lost.WithLabelValues(lostXIDs).Inc()
		return
	}
	r.found = append(r.found, xid)
}

// podOf returns the UID of the pod of a process, "" where it is in none or nothing says so: where
// processes cannot be distinguished, attribution says so.
func (r *Reader) podOf(pid uint32) string {
	if pid == 0 || r.opt.PodOf == nil {
		return ""
	}
	uid, err := r.opt.PodOf(pid)
	if err != nil {
		return ""
	}
	return uid
}

// calibrate learns when the clock of the records was zero. That clock is not disciplined: it drifts
// by seconds a day from every other. A record that was waited for was written just now, and says
// so; for the first ones, which were there before, the kernel's monotonic clock must do.
func (r *Reader) calibrate(up time.Duration, waited bool) {
	now := time.Now()
	switch {
	case waited:
		r.booted = now.Add(-up)
	case r.booted.IsZero():
		since, err := r.opt.Uptime()
		if err != nil {
			since = up
		}
		r.booted = now.Add(-since)
	}
}

// open opens the device at path.
func open(path string) (Device, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, typed(err)
	}
	if info.Mode()&fs.ModeCharDevice == 0 {
		return nil, fmt.Errorf("%w: %s is no device: expected the kernel's log, /dev/kmsg", gpu.ErrUnavailable, path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, typed(err)
	}
	return f, nil
}

func typed(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: %w (it needs root, and the capability SYSLOG where kernel.dmesg_restrict is 1)", gpu.ErrPermission, err)
	}
	return fmt.Errorf("%w: %w", gpu.ErrUnavailable, err)
}

func bootID() (string, error) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", typed(err)
	}
	return strings.TrimSpace(string(text)), nil
}

func uptime() (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0, err
	}
	return time.Duration(t.Nano()), nil
}
