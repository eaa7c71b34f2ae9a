package events_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/loop"
)

// cutNode returns a GPU that may be shared, and a GPU with instances.
func cutNode() *gpu.Topology {
	return gpu.NewTopology(append(gpusAt("GPU-0", "GPU-1").Devices, gpu.Device{
		Entity: gpu.Entity{Kind: gpu.KindGPUInstance, ID: 7, ParentKind: gpu.KindGPU, Parent: 1},
		GPU:    1, UUID: "GPU-1", InstanceID: 1,
	}))
}

func TestXIDOwner(t *testing.T) {
	holds := func(row int, pods ...string) *gpu.Owners {
		o := &gpu.Owners{Labels: make([][]gpu.Label, 3), Uses: make([]gpu.Use, 3)}
		for _, pod := range pods {
			o.Uses[row].Owners = append(o.Uses[row].Owners, gpu.Owner{
				Namespace: "n", Pod: pod, PodUID: "uid-" + pod, Container: "c",
				Labels: []gpu.Label{{Name: "app", Value: "x"}},
			})
			o.Labels[row] = []gpu.Label{{Name: "pod", Value: pod}}
		}
		if len(pods) > 1 {
			o.Uses[row].Sharing, o.Labels[row] = gpu.SharingTimeSlicing, nil
		}
		return o
	}
	a, b, both, onInstance := holds(0, "a"), holds(0, "b"), holds(0, "a", "b"), holds(2, "b")
	const ofB = "31 app=x container=c namespace=n pod=b"
	const during = 3 * time.Second
	kernel := func(bus string, pods ...string) *gpu.XID {
		x := onBus(bus, 31, time.Unix(0, int64(during)))
		x.PodUIDs = pods
		return &x
	}
	const byTheRead = -1 // stands for the time of the Read that reports the XID
	for name, test := range map[string]struct {
		before, now *gpu.Owners   // in the cycle before the report, and in that of the report
		engine      time.Duration // since the first of the two cycles; 0 if the engine reports nothing
		kernel      *gpu.XID
		want        string
	}{
		"one owner all the time":                  {a, a, during, nil, "31 pod=a"},
		"the owner when the XID occurred":         {a, b, during, nil, "31 pod=a"},
		"an owner that has ended since":           {a, nil, during, nil, "31 pod=a"},
		"no owner when the XID occurred":          {nil, b, during, nil, "31"},
		"an XID from before the exporter started": {a, a, -during, nil, "31"},
		"an XID with the time of the Read":        {a, b, byTheRead, nil, "31 pod=a"},
		"an XID from the kernel log":              {a, b, 0, kernel("1b"), "31 pod=a"},
		"the kernel log names a process":          {a, a, 0, kernel("1b", "uid-b"), "31 pod=a"},
		"shared, with a process":                  {both, both, 0, kernel("1b", "uid-b"), ofB},
		"shared, reported by both":                {both, both, during, kernel("1b", "uid-b"), ofB},
		"shared, no process":                      {both, both, 0, kernel("1b"), "31"},
		"shared, a process of another pod":        {both, both, 0, kernel("1b", "uid-elsewhere"), "31"},
		"shared, a pod within a node's pod":       {both, both, 0, kernel("1b", "uid-node", "uid-b", "uid-a"), ofB},
		"shared, a pod that has ended since":      {both, a, 0, kernel("1b", "uid-b"), ofB},
		"an instance, with a process":             {onInstance, onInstance, 0, kernel("1c", "uid-b"), "row 1 " + ofB},
		"an instance, without a process":          {onInstance, onInstance, 0, kernel("1c"), "row 1 31"},
		"an instance of another GPU":              {onInstance, onInstance, 0, kernel("1b", "uid-b"), "31"},
	} {
		for _, late := range []time.Duration{0, 3 * interval} {
			t.Run(fmt.Sprint(name, ", reported after ", late), func(t *testing.T) {
				bubble(t, func(t *testing.T, r *rig) {
					r.topology = cutNode()
					begin := time.Now()
					happen := func() {
						switch test.engine {
						case 0:
						case byTheRead:
							at := begin.Add(interval + late).UnixNano()
							r.add(gpu.XID{Code: 31, ID: 1, Time: at, Since: begin.UnixNano()})
						default:
							r.happen(begin.Add(test.engine), 31)
						}
					}
					if test.engine == -during {
						happen()
					}
					owner := test.before
					r.start(families(xidTotalFamily), r.withLog(test.kernel != nil), owned(func() *gpu.Owners {
						reported := owner
						owner = test.now
						return reported
					}))
					r.Wait(late)
					if test.engine != -during {
						happen()
					}
					if x := test.kernel; x != nil {
						logged := *x
						logged.Time += begin.UnixNano()
						r.log(logged)
					}
					r.counted(counts{test.want: 1})
				})
			})
		}
	}
}

