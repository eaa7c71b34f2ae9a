package dcgm_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/dcgm"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fakedcgm"
)

var oneGPU = []string{
	"library 4.6.0", "engine 4.6.0", "driver 580.95.05", "nvml 13.580.95.05",
	`gpu 0 uuid=GPU-0 name="NVIDIA H100 80GB HBM3" bus=00000000:1B:00.0 index=3 minor=5 prof=1001-1012`,
	"value gpu:* 150 int 45",
	"value gpu:* 155 double 71.5",
}

func TestThin(t *testing.T) {
	e := fakedcgm.New(t, oneGPU...)
	plan := &gpu.Plan{
		Fields: []gpu.Field{
			{ID: 150, Name: "TEMP", Levels: gpu.KindsOf(gpu.KindGPU), Min: 1},
			{ID: 155, Name: "POWER", Levels: gpu.KindsOf(gpu.KindGPU), Min: 1},
		},
		Interval: time.Second,
		Devices:  gpu.Selector{Flex: true},
	}
	s, err := dcgm.New(dcgm.Options{}).Open(context.Background(), plan)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(e.Open(), e.Calls())
	var b gpu.Batch
	if err := s.Read(context.Background(), &b); err != nil {
		t.Fatal(err)
	}
	t.Log(b.Samples, b.Faults, s.Topology())
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int64{}, e.Open()); diff != "" {
		t.Error(diff)
	}
}
