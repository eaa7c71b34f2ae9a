package snapshot_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

// Samples of a lost entity are not served, whether they come before or after the fault. Other entities are unaffected.
func TestLostEntityHasNoSamples(t *testing.T) {
	topology := gpu.NewTopology([]gpu.Device{
		{Entity: gpu.Entity{Kind: gpu.KindGPU}, UUID: "GPU-0"},
		{Entity: gpu.Entity{Kind: gpu.KindGPU, ID: 1}, GPU: 1, UUID: "GPU-1"},
	})
	plan := &gpu.Plan{
		Interval: time.Second, Devices: gpu.Selector{Flex: true},
		Fields:   []gpu.Field{{ID: 150, Levels: gpu.KindsOf(gpu.KindGPU), Range: &gpu.Range{Max: 100}}},
		Counters: []gpu.Counter{{Name: "T", Field: 0, Scale: 1}},
	}
	b := snapshot.NewBuilder(topology, plan, nil)
	now := time.Unix(1_800_000_000, 0)
	for _, lost := range []int{0, 1} {
		batch := &gpu.Batch{}
		batch.Add(0, 0, gpu.Int(40), now)
		batch.Add(1, 0, gpu.Int(41), now)
		batch.FailPart(lost, gpu.PartEntity, fmt.Errorf("test: %w", gpu.ErrLost))
		s := b.Build(snapshot.Reading{Batch: batch, Begin: now, Now: now})
		for row, v := range s.Columns[0].Values {
			if down := s.Health.Entities[row].Err != nil; down != (row == lost) || v.IsAbsent() != (row == lost) {
				t.Errorf("GPU %d lost: GPU %d has the value %q, down = %t; want only the lost GPU down and without a value", lost, row, v, down)
			}
			if oldest := s.Health.Entities[row].OldestSample; (oldest == 0) != (row == lost) {
				t.Errorf("GPU %d lost: oldest sample of GPU %d = %d, want 0 only for the lost GPU", lost, row, oldest)
			}
		}
	}
}