// XIDs that name a GPU instance are attributed to the GPU and to the instance's owner. Two XIDs on two instances are
// distinct even if their time and code are equal.
func TestXIDsOnInstances(t *testing.T) {
	for name, kernel := range map[string]bool{"engine": false, "kernel": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.topology = cutNode()
				ofInstance := &gpu.Owners{Labels: [][]gpu.Label{nil, nil, {{Name: "pod", Value: "a"}}}}
				r.start(families(xidTotalFamily, xidCountFamily), r.withLog(kernel),
					owned(func() *gpu.Owners { return ofInstance }))
				now := time.Now()
				happen := func(code int64, on bool, instance uint32) {
					x := gpu.XID{Row: 1, Code: code, ID: 1, Time: now.UnixNano(), OnInstance: on, InstanceID: instance}
					r.add(x)
					x.Row, x.PCIBusID = 0, "00000000:1C:00.0"
					r.log(x)
				}
				happen(43, true, 1)
				happen(43, true, 1)
				happen(43, true, 2) // this instance has no row
				happen(43, false, 0)
				happen(94, false, 0)
				r.counted(counts{"row 1 43 on 1 pod=a": 2, "row 1 43 on 2": 1, "row 1 43": 1, "row 1 94": 1})
				r.Has(gauge(1, 94), inWindow(1, "{GPU_I_ID 1} {xid 43}", 2), inWindow(1, "{GPU_I_ID 2} {xid 43}", 1),
					inWindow(1, "{xid 43}", 1), inWindow(1, "{xid 94}", 1))
				r.HasNot(xidCountFamily + "{2}")
			})
		})
	}
}

// Strict mode shows the last XID of an instance only on that instance, and the last XID of the GPU only on the GPU.
// DCGM stores them this way. Otherwise an alert would also fire for other pods on the GPU. A GPU has no gauge before
// its first XID, as in NVIDIA's exporter.
func TestStrictLastXIDs(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.topology = cutNode()
		r.start(func(o *loop.Options) { o.Strict = true })
		r.HasNot("XID{")
		happen := func(at time.Time, code int64, on bool, instance uint32) {
			r.add(gpu.XID{
				Row: 1, Code: code, ID: at.UnixMicro(), Time: at.UnixNano(), OnInstance: on, InstanceID: instance,
			})
		}
		happen(time.Now(), 43, true, 1)
		happen(time.Now(), 13, true, 9) // this instance has no row
		r.happen(time.Now(), 31)
		r.Wait(interval)
		r.Has(gauge(0, 31), gauge(2, 43))
		r.HasNot("XID{1}")
		for i := range int64(20) { // more instances than a GPU has
			happen(time.Now(), 31, true, uint32(100+i))
		}
		happen(time.Now(), 79, false, 0)
		happen(time.Now().Add(-interval), 94, false, 0) // reported late
		happen(time.Now(), 45, true, 1)
		r.Wait(interval)
		r.Has(gauge(0, 31), gauge(1, 79), gauge(2, 45))
		if lines := r.Lines("XID"); len(lines) != 3 {
			t.Errorf("lines = %q, want only the series above", lines)
		}
	})
}

// An XID that is reported late, with an earlier date than another one, is counted. The gauge still shows the newest
// XID.
func TestLateXIDs(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start(families(xidTotalFamily, xidCountFamily))
		r.happen(time.Now().Add(interval/2), 31)
		r.Wait(interval)
		r.happen(time.Now().Add(-interval), 79)
		r.Wait(interval)
		r.Has(gauge(0, 31), total(0, 79, 1), total(0, 31, 1), inWindow(0, "{xid 79}", 1))
		r.Wait(5*time.Minute - 2*interval)
		r.Has(inWindow(0, "{xid 31}", 1))
		r.HasNot(xidCountFamily + "{0}[{window_size_in_ms 300000} {xid 79}]")
	})
}

