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
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/events/kernellog"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/loop"
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
	t      *testing.T
	reader *kernellog.Reader
	reg    *prometheus.Registry
	log    strings.Builder
	start  time.Time
}

// run runs a Reader of devices, which are opened in order. A nil device cannot be opened. Process 7 cannot be looked
// up.
func run(t *testing.T, devices ...*device) *rig {
	r := &rig{t: t, reg: prometheus.NewRegistry(), start: time.Now()}
	o := kernellog.Options{Path: "/dev/kmsg", Registerer: r.reg}
	o.PodOf = func(pid uint32) ([]string, error) {
		pods := []string{fmt.Sprint("pod of ", pid), "inner"}
		if pid == 7 {
			return pods, errors.New("another namespace")
		}
		return pods, nil
	}
	o.Log = slog.New(slog.NewTextHandler(&r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	o.Open = func() (kernellog.Device, error) {
		next := devices[0]
		if len(devices) > 1 {
			devices = devices[1:]
		}
		if next == nil {
			return nil, errors.New("not there")
		}
		return next, nil
	}
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

// expect checks the new XIDs, given as "code@time since the start". XIDs from before the start have the prefix "past",
// and the details of an SXID precede its code. The pods of its process follow.
func (r *rig) expect(want ...string) {
	r.t.Helper()
	synctest.Wait()
	var got []string
	for _, x := range r.reader.Drain(nil) {
		word := map[bool]string{true: "past "}[x.Past]
		if x.OnSwitch {
			word += fmt.Sprint("switch ", x.Switch, " link ", x.Detail.Link, " ", x.Detail.Severity, " ")
		}
		word += fmt.Sprintf("%d@%v", x.Code, time.Unix(0, x.Time).Sub(r.start))
		got = append(got, strings.Join(append([]string{word}, x.PodUIDs...), ", "))
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		r.t.Errorf("(-want +got)\n%s", diff)
	}
}

// counts checks series, given as "name{labels} value" without the common prefix of their names.
func (r *rig) counts(want ...string) {
	r.t.Helper()
	page, err := loop.AppendGathered(nil, r.reg)
	for _, line := range want {
		if line = "\ndcgm_exporter_kernel_log_" + line + "\n"; !strings.Contains(string(page), line) || err != nil {
			r.t.Errorf("error %v, page:\n%s\nwant the line %s", err, page, line)
		}
	}
}

const lostRecords, lostXIDs = `lost_total{what="records"} `, `lost_total{what="xids"} `

// The latest existing line of each code is reported as past, with the time of the log's clock. New lines are reported
// once each, with the time at which they were read. The process is looked up then, because it may end soon. Lines that
// the kernel did not write are ignored.
func TestLinesAreReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fromUser := []byte("12,7,5,-;NVRM: Xid (PCI:0000:1b:00): 48, from user space")
		linkError := func(sequence, at int) []byte {
			return fmt.Appendf(nil, "4,%d,%d,-;NVRM: Xid (PCI:0000:1b:00): 145, RLW_CTRL Fatal XC0 i0 Link %d",
				sequence, at, sequence)
		}
		d := newDevice(linkError(1, 10e6), linkError(2, 11e6), record(3, time.Second, 31), nil,
			record(5, 10*time.Minute, 31), record(6, time.Hour-time.Second, 13), fromUser,
			record(8, time.Hour+time.Minute, 62))
		r := run(t, d)
		r.expect("past 13@-1s", "past 145@-59m49s", "past 31@-50m0s", "past 62@0s")
		time.Sleep(20 * time.Second)
		d.live <- record(11, time.Hour+13*time.Second, 79)
		d.live <- record(12, time.Hour+14*time.Second, 0)
		r.expect("79@20s")
		r.expect()
		r.counts(lostRecords+"2", lostXIDs+"0")
		d.live <- fromUser
		d.live <- []byte("4,13,5,-;another driver\n TEXT=NVRM: Xid (PCI:0000:1b:00): 79, in a field")
		d.live <- []byte("garbage")
		d.live <- record(14, time.Hour, 48)
		d.live <- []byte("4,15,0,-;NVRM: Xid (PCI:0000:1b:00): 43, pid=8")
		d.live <- []byte("4,16,0,-;NVRM: Xid (PCI:0000:1b:00): 44, pid='<unknown>'")
		r.expect("43@20s, pod of 8, inner", "44@20s", "48@20s")
	})
}

