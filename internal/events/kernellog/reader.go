package kernellog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

const (
	// maxXIDs is the maximum number of XIDs, and of SXIDs, that wait for the collector. Further ones are
	// dropped.
	maxXIDs = 4096
	// maxRecord is the size of the read buffer in bytes. The kernel fails a read if the buffer is smaller than
	// the record.
	maxRecord = 16 << 10
	retry     = 30 * time.Second // pause before an unreadable log is opened again
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

// Options configure a Reader.
type Options struct {
	// Path is the path of the log, used in messages and by the default Open.
	Path string
	// Registerer registers the Reader's metrics; required.
	Registerer prometheus.Registerer
	// Log receives a line when the kernel log becomes readable or unreadable; required.
	Log *slog.Logger
	// PodOf returns the UIDs of the pods that a process of the host belongs to, the outermost first. It is called on
	// Run's goroutine. It may be nil.
	PodOf func(pid uint32) ([]string, error)
	// Open opens the log. If it is nil, the device at Path is opened.
	Open func() (Device, error)
}

// A Reader follows the kernel log. Run and Drain may be called from different goroutines.
type Reader struct {
	opt Options

	lost, unparsed *prometheus.CounterVec

	mu    sync.Mutex
	found []gpu.XID
	sxids []gpu.SXID
	since time.Time // when reading began; zero if the log is not being read

	// Only Run uses the following fields.
	failing bool
	readTo  uint64 // sequence number after the newest record ever read
}

// Label values of dcgm_exporter_kernel_log_lost_total.
const (
	lostRecords = "records" // overwritten before they were read
	lostXIDs    = "xids"    // more than maxXIDs in one cycle
)

// Label values of dcgm_exporter_kernel_log_unparsed_total.
const (
	unparsedXID    = "xid"
	unparsedSXID   = "sxid"
	unparsedDetail = "detail" // the XID is counted, but without unit, link and action
)

// New returns a Reader. It does not open the log.
func New(opt Options) *Reader {
	if opt.Open == nil {
		opt.Open = func() (Device, error) { return open(opt.Path) }
	}
	r := &Reader{
		opt: opt,
		lost: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dcgm_exporter_kernel_log_lost_total",
			Help: "Kernel log records that were overwritten before they were read, " +
				"and XIDs and SXIDs dropped because the queue was full.",
		}, []string{"what"}),
		unparsed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dcgm_exporter_kernel_log_unparsed_total",
			Help: "Driver lines in the kernel log that could not be parsed, by kind.",
		}, []string{"what"}),
	}
	up := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "dcgm_exporter_kernel_log_up",
		Help: "Whether XIDs are read from the kernel log.",
	}, func() float64 {
		if _, read := r.Since(); read {
			return 1
		}
		return 0
	})
	opt.Registerer.MustRegister(up, r.lost, r.unparsed)
	for _, what := range []string{lostRecords, lostXIDs} {
		r.lost.WithLabelValues(what)
	}
	for _, what := range []string{unparsedXID, unparsedSXID, unparsedDetail} {
		r.unparsed.WithLabelValues(what)
	}
	return r
}

// Drain appends the XIDs since the previous call, oldest first. XIDs logged before the log was opened are
// marked as Past.
func (r *Reader) Drain(into []gpu.XID) []gpu.XID { return drain(r, &r.found, into) }

// DrainSXIDs appends the SXIDs, like Drain.
func (r *Reader) DrainSXIDs(into []gpu.SXID) []gpu.SXID { return drain(r, &r.sxids, into) }

// drain moves the waiting events of a reader.
func drain[E any](r *Reader, waiting *[]E, into []E) []E {
	r.mu.Lock()
	defer r.mu.Unlock()
	into = append(into, *waiting...)
	*waiting = (*waiting)[:0]
	return into
}

// Since returns when reading began. It returns false if the log is not being read.
func (r *Reader) Since() (time.Time, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.since, !r.since.IsZero()
}

// set records when reading began; zero means that the log is not being read.
func (r *Reader) set(since time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.since = since
}

