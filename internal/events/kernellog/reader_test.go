package kernellog_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/events/kernellog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// device is a fake kernel log of a machine that booted an hour ago. The records in old exist when it is opened;
// a nil record stands for records that were overwritten.
type device struct {
	old    [][]byte
	live   chan []byte
	closed chan struct{}
	begin  time.Time
}

func newDevice(old ...[]byte) *device {
	return &device{old: old, live: make(chan []byte, 10000), closed: make(chan struct{}), begin: time.Now()}
}

func (d *device) Uptime() time.Duration { return time.Hour + time.Since(d.begin) }

func (d *device) TryRead(b []byte) (int, error) {
	if len(d.old) == 0 {
		return 0, nil
	}
	record := d.old[0]
	d.old = d.old[1:]
	return give(b, record)
}

func (d *device) Read(b []byte) (int, error) {
	select {
	case record := <-d.live:
		return give(b, record)
	case <-d.closed:
		return 0, os.ErrClosed
	}
}

func give(b, record []byte) (int, error) {
	if record == nil {
		return 0, syscall.EPIPE
	}
	return copy(b, record), nil
}

func (d *device) Close() error { close(d.closed); return nil }

// record returns a kernel record about an XID. If xid is 0, the record is about something else.
func record(sequence int, up time.Duration, xid int) []byte {
	if xid == 0 {
		return fmt.Appendf(nil, "6,%d,%d,-;usb 1-1: new device", sequence, up.Microseconds())
	}
	return fmt.Appendf(nil, "4,%d,%d,-;NVRM: Xid (PCI:0000:1b:00): %d, pid=7, name=x", sequence, up.Microseconds(), xid)
}

// rig is a Reader that runs until the test ends.
type rig struct {
	reader *kernellog.Reader
	reg    *prometheus.Registry
	log    strings.Builder
	start  time.Time
}

func run(t *testing.T, open func() (kernellog.Device, error)) *rig {
	return runWith(t, kernellog.Options{Open: open})
}

func runWith(t *testing.T, o kernellog.Options) *rig {
	r := &rig{reg: prometheus.NewRegistry(), start: time.Now()}
	log := slog.New(slog.NewTextHandler(&r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	o.Path, o.Registerer, o.Log = "/dev/kmsg", r.reg, log
	r.reader = kernellog.New(o)
	t.Cleanup(follow(t, r.reader))
	synctest.Wait()
	return r
}

// follow runs a reader until stop is called.
func follow(t *testing.T, r *kernellog.Reader) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { r.Run(ctx); close(done) }()
	return func() { cancel(); <-done }
}

func of(d *device) func() (kernellog.Device, error) {
	return func() (kernellog.Device, error) { return d, nil }
}

// drain returns the XIDs as "code@time since the start". XIDs from before the start have the prefix "past".
func (r *rig) drain() (list []string) {
	synctest.Wait()
	for _, x := range r.reader.Drain(nil) {
		past := map[bool]string{true: "past "}[x.Past]
		list = append(list, fmt.Sprintf("%s%d@%v", past, x.Code, time.Unix(0, x.Time).Sub(r.start)))
	}
	slices.Sort(list)
	return list
}

func (r *rig) expect(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, r.drain()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func (r *rig) series(t *testing.T, name string, want ...string) {
	t.Helper()
	families, err := r.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range families {
		for _, m := range f.Metric {
			if f.GetName() == name {
				what := ""
				for _, l := range m.Label {
					what += l.GetValue() + " "
				}
				got = append(got, fmt.Sprint(what, m.GetGauge().GetValue()+m.GetCounter().GetValue()))
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got)\n%s", name, diff)
	}
}

// Existing lines are reported as past, only the latest of each code, with the time of the log's clock. New
// lines are reported once each, with the time at which they were read.
func TestLinesAreReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDevice(record(3, time.Second, 31), nil, record(5, 10*time.Minute, 31),
			record(6, time.Hour-time.Second, 13), []byte("12,7,5,-;NVRM: Xid (PCI:0000:1b:00): 48, from user space"),
			record(8, time.Hour+time.Minute, 62))
		r := run(t, of(d))
		r.expect(t, "past 13@-1s", "past 31@-50m0s", "past 62@0s")
		time.Sleep(20 * time.Second)
		d.live <- record(11, time.Hour+13*time.Second, 79)
		d.live <- record(12, time.Hour+14*time.Second, 0)
		r.expect(t, "79@20s")
		r.expect(t)
		r.series(t, "dcgm_exporter_kernel_log_lost_total", "records 2", "xids 0")
	})
}

