package snapshot_test

import (
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

// A sample is served for three intervals, but for at least a second. With intervals of milliseconds, a busy machine
// reads later than three intervals.
func TestAgeOfSamples(t *testing.T) {
	topology := gpu.NewTopology([]gpu.Device{{Entity: gpu.Entity{Kind: gpu.KindGPU}, UUID: "GPU-0"}})
	for _, tt := range []struct {
		interval, age time.Duration
		stale         bool
	}{
		{10 * time.Millisecond, time.Second, false},
		{10 * time.Millisecond, 1001 * time.Millisecond, true},
		{time.Second, 3 * time.Second, false},
		{time.Second, 3001 * time.Millisecond, true},
		{30 * time.Second, 90 * time.Second, false},
		{30 * time.Second, 91 * time.Second, true},
	} {
		b := snapshot.NewBuilder(topology, &gpu.Plan{
			Interval: tt.interval, Devices: gpu.Selector{Flex: true},
			Fields:   []gpu.Field{{ID: 150, Levels: gpu.KindsOf(gpu.KindGPU), Range: &gpu.Range{Max: 100}}},
			Counters: []gpu.Counter{{Name: "T", Field: 0, Scale: 1}},
		}, nil)
		now := time.Unix(1_800_000_000, 0)
		batch := &gpu.Batch{}
		batch.Add(0, 0, gpu.Int(40), now.Add(-tt.age))
		s := b.Build(snapshot.Reading{Batch: batch, Begin: now, Now: now})
		if s.Columns[0].Values[0].IsAbsent() != tt.stale || (b.Stale > 0) != tt.stale {
			t.Errorf("interval %v, age %v: value = %q, stale samples = %d, want it stale: %t", tt.interval, tt.age, s.Columns[0].Values[0], b.Stale, tt.stale)
		}
	}
}
