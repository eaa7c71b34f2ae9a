//go:build linux && cgo

package dcgm_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/etc"
	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/dcgm"
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
func (r *rig) callsOf(do func()) map[string]int64 {
	before := r.e.Calls()
	do()
	calls := r.e.Calls()
	maps.DeleteFunc(calls, func(f string, n int64) bool { calls[f] -= before[f]; return calls[f] == 0 })
	return calls
}

// With the default counters file, a cycle is one call to the engine, whatever the number of GPUs and the sampling of
// XIDs and profiling fields. Its cost does not grow with the number of GPUs.
func TestCycleIsOneCall(t *testing.T) {
	const cycles = 40
	for _, gpus := range []int{1, 8, 32} {
		t.Run(fmt.Sprint(gpus), func(t *testing.T) {
			r := start(t, shippedPlan(t, interval), remoteEngine, gpusOf(gpus)...)
			if n := r.e.Count("unbounded.watches"); n != 0 {
				t.Errorf("watches without a limit = %d, want 0", n)
			}
			isServed := func(b *gpu.Batch, _ error) bool { return len(b.Faults) == 0 && len(b.Samples) == 25*gpus }
			r.until("profiling values", isServed)
			cost, begin := r.e.Count("cost.microseconds"), time.Now()
			calls := r.callsOf(func() {
				for range cycles {
					r.read()
					pause()
				}
			})
			if calls["dcgmGetLatestValues_v2"] != cycles {
				t.Errorf("batched calls = %d in %d cycles, want one per cycle", calls["dcgmGetLatestValues_v2"], cycles)
			}
			delete(calls, "dcgmGetLatestValues_v2")
			// The topology is inspected at most every fifth interval. On a busy machine, a cycle takes more than one.
			inspections, most := calls["dcgmGetAllSupportedDevices"], int64(time.Since(begin)/(5*interval))+1
			if inspections == 0 || inspections > most {
				t.Errorf("inspections = %d, want 1 to %d", inspections, most)
			}
			want := map[string]int64{
				"dcgmGetAllSupportedDevices":  inspections,
				"dcgmGetEntityGroupEntities":  inspections,
				"dcgmGetGpuInstanceHierarchy": inspections,
			}
			checkEqual(t, "other calls", want, calls)
			if each := (r.e.Count("cost.microseconds") - cost) / cycles; each > 500 {
				t.Errorf("a cycle takes %d µs in libdcgm, want at most 500 µs", each)
			}
			if n := r.e.Count("live.reads"); n != 0 {
				t.Errorf("live reads = %d, want 0", n)
			}
		})
	}
}

// A cycle does not allocate memory for each sample.
func TestCycleAllocatesLittle(t *testing.T) {
	r := start(t, shippedPlan(t, time.Hour), dcgm.Options{}, gpusOf(32)...)
	var b gpu.Batch
	allocations := testing.AllocsPerRun(20, func() {
		b.Reset()
		if err := r.Read(t.Context(), gpu.ReadRequest{}, &b); err != nil {
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
	r := start(t, shippedPlan(t, time.Hour), dcgm.Options{}, gpusOf(32)...)
	r.read()
	r.e.Add("event 1 gpu:7 230 62", "event 2 gpu:7 230 45")
	var b *gpu.Batch
	cost := r.e.Count("cost.microseconds")
	calls := r.callsOf(func() { b = r.read() })
	want := map[string]int64{
		"dcgmGetLatestValues_v2": 1, "dcgmGetValuesSince_v2": 1,
		"dcgmGroupCreate": 1, "dcgmGroupAddEntity": 1, "dcgmGroupDestroy": 1,
	}
	checkEqual(t, "calls", want, calls)
	if spent := r.e.Count("cost.microseconds") - cost; spent > 2000 {
		t.Errorf("the call takes %d µs in libdcgm, want at most 2000 µs", spent)
	}
	xids := slices.DeleteFunc(r.shown(b), func(line string) bool { return !strings.Contains(line, "XID") })
	checkEqual(t, "XIDs", []string{"GPU 7 XID 45", "GPU 7 XID 62"}, xids)
	if diff := cmp.Diff(want, r.callsOf(func() { b = r.read() })); diff != "" || len(b.XIDs) > 0 {
		t.Errorf("next cycle: XIDs = %v, want none; calls (-want +got):\n%s", b.XIDs, diff)
	}
}

// If the engine has no room for another group, the histories of all GPUs are read, and no XID is lost. An XID that
// could not be read in one cycle is read in the next.
func TestXIDsWhileACallFails(t *testing.T) {
	xids := []string{"GPU 0 #0 4", "GPU 1 #0 4", "GPU 1 XID 45", "GPU 1 XID 62"}
	for failure, want := range map[string][][]string{
		"dcgmGroupCreate -24":         {xids},
		"dcgmGetValuesSince_v2 -11 1": {{"GPU 0 #0 4", "GPU 1 #0 4", "GPU 1 #1 timeout"}, xids},
	} {
		t.Run(failure, func(t *testing.T) {
			r := start(t, xidPlan(), dcgm.Options{}, gpusOf(2)...)
			r.read()
			r.e.Add("fail "+failure, "event 1 gpu:1 230 62", "event 2 gpu:1 230 45")
			for i, batch := range want {
				r.shows(fmt.Sprint("batch ", i), batch)
			}
		})
	}
}
