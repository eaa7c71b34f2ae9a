package events_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/loop"
)

// XIDs and clock event reasons are counted even if they are the first field of the plan.
func TestEventsOfTheFirstField(t *testing.T) {
	first := func(field func(*loop.Options)) func(*loop.Options) {
		return func(o *loop.Options) {
			field(o)
			o.Plan.Fields, o.Plan.Counters = o.Plan.Fields[1:], nil
			for i := range o.Plan.Derived {
				o.Plan.Derived[i].Field = 0
			}
		}
	}
	synctest.Test(t, func(t *testing.T) {
		e := newEngine()
		r := start(t, e.Open, first(families(xidTotalFamily, xidCountFamily)))
		e.happen(time.Now(), 62)
		r.Wait(interval)
		r.Has(total(0, 62, 1), inWindow(0, "{xid 62}", 1))
		r.Stop()
	})
	synctest.Test(t, func(t *testing.T) {
		const powerCap = 4
		e := newEngine()
		r := start(t, e.Open, first(clockFamilies(clockTotalFamily)))
		begin := time.Now()
		e.do(func() {
			for n, mask := range []int64{0, powerCap, 0} {
				at := begin.Add(time.Duration(n) * time.Second)
				e.reasons = append(e.reasons, gpu.Sample{Value: gpu.Int(mask), Time: at.UnixNano()})
			}
		})
		r.Wait(interval)
		r.Has(clockTotalFamily + "{0}[{clock_event power_cap}] 1")
		r.Stop()
	})
}

// After the clock is set back, the XIDs from before are in the future. The gauge shows the newest of the other XIDs.
func TestNewestXIDAfterAClockIsSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine()
		var back atomic.Int64
		now := func() time.Time { return time.Now().Add(-time.Duration(back.Load())) }
		r := start(t, e.Open, func(o *loop.Options) {
			families(xidTotalFamily)(o)
			o.Now = now
		})
		e.happen(now(), 62)
		r.Wait(interval)
		r.Has(gauge(0, 62))
		back.Store(int64(time.Hour))
		e.happen(now(), 31)
		r.Wait(interval)
		r.Has(gauge(0, 31))
		r.Stop()
	})
}

// The kernel log may name a pod that ended some cycles ago.
func TestXIDOfAnEarlierPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, log, seen := newEngine(), readLog(), &figures{}
		holder := func(pod string) *gpu.Owners {
			owner := gpu.Owner{Namespace: "n", Pod: pod, PodUID: "uid-" + pod, Container: "c"}
			return &gpu.Owners{
				Labels: [][]gpu.Label{nil},
				Uses:   []gpu.Use{{Sharing: gpu.SharingTimeSlicing, Owners: []gpu.Owner{owner}}},
			}
		}
		var owners atomic.Pointer[gpu.Owners]
		owners.Store(holder("a"))
		r := start(t, e.Open, func(o *loop.Options) {
			seen.watchTotals(o)
			o.KernelLog = log
			o.Attributors = pods(owners.Load)
		})
		r.Wait(interval)
		owners.Store(holder("b"))
		r.Wait(3 * interval)
		log.report(gpu.XID{
			PCIBusID: "00000000:1B:00.0", Code: 31, PodUIDs: []string{"uid-a"}, Time: time.Now().UnixNano(),
		})
		r.Wait(interval)
		r.Stop()
		seen.are(t, counts{"31 container=c namespace=n pod=a": 1})
	})
}

// The counts of 256 GPUs are kept. Beyond that, the GPU that has been absent longest is forgotten.
func TestGPUsThatAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name := func(n int) string { return "GPU-" + string(rune('a'+n/26)) + string(rune('a'+n%26)) }
		e := newEngine()
		e.topology = gpusAt(name(0))
		r := start(t, e.Open, families(xidTotalFamily))
		for n := range 257 {
			if n > 0 {
				e.become(gpusAt(name(n)))
			}
			e.happen(time.Now(), 79)
			r.Wait(interval)
		}
		e.become(gpusAt(name(0), name(1), name(256)))
		r.Has(total(0, 79, 0), total(1, 79, 1), total(2, 79, 1))
		var many []string
		for n := range 300 {
			many = append(many, name(n))
		}
		e.become(gpusAt(many...))
		r.Has(total(256, 79, 1), total(299, 79, 0))
		r.Stop()
	})
}