// Lines that cannot be parsed are counted and otherwise ignored, both at the start and later. Each is counted once,
// even if the log is opened again. New lines are also logged at level debug.
func TestLinesThatAreNotUnderstood(t *testing.T) {
	var lines [][]byte
	for i, text := range []string{
		"NVRM: Xid: 31", "NVRM: Xid (PCI:0000:1b:00): garbled",
		"NVRM: Xid (PCI:0000:1b:00): 145, pid=7, name=trainer, of a later driver",
		"NVRM: Xid (PCI:0000:1b:00): 154, GPU recovery action changed from 0x0 (None) to 0x9 (Something new)",
		"nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): garbled, Fatal",
		"nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46 MC TS crumbstore MCTO (First)",
		"nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Severity 0 Engine instance 46 Sub-engine instance 00",
		"nvidia-nvswitch3: using MSI", "NVRM: GPU 0000:1b:00.0: GPU has fallen off the bus.",
		"NVRM: Xid (PCI:0000:1b:00): 79, pid=7, name=x, an XID that never has details",
	} {
		lines = append(lines, fmt.Appendf(nil, "4,%d,0,-;%s", 3+i, text))
	}
	const sxid = "switch 3 link 46 nonfatal 28006@"
	for name, past := range map[string]bool{"history": true, "live": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, want := newDevice(), []string{"145@0s", "154@0s", "79@0s", sxid + "0s"}
				if past {
					d.old, want = lines, []string{
						"past 145@-1h0m0s", "past 154@-1h0m0s", "past 79@-1h0m0s", "past " + sxid + "-1h0m0s",
					}
				}
				r := run(t, d, newDevice(lines...))
				for _, line := range lines {
					if !past {
						d.live <- line
					}
				}
				r.expect(want...)
				unparsed := []string{`unparsed_total{what="detail"} 2`, `unparsed_total{what="sxid"} 1`,
					`unparsed_total{what="xid"} 2`}
				r.counts(unparsed...)
				if got := strings.Contains(r.log.String(), "name=trainer"); got == past {
					t.Errorf("log names the process: %t, want %t; log:\n%s", got, !past, r.log.String())
				}
				d.live <- nil
				d.live <- []byte{} // the log fails and is opened again
				time.Sleep(time.Minute)
				synctest.Wait()
				r.counts(unparsed...)
			})
		})
	}
}

func TestLossesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDevice()
		r := run(t, d)
		d.live <- record(4, time.Minute, 31)
		d.live <- nil
		d.live <- record(13, time.Minute, 0)
		r.expect("31@0s")
		r.counts(lostRecords+"8", lostXIDs+"0")
		for i := range 5000 { // none of them is accepted
			d.live <- record(14+i, time.Hour, 31)
		}
		d.live <- []byte("4,5014,0,-;nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46 MC TS")
		synctest.Wait()
		if got := r.reader.Drain(nil); len(got) != 4097 || !got[4096].OnSwitch {
			t.Errorf("XIDs and SXIDs = %d, want 4096 XIDs and an SXID", len(got))
		}
		r.counts(lostRecords+"8", lostXIDs+"904")
	})
}

// One line is logged each time the kernel log becomes readable or unreadable. Reading resumes after the last record
// that was read.
func TestLogComesAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := newDevice(), newDevice(record(4, time.Hour, 48))
		r := run(t, nil, nil, nil, nil, first, second)
		up := func(want int) {
			t.Helper()
			r.counts(fmt.Sprint("up ", want))
			if isRead(r.reader) != (want == 1) {
				t.Errorf("reader reads the log: %t, want %t", want != 1, want == 1)
			}
		}
		up(0)
		time.Sleep(3 * time.Minute)
		first.live <- record(3, time.Hour+3*time.Minute, 79)
		r.expect("79@3m0s")
		up(1)
		first.live <- []byte{} // an empty read: the log ends
		synctest.Wait()
		up(0)
		time.Sleep(time.Minute)
		up(1)
		second.live <- record(5, 0, 31)
		r.expect("31@4m0s", "past 48@0s")
		log := r.log.String()
		if n, m := strings.Count(log, "level=WARN"), strings.Count(log, "level=INFO"); n != 2 || m != 2 {
			t.Errorf("log lines = %d warnings and %d infos, want 2 each:\n%s", n, m, log)
		}
	})
}

func isRead(r *kernellog.Reader) bool { return !r.Since().IsZero() }

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
			reported := make(report, 1)
			r := kernellog.New(kernellog.Options{
				Path: path, Registerer: prometheus.NewRegistry(), Log: slog.New(slog.NewTextHandler(reported, nil)),
			})
			stop := follow(t, r)
			line := <-reported
			if !strings.Contains(line, "Cannot read the kernel log") || !strings.Contains(line, path) {
				t.Errorf("log line = %s, want the path and that the kernel log cannot be read", line)
			}
			stop()
			if got := r.Drain(nil); len(got) > 0 || isRead(r) {
				t.Errorf("XIDs = %v, read: %t; want none, false", got, isRead(r))
			}
		})
	}
}

type report chan string

func (c report) Write(b []byte) (int, error) {
	c <- string(b)
	return len(b), nil
}

// TestMachinesOwnLog reads the machine's own kernel log. If it cannot be read, the test is skipped, or fails if
// REQUIRE_KERNEL_LOG is set.
func TestMachinesOwnLog(t *testing.T) {
	const path = "/dev/kmsg"
	needs := func(reason string, err error) {
		t.Helper()
		switch {
		case err != nil && os.Getenv("REQUIRE_KERNEL_LOG") != "":
			t.Fatalf("%s: %v", reason, err)
		case err != nil:
			t.Skipf("SKIP %s: %v", reason, err)
		}
	}
	f, err := os.Open(path)
	needs("kernel-log-absent", err)
	b := make([]byte, 16<<10)
	n, err := f.Read(b)
	if closeErr := f.Close(); closeErr != nil {
		t.Fatal(closeErr)
	}
	needs("kernel-log-unreadable", err)
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
