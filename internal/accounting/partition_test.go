package accounting_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/accounting"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

// parted is a GPU with instances of the given profiles, or a whole one.
func parted(profiles ...string) *gpu.Topology {
	list := boards(1)
	for i, profile := range profiles {
		list = append(list, gpu.Device{
			Entity: gpu.Entity{Kind: gpu.KindGPUInstance, ID: uint32(100 + i), ParentKind: gpu.KindGPU, Parent: 0},
			UUID:   "GPU-0", InstanceID: uint32(i + 1), Profile: profile,
		})
	}
	return gpu.NewTopology(list)
}

// A GPU whose partition changes every few cycles is charged for each stretch of time once, whatever
// the partition was: what pods have and what is unattributed is what its counter says, and no more
// seconds are allocated than passed.
func TestPartitionThatChanges(t *testing.T) {
	whole, halves, parts, other := parted(), parted("4g.40gb", "3g.40gb"), parted("1g.10gb", "2g.20gb"), parted("3g.40gb", "1g.10gb")
	for name, tops := range map[string][]*gpu.Topology{
		"every cycle":                       {halves, whole},
		"with a remainder":                  {parts, whole},
		"to other profiles of the same ids": {parts, other, halves},
		"after two cycles":                  {halves, halves, whole, whole},
		"for long":                          {halves, whole, whole, whole, whole, whole, whole},
	} {
		for _, blind := range []int{0, 2, 3} { // every how many cycles no activity is known
			t.Run(fmt.Sprint(name, ", blind ", blind), func(t *testing.T) { flip(t, tops, blind) })
		}
	}
}

func flip(t *testing.T, tops []*gpu.Topology, blind int) {
	plan := accounting.Extend(&gpu.Plan{Interval: interval, Devices: gpu.Selector{Flex: true}})
	accountant := accounting.New(accounting.Options{Registerer: prometheus.NewRegistry()})
	deriver := accountant.Deriver(nil)
	now, joules, first := time.Unix(1e9, 0), 500.0, 500.0
	total := map[string]float64{} // family, entity and owner → its latest value
	var batch gpu.Batch
	for cycle := range 40 {
		top := tops[cycle%len(tops)]
		builder := snapshot.NewBuilder(top, plan, []snapshot.Deriver{deriver})
		owners := &gpu.Owners{Generation: uint64(cycle), Uses: make([]gpu.Use, len(top.Devices))}
		if len(top.Devices) == 1 {
			owners.Uses[0] = pods(gpu.SharingNone, 0, 1)[0]
		} else {
			owners.Uses[1] = pods(gpu.SharingNone, 0, 2)[0] // the second instance is no pod's
		}
		now = now.Add(interval)
		if cycle > 0 {
			joules += float64(1000 + 100*cycle)
		}
		batch.Reset()
		batch.RequestProcesses = top.ProcessRows()
		for row := range top.Devices {
			for i := range plan.Fields {
				v := map[gpu.FieldID]gpu.Value{69: gpu.Int(7), 156: gpu.Float(joules * 1e3), 203: gpu.Int(40), 252: gpu.Int(100), 1001: gpu.Float(0.3)}[plan.Fields[i].ID]
				if activity := plan.Fields[i].ID == 203 || plan.Fields[i].ID == 1001; activity && blind > 0 && cycle%blind == 1 {
					continue
				}
				batch.Add(row, i, v, now)
			}
		}
		s := builder.Build(snapshot.Reading{Kind: snapshot.Served, Batch: &batch, Owners: owners, Begin: now, Now: now})
		for family, series := range shares(s) {
			for key, v := range series {
				total[family+" "+key] = v
			}
		}
		check := func(what string, passed float64, exact bool, families ...string) {
			sum := 0.0
			for _, family := range families {
				for key, v := range total {
					if len(key) > len(family) && key[:len(family)+1] == family+" " {
						sum += v
					}
				}
			}
			if sum > passed+1e-6 || exact && math.Abs(sum-passed) > 1e-6 {
				t.Fatalf("cycle %d: %v %s are counted, of %v", cycle, sum, what, passed)
			}
		}
		seconds := float64(cycle) * interval.Seconds()
		check("J", joules-first, blind == 0, podEnergy, restEnergy)
		check("s allocated", seconds, false, podAllocated)
		check("s active", 0.4*seconds, false, podActive, restActive)
	}
}
