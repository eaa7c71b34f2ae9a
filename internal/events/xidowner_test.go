package events_test

import (
	"fmt"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/events"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/loop"
)

// counts maps an XID and its owner to a number.
type counts = map[string]int64

// figures holds the values of DCGM_EXP_XID_ERRORS_TOTAL on the latest page, such as "79" without an owner and "79
// pod=a" with one. Zeros are left out.
type figures struct {
	mu   sync.Mutex
	xid  counts
	sum  int64
	fell bool // whether the sum ever fell
}

// watch records the pages of a loop.
func (f *figures) watch(o *loop.Options) {
	publish := o.Publish
	o.Publish = func(s *gpu.Snapshot) {
		publish(s)
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(s.Families) == 0 {
			return
		}
		before := f.sum
		f.xid, f.sum = counts{}, 0
		defer func() { f.fell = f.fell || f.sum < before }()
		for _, family := range s.Families {
			if family.Name != xidTotalFamily {
				continue
			}
			for _, x := range family.Series {
				key := x.Labels[len(x.Labels)-1].Value
				if len(x.Labels) > 1 {
					key += " on " + x.Labels[0].Value
				}
				if x.Row > 0 {
					key = fmt.Sprint("row ", x.Row, " ", key)
				}
				for _, label := range x.Owner {
					key += " " + label.Name + "=" + label.Value
				}
				if n, _ := x.Value.Int64(); n > 0 {
					f.xid[key] += n
					f.sum += n
				}
			}
		}
	}
}

func (f *figures) now() counts {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.xid)
}

func (f *figures) are(t *testing.T, want counts) {
	t.Helper()
	if diff := cmp.Diff(want, f.now()); diff != "" {
		t.Errorf("XIDs counted (-want +got)\n%s", diff)
	}
}

// watchTotals is like watch, and also requests the counter of XIDs.
func (f *figures) watchTotals(o *loop.Options) {
	families(xidTotalFamily)(o)
	f.watch(o)
}

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
		return &gpu.XID{PCIBusID: "00000000:" + bus + ":00.0", Code: 31, PodUIDs: pods, Time: int64(during)}
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
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, log, seen := newEngine(), readLog(), &figures{}
				e.topology = cutNode()
				begin := time.Now()
				report := func() {
					switch test.engine {
					case 0:
					case byTheRead:
						e.add(gpu.XID{Code: 31, ID: 1, Time: begin.Add(interval).UnixNano(), Since: begin.UnixNano()})
					default:
						e.happen(begin.Add(test.engine), 31)
					}
					if x := test.kernel; x != nil {
						x.Time += begin.UnixNano()
						log.report(*x)
					}
				}
				if test.engine == -during {
					report()
				}
				owner := test.before
				r := start(t, e.Open, func(o *loop.Options) {
					seen.watchTotals(o)
					if test.kernel != nil {
						o.KernelLog = log
					}
					o.Attributors = pods(func() *gpu.Owners {
						reported := owner
						owner = test.now
						return reported
					})
				})
				if test.engine != -during {
					report()
				}
				r.Wait(interval)
				seen.are(t, counts{test.want: 1})
			})
		})
	}
}

// XIDs that name a GPU instance are attributed to the GPU and to the instance's owner. Two XIDs on two instances are
// distinct even if their time and code are equal.
func TestXIDsOnInstances(t *testing.T) {
	for name, kernel := range map[string]bool{"engine": false, "kernel": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, log, seen := newEngine(), readLog(), &figures{}
				e.topology = cutNode()
				owned := &gpu.Owners{Labels: [][]gpu.Label{nil, nil, {{Name: "pod", Value: "a"}}}}
				r := start(t, e.Open, func(o *loop.Options) {
					families(xidTotalFamily, xidCountFamily)(o)
					seen.watch(o)
					if kernel {
						o.KernelLog = log
					}
					o.Attributors = pods(func() *gpu.Owners { return owned })
				})
				now := time.Now()
				happen := func(code int64, on bool, instance uint32) {
					x := gpu.XID{Row: 1, Code: code, ID: 1, Time: now.UnixNano(), OnInstance: on, InstanceID: instance}
					e.add(x)
					x.Row, x.PCIBusID = 0, "00000000:1C:00.0"
					log.report(x)
				}
				happen(43, true, 1)
				happen(43, true, 1)
				happen(43, true, 2) // this instance has no row
				happen(43, false, 0)
				happen(94, false, 0)
				r.Wait(interval)
				seen.are(t, counts{"row 1 43 on 1 pod=a": 2, "row 1 43 on 2": 1, "row 1 43": 1, "row 1 94": 1})
				r.Has(gauge(1, 94), inWindow(1, "{GPU_I_ID 1} {xid 43}", 2), inWindow(1, "{GPU_I_ID 2} {xid 43}", 1),
					inWindow(1, "{xid 43}", 1), inWindow(1, "{xid 94}", 1))
				r.HasNot(xidCountFamily + "{2}")
			})
		})
	}
}

