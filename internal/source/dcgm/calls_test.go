//go:build linux && cgo

package dcgm_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/etc"
	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/dcgm"
	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
)

// gpusOf returns a script of n GPUs without MIG that have a value of every field.
func gpusOf(n int, more ...string) []string {
	lines := slices.Concat(versions, []string{"value any:* 100-999 int 4", "value any:* 1000-1100 double 0.5"})
	for id := range n {
		line := "gpu %d uuid=GPU-%d name=H100 bus=00000000:%02X:00.0 prof=1001-1012"
		lines = append(lines, fmt.Sprintf(line, id, id, id+1))
	}
	return append(lines, more...)
}

// shippedPlan returns the plan of the default counters file.
func shippedPlan(t *testing.T, every time.Duration) *gpu.Plan {
	t.Helper()
	requests, problems, err := counters.Parse(bytes.NewReader(etc.Default()), etc.DefaultName)
	if err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
	return counters.NewPlan(requests, gpu.Plan{Interval: every, Devices: gpu.Selector{Flex: true}})
}

// callsOf returns the calls made by do.
func callsOf(e *fakedcgm.Engine, do func()) map[string]int64 {
	before := e.Calls()
	do()
	calls := e.Calls()
	maps.DeleteFunc(calls, func(f string, n int64) bool { calls[f] -= before[f]; return calls[f] == 0 })
	return calls
}

// With the default counters file, a cycle is one call to the engine, whatever the number of GPUs and the sampling of
// XIDs and profiling fields. Its cost does not grow with the number of GPUs.
func TestCycleIsOneCall(t *testing.T) {
	const cycles = 40
	for _, gpus := range []int{1, 8, 32} {
		t.Run(fmt.Sprint(gpus), func(t *testing.T) {
			e := fakedcgm.New(t, gpusOf(gpus)...)
			plan := shippedPlan(t, interval)
			s := open(t, e, plan, dcgm.Options{Remote: engineAt("unix:///run/dcgm.sock")})
			if n := e.Count("unbounded.watches"); n != 0 {
				t.Errorf("watches without a limit = %d, want 0", n)
			}
			isServed := func(b *gpu.Batch, _ error) bool { return len(b.Faults) == 0 && len(b.Samples) == 25*gpus }
			readUntil(t, s, "profiling values", isServed)
			cost := e.Count("cost.microseconds")
			calls := callsOf(e, func() {
				for range cycles {
					read(t, s)
					pause()
				}
			})
			if calls["dcgmGetLatestValues_v2"] != cycles {
				t.Errorf("batched calls = %d in %d cycles, want one per cycle", calls["dcgmGetLatestValues_v2"], cycles)
			}
			delete(calls, "dcgmGetLatestValues_v2")
			// The topology is inspected at most every fifth interval.
			inspections := calls["dcgmGetAllSupportedDevices"]
			if inspections == 0 || inspections > cycles/5 {
				t.Errorf("inspections = %d in %d cycles, want 1 to one in five", inspections, cycles)
			}
			want := map[string]int64{
				"dcgmGetAllSupportedDevices":  inspections,
				"dcgmGetEntityGroupEntities":  inspections,
				"dcgmGetGpuInstanceHierarchy": inspections,
			}
			checkEqual(t, "other calls", want, calls)
			if each := (e.Count("cost.microseconds") - cost) / cycles; each > 500 {
				t.Errorf("a cycle takes %d µs in libdcgm, want at most 500 µs", each)
			}
			if n := e.Count("live.reads"); n != 0 {
				t.Errorf("live reads = %d, want 0", n)
			}
		})
	}
}

// A cycle does not allocate memory for each sample.
func TestCycleAllocatesLittle(t *testing.T) {
	s := open(t, fakedcgm.New(t, gpusOf(32)...), shippedPlan(t, time.Hour), dcgm.Options{})
	var b gpu.Batch
	allocations := testing.AllocsPerRun(20, func() {
		b.Reset()
		if err := s.Read(t.Context(), gpu.ReadRequest{}, &b); err != nil {
			t.Fatal(err)
		}
	})
	if len(b.Samples) < 500 || allocations > 50 {
		t.Errorf("a cycle with %d samples makes %v allocations, want at least 500 samples and at most 50 allocations",
			len(b.Samples), allocations)
	}
}

// An XID causes one more call in its cycle, for its GPU only, not for the other 31 GPUs. The cycles of the next seconds
// make the same call, because late XIDs may follow.
func TestXIDCostsItsGPU(t *testing.T) {
	e := fakedcgm.New(t, gpusOf(32)...)
	s := open(t, e, shippedPlan(t, time.Hour), dcgm.Options{})
	read(t, s)
	e.Add("event 1 gpu:7 230 62", "event 2 gpu:7 230 45")
	var b *gpu.Batch
	cost := e.Count("cost.microseconds")
	calls := callsOf(e, func() { b = read(t, s) })
	want := map[string]int64{
		"dcgmGetLatestValues_v2": 1, "dcgmGetValuesSince_v2": 1,
		"dcgmGroupCreate": 1, "dcgmGroupAddEntity": 1, "dcgmGroupDestroy": 1,
	}
	checkEqual(t, "calls", want, calls)
	if spent := e.Count("cost.microseconds") - cost; spent > 2000 {
		t.Errorf("the call takes %d µs in libdcgm, want at most 2000 µs", spent)
	}
	var xids []string
	for _, x := range b.XIDs {
		xids = append(xids, fmt.Sprint(s.Topology().Devices[x.Row].Entity, " ", x.Code))
	}
	checkEqual(t, "XIDs", []string{"GPU 7 62", "GPU 7 45"}, xids)
	if diff := cmp.Diff(want, callsOf(e, func() { b = read(t, s) })); diff != "" || len(b.XIDs) > 0 {
		t.Errorf("next cycle: XIDs = %v, want none; calls (-want +got):\n%s", b.XIDs, diff)
	}
}

// If the engine has no room for another group, the histories of all GPUs are read, and no XID is lost.
func TestXIDWithoutRoomForAGroup(t *testing.T) {
	e := fakedcgm.New(t, gpusOf(4)...)
	s := open(t, e, xidPlan(), dcgm.Options{})
	read(t, s)
	e.Add("fail dcgmGroupCreate -24", "event 1 gpu:2 230 62", "event 2 gpu:2 230 45")
	got := map[int64]int{}
	for _, x := range read(t, s).XIDs {
		got[x.Code]++
	}
	checkEqual(t, "XIDs", map[int64]int{62: 1, 45: 1}, got)
}

// An XID that could not be read in one cycle is read in the next.
func TestXIDAfterATimeout(t *testing.T) {
	e := fakedcgm.New(t, gpusOf(2)...)
	s := open(t, e, xidPlan(), dcgm.Options{})
	read(t, s)
	e.Add("fail dcgmGetValuesSince_v2 -11 1", "event 1 gpu:1 230 62", "event 2 gpu:1 230 45")
	first := read(t, s)
	checkEqual(t, "batch", []string{"GPU 0 #0 4", "GPU 1 #0 4", "GPU 1 #1 timeout"}, shown(s, first))
	if got := shown(s, read(t, s)); !slices.Contains(got, "GPU 1 XID 62") || !slices.Contains(got, "GPU 1 XID 45") {
		t.Errorf("batch after the timeout = %v, want XIDs 62 and 45 of GPU 1", got)
	}
}