// Lines that cannot be parsed are counted and otherwise ignored, both at the start and later. Each is counted once,
// even if the log is opened again. New lines are also logged at level debug.
func TestLinesThatAreNotUnderstood(t *testing.T) {
	var lines [][]byte
	for i, text := range []string{
		"NVRM: Xid: 31", "NVRM: Xid (PCI:0000:1b:00): garbled",
		"NVRM: Xid (PCI:0000:1b:00): 145, pid=9, name=trainer, of a later driver",
		"NVRM: Xid (PCI:0000:1b:00): 154, GPU recovery action changed from 0x0 (None) to 0x9 (Something new)",
		"nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): garbled, Fatal",
		"nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46 MC TS crumbstore MCTO (First)",
		"nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Severity 0 Engine instance 46 Sub-engine instance 00",
		"nvidia-nvswitch3: using MSI", "NVRM: GPU 0000:1b:00.0: GPU has fallen off the bus.",
		"NVRM: Xid (PCI:0000:1b:00): 79, pid=9, name=x, an XID that never has details",
	} {
		lines = append(lines, fmt.Appendf(nil, "4,%d,0,-;%s", 3+i, text))
	}
	sxid := gpu.SXID{Switch: 3, Code: 28006, Severity: "nonfatal", Link: "46"}
	for name, past := range map[string]bool{"history": true, "live": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, again, opened := newDevice(), newDevice(lines...), false
				want, xids := sxid, []string{"145@0s", "154@0s", "79@0s"}
				want.Time = time.Now().UnixNano()
				if past {
					d.old, xids = lines, []string{"past 145@-1h0m0s", "past 154@-1h0m0s", "past 79@-1h0m0s"}
					want.Time, want.Past = time.Now().Add(-time.Hour).UnixNano(), true
				}
				r := run(t, func() (kernellog.Device, error) {
					if opened {
						return again, nil
					}
					opened = true
					return d, nil
				})
				for _, line := range lines {
					if !past {
						d.live <- line
					}
				}
				r.expect(t, xids...)
				counted := func() {
					t.Helper()
					r.series(t, "dcgm_exporter_kernel_log_unparsed_total", "detail 2", "sxid 1", "xid 2")
				}
				counted()
				if diff := cmp.Diff([]gpu.SXID{want}, r.reader.DrainSXIDs(nil)); diff != "" {
					t.Errorf("SXIDs (-want +got)\n%s", diff)
				}
				if got := strings.Contains(r.log.String(), "name=trainer"); got == past {
					t.Errorf("log names the process: %t, want %t; log:\n%s", got, !past, r.log.String())
				}
				d.live <- nil
				d.live <- []byte{} // the log fails and is opened again
				time.Sleep(time.Minute)
				synctest.Wait()
				counted()
			})
		})
	}
}

func TestNothingIsTakenFromOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDevice()
		r := run(t, of(d))
		d.live <- []byte("12,1,5,-;NVRM: Xid (PCI:0000:1b:00): 79, from user space")
		d.live <- []byte("4,2,5,-;another driver\n TEXT=NVRM: Xid (PCI:0000:1b:00): 79, in a field")
		d.live <- []byte("garbage")
		d.live <- record(3, time.Hour, 48)
		r.expect(t, "48@0s")
	})
}

func TestLossesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDevice()
		r := run(t, of(d))
		d.live <- record(4, time.Minute, 31)
		d.live <- nil
		d.live <- record(13, time.Minute, 0)
		r.expect(t, "31@0s")
		r.series(t, "dcgm_exporter_kernel_log_lost_total", "records 8", "xids 0")
		for i := range 5000 { // none of them is accepted
			d.live <- record(14+i, time.Hour, 31)
		}
		if got := r.drain(); len(got) != 4096 {
			t.Errorf("XIDs = %d, want 4096", len(got))
		}
		r.series(t, "dcgm_exporter_kernel_log_lost_total", "records 8", "xids 904")
	})
}

// The process of an XID is looked up as soon as its line is read, because it may end soon.
func TestProcessesAreLookedUpAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDevice()
		r := runWith(t, kernellog.Options{
			Open: of(d),
			PodOf: func(pid uint32) ([]string, error) {
				if pid == 8 {
					return []string{"not to be used"}, errors.New("another namespace")
				}
				return []string{fmt.Sprint("pod of ", pid), "inner"}, nil
			},
		})
		for i, process := range []string{"pid=7", "pid=8", "pid='<unknown>'"} {
			d.live <- fmt.Appendf(nil, "4,%d,0,-;NVRM: Xid (PCI:0000:1b:00): %d, %s", 3+i, 43+i, process)
		}
		synctest.Wait()
		got := map[int64][]string{}
		for _, x := range r.reader.Drain(nil) {
			got[x.Code] = x.PodUIDs
		}
		if diff := cmp.Diff(map[int64][]string{43: {"pod of 7", "inner"}, 44: nil, 45: nil}, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	})
}

