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

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

const (
	// maxXIDs bounds the XIDs that wait for the collector. Beyond it the newest are lost.
	maxXIDs = 4096
	// maxRecord is more than the kernel's longest record; it refuses a read with less room.
	maxRecord = 16 << 10
	retry     = 30 * time.Second // of a log that cannot be read
)

// A Device is an open log. A Read returns one record, and blocks until there is one. Its error wraps syscall.EPIPE where
// records were overwritten before they were read; the next Read goes on after them.
type Device interface {
	io.ReadSeekCloser
}

// Options configure a Reader.
type Options struct {
	// Path names the log in messages, and is what Open opens if that is nil.
	Path string
	// Registerer gets the reader's series; required.
	Registerer prometheus.Registerer
	// Log gets a line when the log ceases or begins to be readable; required.
	Log *slog.Logger
	// PodOf returns the UIDs of the pods of a process of the host, the outermost first; nil for none. It is called on Run's
	// goroutine, and nil where processes have no pods.
	PodOf func(pid uint32) ([]string, error)
	// Open opens the log; nil for the device at Path.
	Open func() (Device, error)
}

// A Reader follows the kernel's log. Run and Drain may be called from different goroutines.
type Reader struct {
	opt Options

	lost *prometheus.CounterVec

	mu    sync.Mutex
	found []gpu.XID
	since time.Time // when the log was opened; zero while it is not

	// Run's.
	failing bool
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
	r := &Reader{
		opt: opt,
		lost: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dcgm_exporter_kernel_log_lost_total",
			Help: "Records of the kernel's log that were overwritten before they were read, and XIDs that waited in too great a number.",
		}, []string{"what"}),
	}
	up := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "dcgm_exporter_kernel_log_up",
		Help: "Whether the kernel's log is read for XIDs.",
	}, func() float64 {
		if _, read := r.Since(); read {
			return 1
		}
		return 0
	})
	opt.Registerer.MustRegister(up, r.lost)
	for _, what := range []string{lostRecords, lostXIDs} {
		r.lost.WithLabelValues(what)
	}
	return r
}

// Drain appends the XIDs since the previous call, oldest first.
func (r *Reader) Drain(into []gpu.XID) []gpu.XID {
	r.mu.Lock()
	defer r.mu.Unlock()
	into = append(into, r.found...)
	r.found = r.found[:0]
	return into
}

// Since returns when the log began to be read, and false while it is not.
func (r *Reader) Since() (time.Time, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.since, !r.since.IsZero()
}

// set notes when the log began to be read; zero while it is not.
func (r *Reader) set(since time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.since = since
}

// Run reads until ctx is done.
func (r *Reader) Run(ctx context.Context) {
	for ctx.Err() == nil {
		err := r.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		r.set(time.Time{})
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
	if _, err := d.Seek(0, io.SeekEnd); err != nil {
		return err
	}
	r.set(time.Now())
	if r.failing {
		r.failing = false
		r.opt.Log.Info("The kernel's log is read again", "path", r.opt.Path)
	}
	return r.read(d)
}

// read takes records until one cannot be read.
func (r *Reader) read(d Device) error {
	buffer := make([]byte, maxRecord)
	var next uint64 // the sequence number that follows; 0 before the first record
	for {
		n, err := d.Read(buffer)
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
		if !ok {
			continue
		}
		if next > 0 && record.Sequence > next {
			r.lost.WithLabelValues(lostRecords).Add(float64(record.Sequence - next))
		}
		next = record.Sequence + 1
		r.record(record)
	}
}

// record keeps the XID of a record, if it reports one. It was written just now: that dates it better than the log's own
// clock, which drifts by seconds a day.
func (r *Reader) record(record Record) {
	if !record.Kernel {
		return
	}
	xid, ok := ParseXID(record.Text)
	if !ok {
		return
	}
	xid.Time, xid.PodUIDs = time.Now().UnixNano(), r.podsOf(xid.PID)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.found) == maxXIDs {
		r.lost.WithLabelValues(lostXIDs).Inc()
		return
	}
	r.found = append(r.found, xid)
}

// podsOf returns the UIDs of the pods of a process, the outermost first; "" where none is known.
func (r *Reader) podsOf(pid uint32) string {
	if pid == 0 || r.opt.PodOf == nil {
		return ""
	}
	uids, err := r.opt.PodOf(pid)
	if err != nil {
		return ""
	}
	return strings.Join(uids, " ")
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
