//go:build linux && cgo

package nvml_test

import (
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/nvml"
)

// What is said not to be read never has a value, and of what is said to be read the H100 of the
// test library shows most.
func TestReads(t *testing.T) {
	src, world := source(t, "gpus 1", "gpu 0 set nvlinks 2", "gpu 0 set ports 1")
	plan := planOf(t, allFields()...)
	s := open(t, src, plan)
	read(t, s, plan) // rates have values from the second time on
	world.Play(t, "gpus 1", "gpu 0 set nvlinks 2", "gpu 0 set ports 1", "xid 0 31")
	var b gpu.Batch
	if err := s.Read(t.Context(), &b); err != nil {
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
			t.Errorf("%s has a value, and is said not to be read", plan.Fields[i].Name)
		}
		if reads {
			said++
		}
		if sampled[i] {
			shown++
		}
	}
	if shown < 110 || said < shown || said > 500 {
		t.Errorf("%d fields of %d are said to be read, %d have values", said, len(plan.Fields), shown)
	}
}

// What is beside fields: the health watches are DCGM's own.
func TestReadsBesideFields(t *testing.T) {
	if !nvml.Reads(&gpu.Plan{Peers: true, Placement: true}) || nvml.Reads(&gpu.Plan{Health: gpu.KindsOf(gpu.KindGPU)}) {
		t.Error("want peers and placement, and no health watches")
	}
	if nvml.Reads(&gpu.Plan{Fields: []gpu.Field{planOf(t, 150).Fields[0], planOf(t, 858).Fields[0]}}) {
		t.Error("a plan with a field of switches is read")
	}
}