// In strict mode, the last XID of an instance appears only on that instance, and the last XID of the GPU only on the
// GPU. DCGM stores them this way. Otherwise an alert would also fire for other pods on the GPU.
func TestStrictLastXIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine()
		e.topology = cutNode()
		r := start(t, e.Open, func(o *loop.Options) { o.Strict = true })
		happen := func(at time.Time, code int64, on bool, instance uint32) {
			e.add(gpu.XID{
				Row: 1, Code: code, ID: at.UnixMicro(), Time: at.UnixNano(), OnInstance: on, InstanceID: instance,
			})
		}
		happen(time.Now(), 43, true, 1)
		happen(time.Now(), 13, true, 9) // this instance has no row
		r.Wait(interval)
		r.Has(gauge(2, 43))
		r.HasNot("XID{1}")
		for i := range int64(20) { // more instances than a GPU has
			happen(time.Now(), 31, true, uint32(100+i))
		}
		happen(time.Now(), 79, false, 0)
		happen(time.Now().Add(-interval), 94, false, 0) // reported late
		happen(time.Now(), 45, true, 1)
		r.Wait(interval)
		r.Has(gauge(1, 79), gauge(2, 45))
		if lines := r.Lines("XID"); len(lines) != 2 {
			t.Errorf("lines = %q, want only the two series above", lines)
		}
	})
}

// An XID that is reported late, with an earlier date than another one, is counted. The gauge still shows the newest
// XID.
func TestLateXIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine()
		r := start(t, e.Open, families(xidTotalFamily, xidCountFamily))
		e.happen(time.Now().Add(interval/2), 31)
		r.Wait(interval)
		e.happen(time.Now().Add(-interval), 79)
		r.Wait(interval)
		r.Has(gauge(0, 31), total(0, 79, 1), total(0, 31, 1), inWindow(0, "{xid 79}", 1))
		r.Wait(5*time.Minute - 2*interval)
		r.Has(inWindow(0, "{xid 31}", 1))
		r.HasNot(xidCountFamily + "{0}[{window_size_in_ms 300000} {xid 79}]")
	})
}

// The series of the least recently seen owners are merged into the series without an owner. The sum does not change.
func TestOldOwnersAreMerged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const owners, kept = 40, 32
		e, seen := newEngine(), &figures{}
		var pod atomic.Int64
		r := start(t, e.Open, func(o *loop.Options) {
			seen.watchTotals(o)
			o.Attributors = pods(func() *gpu.Owners {
				return ofPod(strconv.FormatInt(pod.Load(), 10))
			})
		})
		for i := range owners {
			pod.Store(int64(i))
			r.Wait(interval)
			e.happen(time.Now(), 31)
		}
		r.Wait(interval)
		want := counts{"31": owners - kept}
		for i := owners - kept; i < owners; i++ {
			want[fmt.Sprint("31 pod=", i)] = 1
		}
		seen.are(t, want)
	})
}

// An engine reports more XIDs than the exporter can remember, first to a new session and then again. None is counted
// twice.
func TestMoreReportsThanRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 10000
		e, seen := newEngine(), &figures{}
		e.keeps = true
		for i := range many {
			e.happen(time.Now().Add(time.Duration(i)*time.Microsecond), 31)
		}
		r := start(t, e.Open, seen.watchTotals)
		r.Wait(interval)
		e.happen(time.Now(), 31, 31)
		r.Reload(r.Settings)
		r.Wait(interval)
		seen.are(t, counts{"31": many + 2})
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
	})
}
