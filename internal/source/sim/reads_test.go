package sim_test

import (
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
)

// What simulated nodes are said to show, some node shows, and nothing else.
func TestReads(t *testing.T) {
	plan := planOf(everything)
	plan.Fields = append(plan.Fields, gpu.Field{ID: 60000, Name: "unknown", Levels: gpu.KindsOf(gpu.KindGPU)})
	sampled := make([]bool, len(plan.Fields))
	for _, node := range sim.Nodes() {
		c := newClock()
		src, err := sim.New(sim.Options{Node: node, Seed: 1, Now: c.now})
		if err != nil {
			t.Fatal(err)
		}
		s, err := src.Open(t.Context(), plan)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		c.pass(plan.Interval)
		var b gpu.Batch
		if err := s.Read(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		for _, x := range b.Samples {
			sampled[x.Field] = true
		}
	}
	for i := range plan.Fields {
		f := &plan.Fields[i]
		if reads := sim.Reads(&gpu.Plan{Fields: plan.Fields[i : i+1]}); reads != sampled[i] && !f.Events {
			t.Errorf("%s (%d) is read: %t, has a value: %t", f.Name, f.ID, reads, sampled[i])
		}
	}
}
