package events_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/events"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/loop"
)

// gpusAt returns a topology of GPUs with these UUIDs, on consecutive PCI buses.
func gpusAt(uuids ...string) *gpu.Topology {
	var list []gpu.Device
	for i, uuid := range uuids {
		list = append(list, gpu.Device{
			Entity: gpu.Entity{Kind: gpu.KindGPU, ID: uint32(i)}, GPU: uint32(i), UUID: uuid,
			PCIBusID: fmt.Sprintf("00000000:%02X:00.0", 0x1b+i),
		})
	}
	return gpu.NewTopology(list)
}

// If a GPU is missing briefly, its XIDs stay in the window. If it is missing longer, its gauge is reset. Its counter
// continues in both cases.
func TestGPUReturns(t *testing.T) {
	for away, want := range map[time.Duration]int64{time.Minute: 79, 6 * time.Minute: 0} {
		synctest.Test(t, func(t *testing.T) {
			e := newEngine()
			r := start(t, e.Open, families(xidCountFamily, xidTotalFamily))
			e.happen(time.Now(), 79)
			r.Wait(interval)
			e.become(gpusAt("GPU-1"))
			r.Wait(away)
			e.become(gpusAt("GPU-1", "GPU-0"))
			r.Has(gauge(1, want), total(1, 79, 1))
			if want == 0 {
				r.Has(inWindow(1, "", 0))
			} else {
				r.Has(inWindow(1, "{xid 79}", 1))
			}
			e.add(gpu.XID{Code: 48, ID: 1, Time: time.Now().UnixNano()}) // of a GPU that stays
			r.Wait(6 * time.Minute)
			e.become(gpusAt("GPU-1"))
			r.Has(gauge(0, 48), inWindow(0, "", 0))
			r.Stop()
		})
	}
}

// An XID in the kernel log belongs to the GPU that is at its bus address, or was there last. If there never was one,
// the XID is reported as dropped.
func TestGPUsOfTheKernelLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, log := newEngine(), readLog()
		e.topology = gpusAt("GPU-0")
		r := start(t, e.Open, func(o *loop.Options) {
			families(xidTotalFamily)(o)
			o.KernelLog = log
		})
		report := func(bus string) {
			log.report(gpu.XID{PCIBusID: "00000000:" + bus + ":00.0", Code: 79, Time: time.Now().UnixNano()})
			r.Wait(interval)
		}
		report("1b") // belongs to GPU-0
		e.become(gpusAt("GPU-1"))
		report("1B") // belongs to GPU-1, which replaced it
		e.become(gpusAt("GPU-2"))
		e.become(gpusAt("GPU-1", "GPU-3"))
		e.become(gpusAt("GPU-2"))
		report("1c") // belongs to GPU-3, which is missing now
		e.become(gpusAt())
		report("1b") // belongs to GPU-2, which was there last
		report("aa")
		r.Metric("dcgm_exporter_xids_unplaced_total{} 1")
		e.become(gpusAt("GPU-0", "GPU-1", "GPU-2", "GPU-3"))
		for row := range 4 {
			r.Has(fmt.Sprintf("%s{%d}[{xid 79}] 1", xidTotalFamily, row))
		}
		r.Stop()
	})
}

// A GPU whose XIDs no source reports has no series, not even a zero.
func TestNoZeroWithoutSource(t *testing.T) {
	for name, log := range map[string]events.KernelLog{"no log": nil, "a log": readLog()} {
		synctest.Test(t, func(t *testing.T) {
			e := newEngine()
			e.topology = gpusAt("GPU-0", "GPU-1")
			e.read = func(b *gpu.Batch) error {
				b.Fail(1, 1, gpu.ErrNotSupported)
				return nil
			}
			r := start(t, e.Open, func(o *loop.Options) {
				families(xidTotalFamily)(o)
				o.KernelLog = log
			})
			r.Has(total(0, 79, 0))
			if log == nil {
				r.HasNot(xidTotalFamily + "{1}")
			} else if r.Has(total(1, 79, 0)); t.Failed() {
				t.Log(name)
			}
			r.Stop()
		})
	}
}

// Memory is bounded even in a storm of XIDs, and the counter still includes all of them.
func TestStormInTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine()
		r := start(t, e.Open, families(xidCountFamily, xidTotalFamily))
		for i := range 5000 {
			e.happen(time.Now().Add(time.Duration(i)*time.Millisecond), 31)
		}
		r.Wait(interval)
		r.Has(inWindow(0, "{xid 31}", 4096), total(0, 31, 5000))
		r.Metric(fmt.Sprint("dcgm_exporter_events_dropped_total{reason=full,what=window} ", 5000-4096))
		r.Stop()
	})
}
