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
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/sys/unix"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

const (
	// maxXIDs is the maximum number of XIDs, and of SXIDs, that wait for the collector. Further ones are dropped.
	maxXIDs = 4096
	// maxRecord is the size of the read buffer in bytes. The kernel fails a read if the buffer is smaller than
	// the record.
	maxRecord = 16 << 10
	retry     = 30 * time.Second // pause before an unreadable log is opened again
)

// Label values of dcgm_exporter_kernel_log_lost_total.
const (
	lostRecords = "records" // overwritten before they were read
	lostXIDs    = "xids"    // more than maxXIDs in one cycle
)

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
	opt            Options
	lost, unparsed *prometheus.CounterVec

	mu sync.Mutex
	// waiting holds XIDs and SXIDs for Drain: a storm of one kind must not displace the other.
	waiting [2][]gpu.XID
	since   time.Time // when reading began; zero if the log is not being read

	// Only Run uses the following fields.
	failing bool
	readTo  uint64 // sequence number after the newest record ever read
}

// New returns a Reader. It does not open the log.
func New(opt Options) *Reader {
	if opt.Open == nil {
		opt.Open = func() (Device, error) { return open(opt.Path) }
	}
	auto := promauto.With(opt.Registerer)
	r := &Reader{
		opt: opt,
		lost: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "dcgm_exporter_kernel_log_lost_total",
			Help: "Kernel log records that were overwritten before they were read, " +
				"and XIDs and SXIDs dropped because the queue was full.",
		}, []string{"what"}),
		unparsed: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "dcgm_exporter_kernel_log_unparsed_total",
			Help: "Driver lines in the kernel log that could not be parsed, by kind.",
		}, []string{"what"}),
	}
	auto.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "dcgm_exporter_kernel_log_up",
		Help: "Whether XIDs are read from the kernel log.",
	}, func() float64 {
		if r.Since().IsZero() {
			return 0
		}
		return 1
	})
	for _, what := range []string{lostRecords, lostXIDs} {
		r.lost.WithLabelValues(what)
	}
	for _, what := range []string{unparsedXID, unparsedSXID, unparsedDetail} {
		r.unparsed.WithLabelValues(what)
	}
	return r
}

// Drain appends the XIDs and then the SXIDs since the previous call, each oldest first. Those logged before the log was
// opened are marked as Past.
func (r *Reader) Drain(into []gpu.XID) []gpu.XID {
	r.mu.Lock()
	defer r.mu.Unlock()
	for kind := range r.waiting {
		into = append(into, r.waiting[kind]...)
		r.waiting[kind] = r.waiting[kind][:0]
	}
	return into
}

// Since returns when reading began. It is zero if the log is not being read.
func (r *Reader) Since() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.since
}

// Run reads the log until ctx is done.
func (r *Reader) Run(ctx context.Context) {
	for ctx.Err() == nil {
		err := r.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		r.began(time.Time{}, nil)
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

// began records when reading began, and the XIDs from before. A zero time means that the log is not being read.
func (r *Reader) began(since time.Time, past map[pastKey]gpu.XID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.since, r.waiting[0] = since, slices.AppendSeq(r.waiting[0], maps.Values(past))
}

// A pastKey identifies XIDs that were logged before the log was opened. Only the latest XID of each key is reported.
type pastKey struct {
	pciBusID string // empty for SXIDs
	nvswitch uint32
	code     int64
	detail   gpu.XIDDetail // zero for XIDs: their series only have the code
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
	buffer, read := make([]byte, maxRecord), d.TryRead
	past := map[pastKey]gpu.XID{} // nil once the existing records were read
	next := uint64(0)             // expected sequence number; 0 if unknown
	for {
		begin := time.Now()
		n, err := read(buffer)
		switch {
		case errors.Is(err, syscall.EPIPE):
			continue // the gap in the sequence numbers shows how many were lost
		case err != nil:
			return err
		case n == 0 && past == nil:
			return io.ErrUnexpectedEOF
		case n == 0:
			r.began(begin, past)
			past, read = nil, d.Read
			if r.failing {
				r.failing = false
				r.opt.Log.Info("Kernel log can be read again", "path", r.opt.Path)
			}
			continue
		}
		record, ok := ParseRecord(buffer[:n])
		if !ok {
			continue
		}
		if past == nil && next > 0 && record.Sequence > next {
			r.lost.WithLabelValues(lostRecords).Add(float64(record.Sequence - next))
		}
		next = record.Sequence + 1
		switch x := r.parse(record); {
		case x.Code == 0:
		case past == nil:
			r.keep(x, record.Text)
		default:
			key := pastKey{x.PCIBusID, x.Switch, x.Code, x.Detail}
			if !x.OnSwitch {
				key.detail = gpu.XIDDetail{}
			}
			if _, known := past[key]; known || len(past) < maxXIDs {
				x.Past, x.Time = true, begin.Add(min(0, record.Up-d.Uptime())).UnixNano()
				past[key] = x
			}
		}
	}
}

// parse returns the XID or SXID of a record; its Code is 0 if there is none. It counts unparsed parts of the line,
// unless an earlier call of follow has read the record.
func (r *Reader) parse(record Record) gpu.XID {
	if !record.Kernel {
		return gpu.XID{}
	}
	x, unparsed := ParseLine(record.Text)
	if unparsed != "" && record.Sequence >= r.readTo {
		r.unparsed.WithLabelValues(unparsed).Inc()
	}
	r.readTo = max(r.readTo, record.Sequence+1)
	return x
}

// keep queues the XID of a new line, or counts it as lost if the queue is full. It uses the current time because the
// log's own clock drifts.
func (r *Reader) keep(x gpu.XID, line string) {
	r.opt.Log.Debug("XID in the kernel log", "line", line) // the line has the process name, which is not a label
	x.Time = time.Now().UnixNano()
	if x.PID != 0 && r.opt.PodOf != nil {
		if uids, err := r.opt.PodOf(x.PID); err == nil {
			x.PodUIDs = uids
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	kind := 0
	if x.OnSwitch {
		kind = 1
	}
	if len(r.waiting[kind]) >= maxXIDs {
		r.lost.WithLabelValues(lostXIDs).Inc()
		return
	}
	r.waiting[kind] = append(r.waiting[kind], x)
}

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
