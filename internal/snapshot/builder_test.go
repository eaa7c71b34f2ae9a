package snapshot_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

// now is the time of a Read.
var now = time.Unix(1_800_000_000, 0)

// build returns the snapshot of a Read.
func build(b *snapshot.Builder, batch *gpu.Batch) *gpu.Snapshot {
	return b.Build(snapshot.Reading{Batch: batch, Begin: now, Now: now})
}

// gpus returns GPUs of a model.
func gpus(n int, model string) []gpu.Device {
	var devices []gpu.Device
	for i := range uint32(n) {
		devices = append(devices, gpu.Device{
			Entity: gpu.Entity{Kind: gpu.KindGPU, ID: i}, GPU: i, UUID: fmt.Sprint("GPU-", i), Model: model,
		})
	}
	return devices
}

// temperaturePlan returns a plan of one field of GPUs.
func temperaturePlan(interval time.Duration) *gpu.Plan {
	return &gpu.Plan{
		Interval: interval, Devices: gpu.Selector{Flex: true},
		Fields:   []gpu.Field{{ID: 150, Levels: gpu.KindsOf(gpu.KindGPU), Range: &gpu.Range{Max: 100}}},
		Counters: []gpu.Counter{{Name: "T", Field: 0, Scale: 1}},
	}
}

// A sample is served for three intervals, but for at least a second. With intervals of milliseconds, a busy machine
// reads later than three intervals.
func TestAgeOfSamples(t *testing.T) {
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
		b := snapshot.NewBuilder(gpu.NewTopology(gpus(1, "")), temperaturePlan(tt.interval), nil)
		batch := &gpu.Batch{}
		batch.Add(0, 0, gpu.Int(40), now.Add(-tt.age))
		v := build(b, batch).Columns[0].Values[0]
		if v.IsAbsent() != tt.stale || (b.Dropped["stale"] > 0) != tt.stale {
			t.Errorf("interval %v, age %v: value = %q, stale samples = %d, want it stale: %t",
				tt.interval, tt.age, v, b.Dropped["stale"], tt.stale)
		}
	}
}

// Samples of a lost entity are not served, whether they come before or after the fault. Other entities are unaffected.
func TestLostEntityHasNoSamples(t *testing.T) {
	b := snapshot.NewBuilder(gpu.NewTopology(gpus(2, "")), temperaturePlan(time.Second), nil)
	for _, lost := range []int{0, 1} {
		batch := &gpu.Batch{}
		batch.Add(0, 0, gpu.Int(40), now)
		batch.Add(1, 0, gpu.Int(41), now)
		batch.FailPart(lost, gpu.PartEntity, fmt.Errorf("test: %w", gpu.ErrLost))
		s := build(b, batch)
		for row, v := range s.Columns[0].Values {
			isDown, oldest := s.Health.Entities[row].Err != nil, s.Health.Entities[row].OldestSample
			if isLost := row == lost; isDown != isLost || v.IsAbsent() != isLost || (oldest == 0) != isLost {
				t.Errorf("GPU %d lost: GPU %d: value = %q, oldest sample = %d, down = %t; want only the lost GPU down",
					lost, row, v, oldest, isDown)
			}
		}
	}
}

// A field is listed as missing for a GPU if none of its instances has a value, and for all GPUs at once if the reason
// is the same.
func TestMissingFieldsOfInstances(t *testing.T) {
	devices := gpus(2, "")
	for g := range uint32(2) { // rows 2 and 3 of GPU 0, rows 4 and 5 of GPU 1
		for i := range uint32(2) {
			devices = append(devices, gpu.Device{
				Entity: gpu.Entity{Kind: gpu.KindGPUInstance, ID: 2*g + i, ParentKind: gpu.KindGPU, Parent: g},
				GPU:    g, UUID: fmt.Sprint("GPU-", g), InstanceID: i,
			})
		}
	}
	levels := gpu.KindsOf(gpu.KindGPU, gpu.KindGPUInstance)
	plan := &gpu.Plan{
		Interval: time.Second, Devices: gpu.Selector{Flex: true},
		Fields:   []gpu.Field{{ID: 252, Levels: levels}, {ID: 1001, Levels: levels}},
		Counters: []gpu.Counter{{Name: "M", Field: 0, Scale: 1}, {Name: "PRESENT", Field: 1, Scale: 1}},
	}
	b := snapshot.NewBuilder(gpu.NewTopology(devices), plan, nil)
	for name, tt := range map[string]struct {
		values []int // rows
		want   []gpu.FieldHealth
	}{
		"all have it":        {[]int{2, 3, 4, 5}, nil},
		"one of each has it": {[]int{3, 4}, nil},
		"one GPU has none":   {[]int{4, 5}, []gpu.FieldHealth{{Field: "M", Row: 0, Reason: "no_data"}}},
		"none has it":        {nil, []gpu.FieldHealth{{Field: "M", Row: gpu.AllRows, Reason: "no_data"}}},
	} {
		t.Run(name, func(t *testing.T) {
			batch := &gpu.Batch{}
			for _, row := range tt.values {
				batch.Add(row, 0, gpu.Int(1), now)
			}
			for row := range devices {
				batch.Add(row, 1, gpu.Int(1), now)
			}
			s := build(b, batch)
			if diff := cmp.Diff(tt.want, s.Health.Unavailable, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("missing fields (-want +got):\n%s", diff)
			}
		})
	}
}
