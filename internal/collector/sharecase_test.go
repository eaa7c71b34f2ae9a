package collector_test

import (
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// pods makes a use of pods by number, 0 for one whose UID is not known.
func pods(sharing gpu.Sharing, replicas int, numbers ...int) []gpu.Use {
	use := gpu.Use{Sharing: sharing, Replicas: replicas}
	for _, n := range numbers {
		o := gpu.Owner{Namespace: "ns", Pod: string(rune('a' + n)), Container: "main", Resource: "nvidia.com/gpu"}
		if n > 0 {
			o.PodUID = "uid-" + string(rune('0'+n))
		}
		use.Owners = append(use.Owners, o)
	}
	return []gpu.Use{use}
}

// at makes a moment in which GPU 0 is busy and drew 1000 J more each time.
func at(i int, uses []gpu.Use, change func(*moment)) moment {
	m := moment{uses: uses, util: make([]gpu.Value, 6), memory: make([]gpu.Value, 6), energy: make([]gpu.Value, 6)}
	m.util[0], m.memory[0], m.energy[0] = gpu.Int(60), gpu.Int(1000), gpu.Int(int64(1e6*i))
	if change != nil {
		change(&m)
	}
	return m
}

func process(pid uint32, busy float64, mib int64) gpu.Process {
	return gpu.Process{PID: pid, Busy: gpu.Float(busy), Memory: gpu.Int(mib << 20)}
}

func runs(list ...gpu.Process) func(*moment) {
	return func(m *moment) { m.procs = list }
}

// last plays a history and returns what its last cycle tells of GPU 0.
func last(t *testing.T, moments ...moment) map[string]map[string]float64 {
	t.Helper()
	found := map[string]map[string]float64{}
	synctest.Test(t, func(t *testing.T) {
		p := &play{moments: moments}
		p.run(t, func(i int, s *gpu.Snapshot) {
			if i < len(moments)-1 {
				return
			}
			for family, series := range shares(s) {
				for key, v := range series {
					if family != notAvailable && (len(key) < 6 || key[:6] != "GPU-0/") {
						continue
					}
					if found[family] == nil {
						found[family] = map[string]float64{}
					}
					found[family][key] = v
				}
			}
		})
	})
	delete(found, podInfo)
	return found
}

func TestSharesOfOneGPU(t *testing.T) {
	const a, b, c = "GPU-0/ ns/b", "GPU-0/ ns/c", "GPU-0/ ns/a"
	two := pods(gpu.SharingTimeSlicing, 4, 1, 2)
	type told = map[string]map[string]float64
	type of = map[string]float64
	for name, test := range map[string]struct {
		moments []moment
		want    told
	}{
		"one owner has all, idle energy too": {
			[]moment{at(0, pods(gpu.SharingNone, 0, 1), nil), at(1, pods(gpu.SharingNone, 0, 1), nil)},
			told{
				podUtil: of{a: 0.6}, podMemory: of{a: 1000 << 20}, podActive: of{a: 6}, podAllocated: of{a: 10}, podEnergy: of{a: 1000},
				restUtil: of{"GPU-0/": 0}, restMemory: of{"GPU-0/": 0}, restActive: of{"GPU-0/": 0}, restEnergy: of{"GPU-0/": 0},
			},
		},
		"two have what their processes did": {
			[]moment{at(0, two, nil), at(1, two, runs(process(1, 0.1, 300), process(2, 0.2, 100), process(2, 0.1, 100), process(100, 0.1, 50)))},
			told{
				podUtil: of{a: 0.1, b: 0.3}, podMemory: of{a: 300 << 20, b: 200 << 20}, podActive: of{a: 1, b: 3},
				podAllocated: of{a: 2.5, b: 2.5}, podEnergy: of{a: 100, b: 300},
				restUtil: of{"GPU-0/": 0.2}, restMemory: of{"GPU-0/": 500 << 20}, restActive: of{"GPU-0/": 2}, restEnergy: of{"GPU-0/": 600},
			},
		},
		"claims above the device are scaled down": {
			[]moment{at(0, two, nil), at(1, two, runs(process(1, 0.8, 3000), process(2, 0.4, 1000)))},
			told{
				podUtil: of{a: 0.4, b: 0.2}, podMemory: of{a: 750 << 20, b: 250 << 20}, podActive: of{a: 4, b: 2},
				podAllocated: of{a: 2.5, b: 2.5}, podEnergy: of{a: 400, b: 200},
				restUtil: of{"GPU-0/": 0}, restMemory: of{"GPU-0/": 0}, restActive: of{"GPU-0/": 0}, restEnergy: of{"GPU-0/": 400},
			},
		},
		"without process ids of the host nothing is guessed": {
			[]moment{at(0, two, nil), at(1, two, func(m *moment) {
				m.procs, m.podOf = []gpu.Process{process(1, 0.3, 100)}, gpu.ErrPIDNamespace
			})},
			told{
				podAllocated: of{a: 2.5, b: 2.5},
				restUtil:     of{"GPU-0/": 0.6}, restMemory: of{"GPU-0/": 1000 << 20}, restActive: of{"GPU-0/": 6}, restEnergy: of{"GPU-0/": 1000},
				notAvailable: of{"pod_of_process pid_namespace": 1},
			},
		},
		"memory alone, as under MIG": {
			[]moment{at(0, two, nil), at(1, two, func(m *moment) {
				m.procs = []gpu.Process{{PID: 1, Memory: gpu.Int(100 << 20)}}
				m.faults = []gpu.Fault{{Row: 0, Field: gpu.FieldProcessBusy, Err: gpu.ErrNotSupported}}
			})},
			told{
				podMemory: of{a: 100 << 20, b: 0}, podAllocated: of{a: 2.5, b: 2.5},
				restUtil: of{"GPU-0/": 0.6}, restMemory: of{"GPU-0/": 900 << 20}, restActive: of{"GPU-0/": 6}, restEnergy: of{"GPU-0/": 1000},
				notAvailable: of{"process_utilization not_supported": 1},
			},
		},
		"a pod without a known UID has no part, the other has": {
			[]moment{at(0, pods(gpu.SharingMPS, 2, 0, 2), nil), at(1, pods(gpu.SharingMPS, 2, 0, 2), runs(process(0, 0.3, 10), process(2, 0.2, 20)))},
			told{
				podUtil: of{b: 0.2}, podMemory: of{b: 20 << 20}, podActive: of{b: 2}, podAllocated: of{b: 5, c: 5}, podEnergy: of{b: 200},
				restUtil: of{"GPU-0/": 0.4}, restMemory: of{"GPU-0/": 980 << 20}, restActive: of{"GPU-0/": 4}, restEnergy: of{"GPU-0/": 800},
				notAvailable: of{"pod_uid no_data": 1},
			},
		},
		"seen once, it has the seconds of that interval": {
			[]moment{at(0, nil, nil), at(1, nil, nil), at(2, pods(gpu.SharingNone, 0, 1), nil)},
			told{
				podUtil: of{a: 0.6}, podMemory: of{a: 1000 << 20}, podActive: of{a: 6}, podAllocated: of{a: 10}, podEnergy: of{a: 1000},
				restUtil: of{"GPU-0/": 0}, restMemory: of{"GPU-0/": 0}, restActive: of{"GPU-0/": 6}, restEnergy: of{"GPU-0/": 1000},
			},
		},
		"another pod of the same name begins anew": {
			[]moment{at(0, pods(gpu.SharingNone, 0, 1), nil), at(1, pods(gpu.SharingNone, 0, 1), nil), at(2, func() []gpu.Use {
				u := pods(gpu.SharingNone, 0, 1)
				u[0].Owners[0].PodUID = "another"
				return u
			}(), nil)},
			told{
				podUtil: of{a: 0.6}, podMemory: of{a: 1000 << 20}, podActive: of{a: 6}, podAllocated: of{a: 10}, podEnergy: of{a: 1000},
				restUtil: of{"GPU-0/": 0}, restMemory: of{"GPU-0/": 0}, restActive: of{"GPU-0/": 0}, restEnergy: of{"GPU-0/": 0},
			},
		},
		"a kubelet that is away ends the series, and they go on after": {
			[]moment{at(0, pods(gpu.SharingNone, 0, 1), nil), at(1, pods(gpu.SharingNone, 0, 1), nil), at(2, nil, nil), at(3, pods(gpu.SharingNone, 0, 1), nil)},
			told{
				podUtil: of{a: 0.6}, podMemory: of{a: 1000 << 20}, podActive: of{a: 12}, podAllocated: of{a: 20}, podEnergy: of{a: 2000},
				restUtil: of{"GPU-0/": 0}, restMemory: of{"GPU-0/": 0}, restActive: of{"GPU-0/": 6}, restEnergy: of{"GPU-0/": 1000},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := last(t, test.moments...)
			for family, series := range got {
				for key, v := range series {
					if w := test.want[family][key]; v-w < 1e-9 && w-v < 1e-9 {
						series[key] = w // rounding
					}
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