// One line is logged each time the kernel log becomes readable or unreadable. Reading resumes after the last record
// that was read.
func TestLogComesAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var present atomic.Pointer[device]
		r := run(t, func() (kernellog.Device, error) {
			if d := present.Load(); d != nil {
				return d, nil
			}
			return nil, errors.New("not there")
		})
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		up := func(want bool) {
			t.Helper()
			value := map[bool]string{false: "0", true: "1"}[want]
			if r.series(t, "dcgm_exporter_kernel_log_up", value); isRead(r.reader) != want {
				t.Errorf("reader reads the log: %t, want %t", !want, want)
			}
		}
		up(false)
		first := newDevice()
		present.Store(first)
		time.Sleep(time.Minute)
		first.live <- record(3, time.Hour+6*time.Minute, 79)
		r.expect(t, "79@6m0s")
		up(true)
		second := newDevice(record(4, time.Hour, 48))
		present.Store(second)
		time.Sleep(time.Minute + 10*time.Second)
		first.live <- []byte{} // an empty read: the log ends
		synctest.Wait()
		up(false)
		time.Sleep(time.Minute)
		up(true)
		second.live <- record(5, 0, 31)
		r.expect(t, "31@8m10s", "past 48@6m0s")
		log := r.log.String()
		if n, m := strings.Count(log, "level=WARN"), strings.Count(log, "level=INFO"); n != 2 || m != 2 {
			t.Errorf("log lines = %d warnings and %d infos, want 2 each:\n%s", n, m, log)
		}
	})
}

func isRead(r *kernellog.Reader) bool {
	_, read := r.Since()
	return read
}

// A file that is not the kernel log is rejected.
func TestUnsuitablePaths(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kern.log")
	if err := os.WriteFile(file, record(1, 0, 79), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		file, file + ".none", os.DevNull, "/dev/zero", "/dev/full", "/dev/urandom", "/dev/ptmx",
	} {
		t.Run(filepath.Base(path), func(t *testing.T) {
			reg, reported := prometheus.NewRegistry(), make(chan string, 1)
			r := kernellog.New(kernellog.Options{
				Path: path, Registerer: reg,
				Log: slog.New(slog.NewTextHandler(report(reported), nil)),
			})
			stop := follow(t, r)
			line := <-reported
			if !strings.Contains(line, "Cannot read the kernel log") || !strings.Contains(line, path) {
				t.Errorf("log line = %s, want the path and that the kernel log cannot be read", line)
			}
			stop()
			if got := r.Drain(nil); len(got) > 0 {
				t.Errorf("XIDs = %v, want none", got)
			}
			(&rig{reg: reg}).series(t, "dcgm_exporter_kernel_log_up", "0")
		})
	}
}

type report chan string

func (c report) Write(b []byte) (int, error) {
	c <- string(b)
	return len(b), nil
}

// needsLog skips a test if this machine's kernel log cannot be read. If REQUIRE_KERNEL_LOG is set, the test
// fails instead.
func needsLog(t *testing.T, reason string, err error) {
	t.Helper()
	if os.Getenv("REQUIRE_KERNEL_LOG") != "" {
		t.Fatalf("%s: %v", reason, err)
	}
	t.Skipf("SKIP %s: %v", reason, err)
}

// TestMachinesOwnLog reads the machine's own kernel log if it exists and is readable.
func TestMachinesOwnLog(t *testing.T) {
	const path = "/dev/kmsg"
	f, err := os.Open(path)
	if err != nil {
		needsLog(t, "kernel-log-absent", err)
	}
	b := make([]byte, 16<<10)
	n, err := f.Read(b)
	if closeErr := f.Close(); closeErr != nil {
		t.Fatal(closeErr)
	}
	if err != nil {
		needsLog(t, "kernel-log-unreadable", err)
	}
	if _, ok := kernellog.ParseRecord(b[:n]); !ok {
		t.Errorf("ParseRecord(%q): ok = false, want true", b[:n])
	}
	log := slog.New(slog.DiscardHandler)
	r := kernellog.New(kernellog.Options{Path: path, Registerer: prometheus.NewRegistry(), Log: log})
	stop := follow(t, r)
	for deadline := time.Now().Add(10 * time.Second); !isRead(r) && time.Now().Before(deadline); {
		runtime.Gosched()
	}
	if !isRead(r) {
		t.Error("reader reads the kernel log: false, want true")
	}
	stop() // canceling the context ends a blocked read
}
