package accounting_test

import (
	"fmt"
	"maps"
	"math"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// partitioned returns a GPU with instances of the given profiles. Without profiles, it is not partitioned.
func partitioned(profiles ...string) *gpu.Topology {
	list := boards(1)
	for i, profile := range profiles {
		list = append(list, gpu.Device{
			Entity: gpu.Entity{Kind: gpu.KindGPUInstance, ID: uint32(100 + i), ParentKind: gpu.KindGPU, Parent: 0},
			UUID:   "GPU-0", InstanceID: uint32(i + 1), Profile: profile,
		})
	}
	return gpu.NewTopology(list)
}

// Even if a GPU is repartitioned every few cycles, each interval is charged once. The pods and the unattributed
// remainder add up to its energy counter. No more seconds are allocated than passed.
func TestChangingPartition(t *testing.T) {
	whole, halves := partitioned(), partitioned("4g.40gb", "3g.40gb")
	parts, other := partitioned("1g.10gb", "2g.20gb"), partitioned("3g.40gb", "1g.10gb")
	for name, tops := range map[string][]*gpu.Topology{
		"MIG toggled in each cycle":          {halves, whole},
		"instances that leave slices unused": {parts, whole},
		"other profiles with the same IDs":   {parts, other, halves},
		"every two cycles":                   {halves, halves, whole, whole},
		"MIG off for six cycles":             {halves, whole, whole, whole, whole, whole, whole},
	} {
		for _, blind := range []int{0, 2, 3} { // the activity is unknown in every blind-th cycle
			t.Run(fmt.Sprint(name, ", unknown activity every ", blind), func(t *testing.T) { flip(t, tops, blind) })
		}
	}
}

func flip(t *testing.T, tops []*gpu.Topology, blind int) {
	var moments []moment
	joules := 500.0
	for cycle := range 40 {
		top := tops[cycle%len(tops)]
		rows := len(top.Devices)
		m := silence(make([]gpu.Use, rows), rows)
		m.top, m.reopened = top, true
		if rows == 1 {
			m.uses[0] = pods(gpu.SharingNone, 0, 1)[0]
		} else {
			m.uses[1] = pods(gpu.SharingNone, 0, 2)[0] // no pod owns the second instance
		}
		if cycle > 0 {
			joules += float64(1000 + 100*cycle)
		}
		m.energy[0] = gpu.Float(joules * 1e3)
		for row := range rows {
			m.memory[row] = gpu.Int(100)
			switch {
			case blind > 0 && cycle%blind == 1:
			case row == 0:
				m.util[row] = gpu.Int(40)
			default:
				m.util[row] = gpu.Float(0.3)
			}
		}
		moments = append(moments, m)
	}
	total := map[string]map[string]float64{} // the latest value by family, then by entity and owner
	(&play{moments: moments}).run(t, func(cycle int, s *gpu.Snapshot) {
		for family, series := range shares(s) {
			if total[family] == nil {
				total[family] = map[string]float64{}
			}
			maps.Copy(total[family], series)
		}
		check := func(what string, passed float64, exact bool, families ...string) {
			sum := 0.0
			for _, family := range families {
				for _, v := range total[family] {
					sum += v
				}
			}
			if sum > passed+1e-6 || exact && math.Abs(sum-passed) > 1e-6 {
				t.Fatalf("cycle %d: %s = %v, want %v (exactly: %t, otherwise at most)", cycle, what, sum, passed, exact)
			}
		}
		seconds, used := float64(cycle)*interval.Seconds(), moments[cycle].energy[0]
		joules, _ := used.Number()
		check("energy in J", joules/1e3-500, blind == 0, podEnergy, restEnergy)
		check("allocated seconds", seconds, false, podAllocated)
		check("active seconds", 0.4*seconds, false, podActive, restActive)
	})
}
