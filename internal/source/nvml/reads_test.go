//go:build linux && cgo

package nvml_test

import (
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/nvml"
)

// A field for which Reads returns false never has a value. Of the other fields, the H100 of the test library has most.
func TestReads(t *testing.T) {
	src, world := source(t, "gpus 1", "gpu 0 set nvlinks 2", "gpu 0 set ports 1")
	plan := planOf(t, allFields()...)
	s := open(t, src, plan)
	read(t, s, plan) // rates have values from the second read on
	world.Play(t, "gpus 1", "gpu 0 set nvlinks 2", "gpu 0 set ports 1", "xid 0 31")
	var b gpu.Batch
	if err := s.Read(t.Context(), gpu.ReadRequest{}, &b); err != nil {
		t.Fatal(err)
	}
	sampled := map[int]bool{}
	for _, x := range b.Samples {
		sampled[x.Field] = true
	}
	shown, said := 0, 0
	for i := range plan.Fields {
		reads := nvml.Reads(&gpu.Plan{Fields: plan.Fields[i : i+1]})
		if sampled[i] && !reads {
			t.Errorf("%s has a value, but Reads = false, want true", plan.Fields[i].Name)
		}
		if reads {
			said++
		}
		if sampled[i] {
			shown++
		}
	}
	if shown < 110 || said < shown || said > 500 {
		t.Errorf("fields with values = %d, want at least 110; fields with Reads = true: %d of %d, want %[1]d to 500",
			shown, said, len(plan.Fields))
	}
}

// NVML has peers and placement, but no health watches.
func TestReadsWithoutFields(t *testing.T) {
	if !nvml.Reads(&gpu.Plan{Peers: true, Placement: true}) || nvml.Reads(&gpu.Plan{Health: gpu.KindsOf(gpu.KindGPU)}) {
		t.Error("Reads: want true for peers and placement, and false for health watches")
	}
	if nvml.Reads(&gpu.Plan{Fields: []gpu.Field{planOf(t, 150).Fields[0], planOf(t, 858).Fields[0]}}) {
		t.Error("Reads = true for a plan with a field of switches, want false")
	}
}
