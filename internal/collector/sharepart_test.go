package collector_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/loop"
)

// Pods that hold the compute instances of one GPU instance: each has what its
// own did and what is assigned to it by slices, without a look at processes.
func TestSharesOfADividedInstance(t *testing.T) {
	owner := func(pod string, part float64) gpu.Owner {
		return gpu.Owner{Namespace: "ns", Pod: pod, Container: "main", PodUID: map[string]string{"a": "uid-1", "b": "uid-2"}[pod], Part: part}
	}
	holders := func(owners ...gpu.Owner) gpu.Use { return gpu.Use{Owners: owners} }
	const third, cut, a, b = 3. / 7 / 3, "GPU-2/1", "GPU-2/1 ns/a", "GPU-2/1 ns/b"
	type of = map[string]float64
	for name, tt := range map[string]struct {
		whole, first, second gpu.Use
		procs                []gpu.Process // nil: not told
		want                 map[string]of // of the second cycle
		lacks                []string
	}{
		"a part each": {
			holders(owner("a", 1./3), owner("b", 2./3)), holders(owner("a", 0)), holders(owner("b", 0)), nil,
			map[string]of{
				podUtil: {a: 0.3, b: 0.2}, restUtil: {cut: 0}, podActive: {a: 0.9 * third * 10, b: 0.3 * 2 * third * 10}, restActive: {cut: 0},
				podAllocated: {a: third * 10, b: 2 * third * 10},
			},
			[]string{"processes not_supported"},
		},
		"processes tell memory alone": {
			holders(owner("a", 1./3), owner("b", 2./3)), holders(owner("a", 0)), holders(owner("b", 0)),
			[]gpu.Process{
				{Row: 3, PID: 1, Busy: gpu.Float(0.01), Memory: gpu.Int(200 << 20)}, {Row: 3, PID: 2, Busy: gpu.Float(0.01), Memory: gpu.Int(700 << 20)},
			},
			map[string]of{
				podUtil: {a: 0.3, b: 0.2}, restUtil: {cut: 0},
				podMemory: {a: 200 << 20, b: 700 << 20}, restMemory: {cut: 100 << 20},
			},
			nil,
		},
		"one part is nobody's": {
			holders(owner("a", 1./3)), holders(owner("a", 0)), holders(), nil,
			map[string]of{
				// Whatever runs on an instance that one pod alone is on is the pod's.
				podUtil: {a: 0.5}, restUtil: {cut: 0}, podActive: {a: 1.5 * third * 10}, restActive: {cut: 0},
				podAllocated: {a: third * 10},
			},
			nil,
		},
		"one pod has both": {
			holders(owner("a", 1./3), owner("a", 2./3)), holders(owner("a", 0)), holders(owner("a", 0)), nil,
			map[string]of{
				podUtil: {a: 0.5}, restUtil: {cut: 0}, podActive: {a: 1.5 * third * 10}, restActive: {cut: 0},
				podAllocated: {a: 3 * third * 10},
			},
			nil,
		},
		"two share a part": {
			holders(owner("a", 1./3), owner("a", 1./3), owner("b", 1./3)), holders(owner("a", 0)), holders(owner("a", 0), owner("b", 0)), nil,
			map[string]of{
				podUtil: {a: 0.3}, restUtil: {cut: 0.2}, podActive: {a: 0.9 * third * 10}, restActive: {cut: 0.6 * third * 10},
				podAllocated: {a: 2 * third * 10, b: third * 10},
			},
			[]string{"process_utilization not_supported", "processes not_supported"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := moment{
				uses: make([]gpu.Use, 8), util: make([]gpu.Value, 8), memory: make([]gpu.Value, 8), energy: make([]gpu.Value, 8),
				procs: tt.procs, faults: []gpu.Fault{{Row: 3, Field: gpu.FieldProcessBusy, Err: gpu.ErrNotSupported}},
			}
			if tt.procs == nil {
				m.faults[0].Field = gpu.FieldProcesses
			}
			m.uses[3], m.uses[6], m.uses[7] = tt.whole, tt.first, tt.second
			m.util[6], m.util[7] = gpu.Float(0.9), gpu.Float(0.3)
			m.memory[3] = gpu.Int(1000)
			p := &play{divided: true, moments: []moment{m, m}}
			got, lacks := map[string]of{}, []string(nil)
			synctest.Test(t, func(t *testing.T) {
				p.run(t, func(i int, s *gpu.Snapshot) {
					if i == 0 {
						return
					}
					for family, series := range shares(s) {
						if family == notAvailable {
							lacks = slices.Sorted(maps.Keys(series))
						}
						for key, v := range series {
							if tt.want[family] == nil || !strings.HasPrefix(key, cut) {
								continue
							}
							if got[family] == nil {
								got[family] = of{}
							}
							if w := tt.want[family][key]; v-w < 1e-9 && w-v < 1e-9 {
								v = w // rounding
							}
							got[family][key] = v
						}
					}
				})
			})
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.lacks, lacks); diff != "" {
				t.Errorf("lacks (-want +got):\n%s", diff)
			}
		})
	}
}

// What a compute instance has not is said of it alone where the rest of its GPU
// has it, and once where nothing has it.
func TestUnavailableOfComputeInstances(t *testing.T) {
	for name, tt := range map[string]struct {
		served     []int // rows
		has, lacks []string
	}{
		"all of them": {[]int{0, 1, 4, 5, 6, 7}, nil, []string{"unavailable{GR"}},
		"not one":     {[]int{0, 1, 4, 5, 6}, []string{"GR{6} 0.5", "unavailable{GR 7} not_supported"}, []string{"unavailable{GR 2}", "unavailable{GR 6}"}},
		"none of them": {
			[]int{0, 1, 4, 5}, []string{"unavailable{GR 6} not_supported", "unavailable{GR 7} not_supported"}, []string{"unavailable{GR 2}", "unavailable{GR -1}"},
		},
		"nothing of the GPU": {[]int{0, 1}, []string{"unavailable{GR 2} not_supported"}, []string{"unavailable{GR 6}", "unavailable{GR 7}"}},
		"nothing at all":     {nil, []string{"unavailable{GR -1} not_supported"}, []string{"unavailable{GR 2}", "unavailable{GR 6}"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{topology: (&play{divided: true}).topology()}
				f.read = func(_ context.Context, b *gpu.Batch) error {
					for row := range f.topology.Devices {
						b.Fail(row, 2, gpu.ErrNotSupported)
						b.Add(row, 0, gpu.Int(1), time.Now())
					}
					for _, row := range tt.served {
						b.Add(row, 2, gpu.Float(0.5), time.Now())
					}
					return nil
				}
				r := start(t, f, func(o *loop.Options) {
					all := gpu.KindsOf(gpu.KindGPU, gpu.KindGPUInstance, gpu.KindComputeInstance)
					o.Plan.Fields[0].Levels, o.Plan.Fields[2].Levels = all, all // the first keeps all of them up
				})
				r.has(tt.has...)
				for _, line := range tt.lacks {
					r.hasNot(line)
				}
				r.stop()
			})
		})
	}
}
