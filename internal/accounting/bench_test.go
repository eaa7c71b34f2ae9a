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

// BenchmarkShares runs cycles of a node with 110 pods. Each pod owns three replicas on eight GPUs, and has one process
// that uses all three.
func BenchmarkShares(b *testing.B) {
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
	deriver := accounting.New(prometheus.NewRegistry(), false).Deriver(
		func(pid uint32) ([]string, error) { return uids[pid], nil })
	plan := accounting.Extend(&gpu.Plan{Interval: interval, Devices: gpu.Selector{Flex: true}})
	builder := snapshot.NewBuilder(gpu.NewTopology(boards(gpus)), plan, []snapshot.Deriver{deriver})
	var batch gpu.Batch
	now, joules := time.Unix(1e9, 0), int64(0)
	cycle := func() *gpu.Snapshot {
		now, joules = now.Add(interval), joules+7e6
		batch.Reset()
		for row := range gpus {
			for i := range plan.Fields {
				v := gpu.Int(50)
				if plan.Fields[i].ID == 156 {
					v = gpu.Int(joules)
				}
				batch.Add(row, i, v, now)
			}
			batch.Utilizations = append(batch.Utilizations, gpu.Utilization{Row: row, Busy: gpu.Float(0.9)})
		}
		for i := range 3 * pods {
			p := process(uint32(1+i/3), 0.02, 1)
			p.Row, p.Time = i%gpus, now.UnixNano()
			batch.Processes = append(batch.Processes, p)
		}
		return builder.Build(snapshot.Reading{Batch: &batch, Owners: owners, Begin: now, Now: now})
	}
	cycle()
	if known := len(shares(cycle())[podUtil]); known < pods {
		b.Fatalf("known shares = %d, want at least one for each of %d pods", known, pods)
	}
	b.ReportAllocs()
	for b.Loop() {
		cycle()
	}
}