// Run reads the log until ctx is done.
func (r *Reader) Run(ctx context.Context) {
	for ctx.Err() == nil {
		err := r.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		r.set(time.Time{})
		if !r.failing {
			r.failing = true
			r.opt.Log.Warn("Cannot read the kernel log; XIDs come only from the driver",
				"path", r.opt.Path, "error", err)
		}
		select {
		case <-time.After(retry):
		case <-ctx.Done():
		}
	}
}

// follow opens the log and reads it until a read fails.
func (r *Reader) follow(ctx context.Context) error {
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
	since, next, err := r.readPast(d)
	if err != nil {
		return err
	}
	r.set(since)
	if r.failing {
		r.failing = false
		r.opt.Log.Info("Kernel log can be read again", "path", r.opt.Path)
	}
	return r.read(d, next)
}

// readPast reads the existing records. It keeps the latest XID of each code and GPU, and the latest of each
// SXID. It returns the time at which it reached the end, and the sequence number of the next record, or 0 if
// the log is empty.
func (r *Reader) readPast(d Device) (since time.Time, next uint64, err error) {
	type xidKey struct {
		pciBusID string
		code     int64
	}
	xids, sxids := map[xidKey]gpu.XID{}, map[gpu.SXID]gpu.SXID{} // SXIDs are keyed by all fields except Time
	for buffer := make([]byte, maxRecord); ; {
		since = time.Now()
		n, err := d.TryRead(buffer)
		if errors.Is(err, syscall.EPIPE) {
			continue
		}
		if err != nil {
			return since, 0, err
		}
		if n == 0 {
			break
		}
		record, ok := ParseRecord(buffer[:n])
		if !ok {
			continue
		}
		next = record.Sequence + 1
		if !record.Kernel {
			continue
		}
		line, at := record.Text, since.Add(min(0, record.Up-d.Uptime())).UnixNano()
		again := record.Sequence < r.readTo // an earlier follow has read it
		r.readTo = max(r.readTo, next)
		if xid, ok := r.xidOf(line, again); ok {
			key := xidKey{xid.PCIBusID, xid.Code}
			xid.Past, xid.Time = true, at
			keepLatest(xids, key, xid)
		} else if sxid, ok := r.sxidOf(line, again); ok {
			key := sxid
			sxid.Past, sxid.Time = true, at
			keepLatest(sxids, key, sxid)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.found = slices.AppendSeq(r.found, maps.Values(xids))
	r.sxids = slices.AppendSeq(r.sxids, maps.Values(sxids))
	return since, next, nil
}

// keepLatest stores an event under its key, unless that would be a new key beyond maxXIDs.
func keepLatest[K comparable, E any](latest map[K]E, key K, event E) {
	if _, known := latest[key]; known || len(latest) < maxXIDs {
		latest[key] = event
	}
}

// read reads new records until a read fails. next is the expected sequence number of the first record, or 0 if
// the log was empty.
func (r *Reader) read(d Device, next uint64) error {
	buffer := make([]byte, maxRecord)
	for {
		n, err := d.Read(buffer)
		if errors.Is(err, syscall.EPIPE) {
			continue // the gap in the sequence numbers shows how many were lost
		}
		if err != nil {
			return err
		}
		if n == 0 {
			return io.ErrUnexpectedEOF
		}
		record, ok := ParseRecord(buffer[:n])
		if !ok {
			continue
		}
		if next > 0 && record.Sequence > next {
			r.lost.WithLabelValues(lostRecords).Add(float64(record.Sequence - next))
		}
		next = record.Sequence + 1
		r.readTo = max(r.readTo, next)
		if record.Kernel {
			r.take(record.Text)
		}
	}
}

// take queues the XID or SXID of a new line. It uses the current time because the log's own clock drifts.
func (r *Reader) take(line string) {
	if xid, ok := r.xidOf(line, false); ok {
		// Log the line, because it has the process's name, which no label has.
		r.opt.Log.Debug("XID", "xid", xid.Code, "pci_bus_id", xid.PCIBusID, "line", line)
		xid.Time, xid.PodUIDs = time.Now().UnixNano(), r.podsOf(xid.PID)
		keep(r, &r.found, xid)
	} else if sxid, ok := r.sxidOf(line, false); ok {
		r.opt.Log.Debug("SXID", "sxid", sxid.Code, "nvswitch", sxid.Switch, "line", line)
		sxid.Time = time.Now().UnixNano()
		keep(r, &r.sxids, sxid)
	}
}

// xidOf parses an XID line and reports success. Unparsed parts of the line are counted, unless again is set
// because an earlier read counted them.
func (r *Reader) xidOf(line string, again bool) (gpu.XID, bool) {
	if !strings.HasPrefix(line, xidPrefix) {
		return gpu.XID{}, false
	}
	xid, ok := ParseXID(line)
	switch detailed := isNVLink5(xid.Code) || xid.Code == recoveryAction; {
	case again:
	case !ok:
		r.unparsed.WithLabelValues(unparsedXID).Inc()
	case detailed && xid.Detail == (gpu.XIDDetail{}):
		r.unparsed.WithLabelValues(unparsedDetail).Inc()
	}
	return xid, ok
}

// sxidOf parses an SXID line, like xidOf. It returns false for lines that only add details to the preceding
// SXID.
func (r *Reader) sxidOf(line string, again bool) (gpu.SXID, bool) {
	if !strings.HasPrefix(line, sxidPrefix) || !strings.Contains(line, sxidMark) {
		return gpu.SXID{}, false
	}
	sxid, ok := ParseSXID(line)
	if !ok && !again {
		r.unparsed.WithLabelValues(unparsedSXID).Inc()
	}
	return sxid, sxid.Severity != ""
}

// keep queues an event for the collector. If the queue is full, it drops and counts the event.
func keep[E any](r *Reader, waiting *[]E, event E) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(*waiting) >= maxXIDs {
		r.lost.WithLabelValues(lostXIDs).Inc()
		return
	}
	*waiting = append(*waiting, event)
}

// podsOf returns the UIDs of a process's pods, outermost first. It returns nil if they are unknown.
func (r *Reader) podsOf(pid uint32) []string {
	if pid == 0 || r.opt.PodOf == nil {
		return nil
	}
	uids, err := r.opt.PodOf(pid)
	if err != nil {
		return nil
	}
	return uids
}

// open opens the kernel log at path. It fails if the file is not the kernel log device.
func open(path string) (Device, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, typed(err)
	}
	if err := checkDevice(path, info); err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, typed(err)
	}
	raw, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return nil, typed(err)
	}
	return &file{f, raw}, nil
}

