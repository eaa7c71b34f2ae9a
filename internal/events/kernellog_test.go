package events_test

import (
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
		r.Stop()
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
		r.Stop()
	})
}
