package events_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/loop"
)

// kernelLog is a kernel log that a test writes.
type kernelLog struct {
	mu    sync.Mutex
	xids  []gpu.XID
	since time.Time // zero if it is not being read
}

// readLog returns a kernel log that is being read from now on.
func readLog() *kernelLog { return &kernelLog{since: time.Now()} }

func (w *kernelLog) Since() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.since
}

func (w *kernelLog) set(since time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since = since
}

func (w *kernelLog) report(list ...gpu.XID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.xids = append(w.xids, list...)
}

func (w *kernelLog) Drain(into []gpu.XID) []gpu.XID {
	w.mu.Lock()
	defer w.mu.Unlock()
	into = append(into, w.xids...)
	w.xids = nil
	return into
}

// happen creates XIDs of GPU 0.
func (w *kernelLog) happen(at time.Time, codes ...int64) {
	for _, code := range codes {
		w.report(gpu.XID{PCIBusID: "00000000:1b:00.0", Code: code, Time: at.UnixNano()})
	}
}

// While the kernel log is read, it is the source of XIDs, and the engine's reports for that period are ignored.
// Before and afterwards, the engine is the source.
func TestKernelLogIsSourceWhileRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, log, seen := newEngine(), &kernelLog{}, &figures{}
		e.keeps = true
		r := start(t, e.Open, func(o *loop.Options) {
			families(xidTotalFamily, xidCountFamily)(o)
			seen.watch(o)
			o.KernelLog = log
		})
		counted := func(want counts) {
			t.Helper()
			r.Wait(interval)
			seen.are(t, want)
		}
		e.happen(time.Now(), 48)
		counted(counts{"48": 1})

		time.Sleep(time.Second)
		log.set(time.Now())
		time.Sleep(time.Second)
		before := time.Now().Add(-2 * time.Second)
		e.happen(time.Now(), 31, 31, 13) // the kernel log does not have XID 13
		log.happen(time.Now(), 31, 31, 79)
		e.happen(before, 62) // it happened before the kernel log was read, and is reported late
		counted(counts{"48": 1, "31": 2, "79": 1, "62": 1})
		r.Has(gauge(0, 79), inWindow(0, "{xid 31}", 2), inWindow(0, "{xid 79}", 1))
		r.Reload(r.Settings) // the engine reports all XIDs again
		counted(counts{"48": 1, "31": 2, "79": 1, "62": 1})

		log.set(time.Time{})
		r.Wait(interval)
		e.happen(time.Now(), 79)
		counted(counts{"48": 1, "31": 2, "79": 2, "62": 1})

		log.set(time.Now())
		r.Wait(interval)
		e.happen(time.Now(), 13)
		time.Sleep(time.Second)
		log.set(time.Now()) // it failed and was opened again since the last Read
		counted(counts{"48": 1, "31": 2, "79": 2, "62": 1, "13": 1})
	})
}

// NVML reports XIDs while DCGM is unavailable. When DCGM returns, it reports the XIDs of that period under other IDs,
// and some that NVML did not report.
func TestEngineReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, driver, seen := newEngine(), newEngine(), &figures{}
		e.keeps = true
		driver.topology = gpu.NewTopology(driver.topology.Devices)
		driver.topology.Source = "nvml"
		var plan *gpu.Plan
		r := start(t, e.Open, func(o *loop.Options) {
			families(xidTotalFamily)(o)
			plan = o.Plan
			seen.watch(o)
		})
		is := func(want counts) {
			t.Helper()
			r.Wait(interval)
			seen.are(t, want)
		}
		e.happen(time.Now(), 31)
		is(counts{"31": 1})
		r.Reload(collector.Settings{Source: collector.SourceOf(driver.Open), Plan: plan})
		for i := range 2 * 60 { // longer than the window
			r.Wait(interval)
			if i%20 > 0 {
				continue
			}
			now := time.Now()
			driver.do(func() {
				driver.xids = append(driver.xids, gpu.XID{Code: 31, ID: int64(i + 1), Time: now.UnixNano()})
			})
			e.happen(now, 31)
		}
		is(counts{"31": 7})
		time.Sleep(interval / 2)
		r.Reload(r.Settings)
		e.happen(time.Now().Add(time.Second), 62)
		is(counts{"31": 7, "62": 1})
	})
}

const (
	seenFamily   = "DCGM_EXP_XID_LAST_SEEN_TIMESTAMP_SECONDS"
	detailFamily = "DCGM_EXP_XID_DETAILS_TOTAL"
	sxidFamily   = "DCGM_EXP_NVSWITCH_SXID_ERRORS_TOTAL"
	sxidSeen     = "dcgm_nvswitch_sxid_last_seen_timestamp_seconds"
)