// The device number of /dev/kmsg is from Linux, Documentation/admin-guide/devices.txt.
const (
	kmsgMajor = 1
	kmsgMinor = 11
)

// checkDevice returns an error unless the file is the kernel log device. Neighboring devices such as /dev/zero
// and /dev/urandom can be read forever but have no records.
func checkDevice(path string, info fs.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || info.Mode()&fs.ModeCharDevice == 0 {
		return fmt.Errorf("%w: %s is not a device; expected the kernel log, /dev/kmsg", gpu.ErrUnavailable, path)
	}
	if major, minor := unix.Major(stat.Rdev), unix.Minor(stat.Rdev); major != kmsgMajor || minor != kmsgMinor {
		return fmt.Errorf("%w: %s is device %d:%d; expected the kernel log, /dev/kmsg, which is %d:%d",
			gpu.ErrUnavailable, path, major, minor, kmsgMajor, kmsgMinor)
	}
	return nil
}

// A file is the open kernel log of this machine.
type file struct {
	*os.File
	raw syscall.RawConn
}

// TryRead implements Device. Go opens the file in nonblocking mode.
func (f *file) TryRead(b []byte) (n int, err error) {
	if failed := f.raw.Read(func(fd uintptr) bool {
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
func (f *file) Uptime() time.Duration { return Uptime() }

// Uptime returns the time since this machine booted.
func Uptime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) != nil { // cannot fail: every kernel has this clock
		return 0
	}
	return time.Duration(t.Nano())
}

func typed(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: %w (requires root, and CAP_SYSLOG if kernel.dmesg_restrict is 1)",
			gpu.ErrPermission, err)
	}
	return fmt.Errorf("%w: %w", gpu.ErrUnavailable, err)
}
