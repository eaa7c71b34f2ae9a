package accounting_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Pods that hold the compute instances of one GPU instance: each has what its own did and what is
// assigned to it by slices, without a look at processes.
func TestSharesOfADividedInstance(t *testing.T) {
	owner := func(pod string, part float64) gpu.Owner {
		return gpu.Owner{Namespace: "ns", Pod: pod, Container: "main", PodUID: map[string]string{"a": "uid-1", "b": "uid-2"}[pod], Part: part}
	}
	holders := func(owners ...gpu.Owner) gpu.Use { return gpu.Use{Owners: owners} }
	const third, instance, a, b = 3. / 7 / 3, "GPU-2/1", "GPU-2/1 ns/a", "GPU-2/1 ns/b"
	type of = map[string]float64
	for name, tt := range map[string]struct {
		whole, first, second gpu.Use
		procs                []gpu.Process // nil: not reported
		want                 map[string]of // of the second cycle
		missing              []string
	}{
		"a part each": {
			holders(owner("a", 1./3), owner("b", 2./3)), holders(owner("a", 0)), holders(owner("b", 0)), nil,
			map[string]of{
				podUtil: {a: 0.3, b: 0.2}, restUtil: {instance: 0}, podActive: {a: 0.9 * third * 10, b: 0.3 * 2 * third * 10}, restActive: {instance: 0},
				podAllocated: {a: third * 10, b: 2 * third * 10},
			},
			[]string{"processes not_supported"},
		},
		"processes add memory alone": {
			holders(owner("a", 1./3), owner("b", 2./3)), holders(owner("a", 0)), holders(owner("b", 0)),
			[]gpu.Process{
				{Row: 3, PID: 1, Busy: gpu.Float(0.01), Memory: gpu.Int(200 << 20)}, {Row: 3, PID: 2, Busy: gpu.Float(0.01), Memory: gpu.Int(700 << 20)},
			},
			map[string]of{
				podUtil: {a: 0.3, b: 0.2}, restUtil: {instance: 0},
				podMemory: {a: 200 << 20, b: 700 << 20}, restMemory: {instance: 100 << 20},
			},
			nil,
		},
		"one part has no owner": {
			holders(owner("a", 1./3)), holders(owner("a", 0)), holders(), nil,
			map[string]of{
				// Whatever runs on an instance that one pod alone is on is the pod's.
				podUtil: {a: 0.5}, restUtil: {instance: 0}, podActive: {a: 1.5 * third * 10}, restActive: {instance: 0},
				podAllocated: {a: third * 10},
			},
			nil,
		},
		"one pod has both": {
			holders(owner("a", 1./3), owner("a", 2./3)), holders(owner("a", 0)), holders(owner("a", 0)), nil,
			map[string]of{
				podUtil: {a: 0.5}, restUtil: {instance: 0}, podActive: {a: 1.5 * third * 10}, restActive: {instance: 0},
				podAllocated: {a: 3 * third * 10},
			},
			nil,
		},
		"two share a part": {
			holders(owner("a", 1./3), owner("a", 1./3), owner("b", 1./3)), holders(owner("a", 0)), holders(owner("a", 0), owner("b", 0)), nil,
			map[string]of{
				podUtil: {}, restUtil: {}, podActive: {}, restActive: {}, restMemory: {},
				// What the first of them did is one of the two's, and which is not known.
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
			got, missing := map[string]of{}, []string(nil)
			p.run(t, func(i int, s *gpu.Snapshot) {
				if i == 0 {
					return
				}
				for family, series := range shares(s) {
					if family == notAvailable {
						missing = slices.Sorted(maps.Keys(series))
					}
					for key, v := range series {
						if tt.want[family] == nil || !strings.HasPrefix(key, instance) {
							continue
						}
						if got[family] == nil {
							got[family] = of{}
						}
						got[family][key] = v
					}
				}
			})
			near(got, tt.want)
			for family, series := range tt.want {
				if len(series) == 0 && got[family] == nil {
					got[family] = of{}
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.missing, missing); diff != "" {
				t.Errorf("missing (-want +got):\n%s", diff)
			}
		})
	}
}