// An XID from before the start updates the timestamp and is not counted. Its GPU may appear later. The engine's
// reports update the timestamp as well, even for the period in which the kernel log is read.
func TestXIDsFromBeforeStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, log, seen := newEngine(), readLog(), &figures{}
		r := start(t, e.Open, func(o *loop.Options) {
			families(xidTotalFamily, xidCountFamily, seenFamily)(o)
			seen.watch(o)
			o.KernelLog = log
		})
		hourAgo := time.Now().Add(-time.Hour)
		for _, bus := range []string{"00000000:1B:00.0", "00000000:1C:00.0"} {
			log.report(gpu.XID{PCIBusID: bus, Code: 79, Time: hourAgo.UnixNano(), Past: true})
		}
		r.Wait(interval)
		r.Has(lastSeen(0, 79, hourAgo), gauge(0, 0), inWindow(0, "", 0))
		seen.are(t, counts{})

		e.become(gpusAt("GPU-0", "GPU-1"))
		e.happen(time.Now(), 119) // not in the kernel log
		reported := time.Now()
		r.Wait(interval)
		r.Has(lastSeen(0, 79, hourAgo), lastSeen(1, 79, hourAgo), lastSeen(0, 119, reported))
		seen.are(t, counts{})

		log.happen(time.Now(), 79)
		again := time.Now()
		r.Wait(interval)
		r.Has(lastSeen(0, 79, again), lastSeen(1, 79, hourAgo))
		seen.are(t, counts{"79": 1})
	})
}

// Details of XIDs, and SXIDs, are counted from the kernel log. The number of series is bounded.
func TestDetails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := readLog()
		r := start(t, newEngine().Open, func(o *loop.Options) {
			families(xidTotalFamily, detailFamily, sxidFamily, sxidSeen)(o)
			o.KernelLog = log
		})
		holds := func(family string, sum int64, series int) {
			t.Helper()
			got := int64(0)
			for _, line := range r.Lines(family) {
				n, err := strconv.ParseInt(line[strings.LastIndex(line, " ")+1:], 10, 64)
				if err != nil {
					t.Fatalf("line %q: value is not an integer: %v", line, err)
				}
				got, series = got+n, series-1
			}
			if got != sum || series != 0 {
				t.Errorf("%s: sum = %d, want %d; missing series = %d, want 0", family, got, sum, series)
			}
		}
		detail := func(code int64, d gpu.XIDDetail) {
			log.report(gpu.XID{PCIBusID: "00000000:1B:00.0", Code: code, Time: time.Now().UnixNano(), Detail: d})
		}
		link := gpu.XIDDetail{Unit: "NETIR_LINK_EVT", SubCode: "4", Link: "8", Severity: "fatal"}
		detail(149, link)
		detail(149, link)
		detail(149, gpu.XIDDetail{Unit: "NETIR", SubCode: "0", Severity: "fatal"})
		detail(154, gpu.XIDDetail{Action: "gpu_reset"})
		detail(145, gpu.XIDDetail{}) // details that could not be parsed
		at := time.Now().Add(-time.Hour)
		sxid := func(of uint32, code int64, severity, link string) gpu.XID {
			d := gpu.XIDDetail{Severity: severity, Link: link}
			return gpu.XID{OnSwitch: true, Switch: of, Code: code, Detail: d, Time: at.UnixNano()}
		}
		past, other := sxid(3, 20034, "fatal", "30"), sxid(2, 20034, "fatal", "")
		for _, x := range []*gpu.XID{&past, &other} {
			x.Time, x.Past = at.Add(-time.Hour).UnixNano(), true
		}
		log.report(sxid(3, 20034, "fatal", "30"), sxid(0, 10004, "nonfatal", ""), past, other)
		r.Wait(interval)
		const of3 = "{-1}[{nvswitch nvswitch3} {sxid 20034} {severity fatal} {link 30}] "
		const of2 = "{-1}[{nvswitch nvswitch2} {sxid 20034} {severity fatal}] "
		r.Has(fmt.Sprint(sxidSeen, of3, float64(at.Unix())),
			fmt.Sprint(sxidSeen, of2, float64(at.Add(-time.Hour).Unix())),
			sxidFamily+of2+"0", sxidFamily+of3+"1")
		r.Has(detailFamily+"{0}[{xid 149} {unit NETIR} {subcode 0} {severity fatal}] 1",
			detailFamily+"{0}[{xid 149} {unit NETIR_LINK_EVT} {subcode 4} {link 8} {severity fatal}] 2",
			detailFamily+"{0}[{xid 154} {action gpu_reset}] 1",
			sxidFamily+"{-1}[{nvswitch nvswitch0} {sxid 10004} {severity nonfatal}] 1",
			total(0, 145, 1))
		holds(detailFamily, 4, 3)
		for n := range 1000 {
			link.Link = strconv.Itoa(n)
			detail(149, link)
			log.report(sxid(uint32(n%200), int64(1+n), "fatal", ""))
		}
		r.Wait(interval)
		holds(detailFamily, 1004, 129)
		holds(sxidFamily, 1002, 129)
		r.Has(sxidFamily + "{-1}[{sxid other}] 875")
	})
}
