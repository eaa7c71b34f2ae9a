package sim_test

import (
	"context"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/simulated"
)

// The processes of a shared device use at most the device's memory. Their utilization adds up to the device's since
// the previous Read, except for rounding to whole percent. As with a real GPU, the utilization field is a momentary
// value and differs.
func TestProcessesAddUpToDevice(t *testing.T) {
	now := time.Unix(1e9, 0)
	source, err := sim.New(sim.Options{Node: "shared", Seed: 3, Start: now, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	plan := simulated.Plan(203, fbUsed)
	plan.Devices = gpu.Selector{Flex: true}
	s, err := source.Open(context.Background(), plan)
	if err != nil {
		t.Fatal(err)
	}
	var b gpu.Batch
	req := gpu.ReadRequest{Processes: make([]bool, len(s.Topology().Devices))}
	for row := range req.Processes {
		req.Processes[row] = true
	}
	furthest := 0.0
	for range 200 {
		now = now.Add(17 * time.Second)
		b.Reset()
		if err := s.Read(context.Background(), req, &b); err != nil {
			t.Fatal(err)
		}
		busy, used, count := map[int]float64{}, map[int]float64{}, map[int]int{}
		for _, p := range b.Processes {
			n, _ := p.Busy.Number()
			m, _ := p.Memory.Number()
			busy[p.Row], used[p.Row] = busy[p.Row]+100*n, used[p.Row]+m/(1<<20)
			count[p.Row]++
			if d := s.Topology().Devices[p.Row]; d.Entity.Kind == gpu.KindGPUInstance && !p.Busy.IsAbsent() {
				t.Errorf("process in MIG mode has a utilization of %v, want none", n)
			}
		}
		for _, u := range b.Utilizations {
			n, _ := u.Busy.Number()
			rounding := float64(count[u.Row])/2 + 1e-6
			if d := busy[u.Row] - 100*n; d > rounding || d < -rounding {
				t.Errorf("row %d: utilization of the processes = %v %%, want %v %% as of the GPU",
					u.Row, busy[u.Row], 100*n)
			}
			if s.Topology().Devices[u.Row].Entity.Kind != gpu.KindGPU {
				t.Errorf("row %d: GPU instance has a utilization, want none", u.Row)
			}
		}
		if len(b.Utilizations) == 0 {
			t.Fatal("no mean utilization of GPUs reported, want some")
		}
		for _, x := range b.Samples {
			n, _ := x.Value.Number()
			switch plan.Fields[x.Field].ID {
			case 203:
				furthest = max(furthest, n-busy[x.Row], busy[x.Row]-n)
			case fbUsed:
				if used[x.Row] > n || used[x.Row] < n-float64(count[x.Row]) && count[x.Row] > 0 {
					t.Errorf("row %d: memory of the processes = %v MiB, want %v MiB as of the device",
						x.Row, used[x.Row], n)
				}
			}
		}
		if len(count) != 7 {
			t.Fatalf("rows with processes = %v, want 7", count)
		}
	}
	if furthest < 5 {
		t.Errorf("largest difference of momentary and mean utilization = %v %%, want at least 5 %% as on real GPUs",
			furthest)
	}
	if uid, err := source.PodOf(1); uid != nil || err != nil {
		t.Errorf("PodOf(1) = %q, %v, want none", uid, err)
	}
}
