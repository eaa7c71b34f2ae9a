package accounting_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/accounting"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

// dense returns a function that runs a cycle of a node with 110 pods. Each pod owns three replicas on eight GPUs, and
// has one process that uses all three.
func dense(tb testing.TB) (cycle func()) {
	const gpus, pods = 8, 110
	owners := &gpu.Owners{Uses: make([]gpu.Use, gpus)}
	uids := map[uint32][]string{}
	for i := range 3 * pods {
		use, name := &owners.Uses[i%gpus], fmt.Sprint("job-", i/3)
		use.Owners = append(use.Owners, gpu.Owner{
			Namespace: "team", Pod: name, PodUID: name, Container: "main", Replica: fmt.Sprint(i),
		})
		use.Sharing, use.Replicas = gpu.SharingTimeSlicing, 48
		uids[uint32(1+i/3)] = []string{name}
	}
	accountant := accounting.New(prometheus.NewRegistry(), false)
	deriver := accountant.Deriver(func(pid uint32) ([]string, error) { return uids[pid], nil })
	plan := accounting.Extend(&gpu.Plan{Interval: interval, Devices: gpu.Selector{Flex: true}})
	top := gpu.NewTopology(boards(gpus))
	builder := snapshot.NewBuilder(top, plan, []snapshot.Deriver{deriver})
	var b gpu.Batch
	requested := top.ProcessRows()
	now, joules := time.Unix(1e9, 0), int64(0)
	known := 0
	cycle = func() {
		now, joules = now.Add(interval), joules+7e6
		b.Reset()
		for row := range gpus {
			for i := range plan.Fields {
				v := gpu.Int(50)
				if plan.Fields[i].ID == 156 {
					v = gpu.Int(joules)
				}
				b.Add(row, i, v, now)
			}
			if requested[row] {
				b.Utilizations = append(b.Utilizations, gpu.Utilization{Row: row, Busy: gpu.Float(0.9)})
			}
		}
		for i := range 3 * pods {
			if row := i % gpus; requested[row] {
				b.Processes = append(b.Processes, gpu.Process{
					Row: row, PID: uint32(1 + i/3), Busy: gpu.Float(0.02), Memory: gpu.Int(1 << 10),
					Time: now.UnixNano(),
				})
			}
		}
		s := builder.Build(snapshot.Reading{Batch: &b, Owners: owners, Begin: now, Now: now})
		known = 0
		for i := range s.Families[0].Series {
			if !s.Families[0].Series[i].Value.IsAbsent() {
				known++
			}
		}
	}
	cycle()
	cycle()
	if known < pods {
		tb.Fatalf("known shares = %d, want at least one for each of %d pods", known, pods)
	}
	return cycle
}

func BenchmarkShares(b *testing.B) {
	cycle := dense(b)
	b.ReportAllocs()
	for b.Loop() {
		cycle()
	}
}
