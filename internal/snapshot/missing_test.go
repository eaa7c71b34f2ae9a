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

// A field is listed as missing for a GPU if none of its instances has a value, and for all GPUs at once if the reason
// is the same.
func TestMissingFieldsOfInstances(t *testing.T) {
	var devices []gpu.Device
	for g := range uint32(2) {
		devices = append(devices, gpu.Device{Entity: gpu.Entity{Kind: gpu.KindGPU, ID: g}, GPU: g, UUID: fmt.Sprint("GPU-", g)})
	}
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
	now := time.Unix(1_800_000_000, 0)
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
			s := b.Build(snapshot.Reading{Batch: batch, Begin: now, Now: now})
			if diff := cmp.Diff(tt.want, s.Health.Unavailable, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("missing fields (-want +got):\n%s", diff)
			}
		})
	}
}
