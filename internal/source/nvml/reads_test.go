//go:build linux && cgo

package nvml_test

import (
	"slices"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/nvml"
)

// A field for which Reads returns false never has a value. Of the other fields, the H100 of the test library has most.
func TestReads(t *testing.T) {
	plan := planOf(allFields()...)
	r := start(t, plan, "gpus 1", "gpu 0 set nvlinks 2", "gpu 0 set ports 1")
	r.read() // rates have values from the second read on
	var b gpu.Batch
	if err := r.Read(t.Context(), gpu.ReadRequest{}, &b); err != nil {
		t.Fatal(err)
	}
	shown, said := 0, 0
	for i, f := range plan.Fields {
		reads := nvml.Reads(&gpu.Plan{Fields: plan.Fields[i : i+1]})
		if reads {
			said++
		}
		if slices.ContainsFunc(b.Samples, func(x gpu.Sample) bool { return x.Field == i }) {
			if shown++; !reads {
				t.Errorf("%s has a value, but Reads = false, want true", f.Name)
			}
		}
	}
	if shown < 110 || said < shown || said > 500 {
		t.Errorf("fields with values = %d, want at least 110; fields with Reads = true: %d of %d, want %[1]d to 500",
			shown, said, len(plan.Fields))
	}
}

// NVML has peers and placement, but no health watches.
func TestReadsWithoutFields(t *testing.T) {
	if !nvml.Reads(&gpu.Plan{Peers: true, Placement: true}) || nvml.Reads(&gpu.Plan{Health: onGPU}) {
		t.Error("Reads: want true for peers and placement, and false for health watches")
	}
	if nvml.Reads(planOf(150, 858)) {
		t.Error("Reads = true for a plan with a field of switches, want false")
	}
}