// The series of the least recently seen owners are merged into the series without an owner. The sum does not change.
func TestOldOwnersAreMerged(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		const owners, kept = 40, 32
		var pod atomic.Int64
		r.start(families(xidTotalFamily), owned(func() *gpu.Owners { return ofPod(pod.Load()) }))
		for i := range owners {
			pod.Store(int64(i))
			r.Wait(interval)
			r.happen(time.Now(), 31)
		}
		want := counts{"31": owners - kept}
		for i := owners - kept; i < owners; i++ {
			want[fmt.Sprint("31 pod=", i)] = 1
		}
		r.counted(want)
	})
}

// An engine reports more XIDs than the exporter can remember, first to a new session and then again. None is counted
// twice.
func TestMoreReportsThanRemembered(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		const many = 10000
		r.keeps = true
		for i := range many {
			r.happen(time.Now().Add(time.Duration(i)*time.Microsecond), 31)
		}
		r.start(families(xidTotalFamily))
		r.Wait(interval)
		r.happen(time.Now(), 31, 31)
		r.Reload(r.Settings)
		r.counted(counts{"31": many + 2})
	})
}

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
		bubble(t, func(t *testing.T, r *rig) {
			r.start(families(xidCountFamily, xidTotalFamily))
			r.happen(time.Now(), 79)
			r.Wait(interval)
			r.become(gpusAt("GPU-1"))
			r.Wait(away)
			r.become(gpusAt("GPU-1", "GPU-0"))
			r.Has(gauge(1, want), total(1, 79, 1))
			if want == 0 {
				r.Has(inWindow(1, "", 0))
			} else {
				r.Has(inWindow(1, "{xid 79}", 1))
			}
			r.add(gpu.XID{Code: 48, ID: 1, Time: time.Now().UnixNano()}) // of a GPU that stays
			r.Wait(6 * time.Minute)
			r.become(gpusAt("GPU-1"))
			r.Has(gauge(0, 48), inWindow(0, "", 0))
		})
	}
}

// An XID in the kernel log belongs to the GPU that is at its bus address, or was there last. If there never was one,
// the XID is reported as dropped.
func TestGPUsOfTheKernelLog(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.topology = gpusAt("GPU-0")
		r.start(families(xidTotalFamily), r.withLog(true))
		report := func(bus string) {
			r.log(onBus(bus, 79, time.Now()))
			r.Wait(interval)
		}
		report("1b") // belongs to GPU-0
		r.become(gpusAt("GPU-1"))
		report("1B") // belongs to GPU-1, which replaced it
		r.become(gpusAt("GPU-2"))
		r.become(gpusAt("GPU-1", "GPU-3"))
		r.become(gpusAt("GPU-2"))
		report("1c") // belongs to GPU-3, which is missing now
		r.become(gpusAt())
		report("1b") // belongs to GPU-2, which was there last
		report("aa")
		r.Metric("dcgm_exporter_xids_unplaced_total{} 1")
		r.become(gpusAt("GPU-0", "GPU-1", "GPU-2", "GPU-3"))
		for row := range 4 {
			r.Has(fmt.Sprintf("%s{%d}[{xid 79}] 1", xidTotalFamily, row))
		}
	})
}

// A GPU whose XIDs no source reports has no series, not even a zero.
func TestNoZeroWithoutSource(t *testing.T) {
	for _, hasLog := range []bool{false, true} {
		bubble(t, func(t *testing.T, r *rig) {
			r.topology = gpusAt("GPU-0", "GPU-1")
			r.read = func(b *gpu.Batch) error {
				b.Fail(1, 1, gpu.ErrNotSupported)
				return nil
			}
			r.start(families(xidTotalFamily), r.withLog(hasLog))
			if r.Has(total(0, 79, 0)); hasLog {
				r.Has(total(1, 79, 0))
			} else {
				r.HasNot(xidTotalFamily + "{1}")
			}
		})
	}
}

// Memory is bounded even in a storm of XIDs, and the counter still includes all of them.
func TestStormInTheWindow(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.start(families(xidCountFamily, xidTotalFamily))
		for i := range 5000 {
			r.happen(time.Now().Add(time.Duration(i)*time.Millisecond), 31)
		}
		r.Wait(interval)
		r.Has(inWindow(0, "{xid 31}", 4096), total(0, 31, 5000))
		r.Metric(fmt.Sprint("dcgm_exporter_events_dropped_total{reason=full,what=window} ", 5000-4096))
	})
}
