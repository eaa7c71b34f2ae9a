package sim_test

import (
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/simulated"
)

// Reads returns true exactly for fields that some node has.
func TestReads(t *testing.T) {
	plan := simulated.Plan()
	plan.Fields = append(plan.Fields, gpu.Field{ID: 60000, Name: "unknown", Levels: gpu.KindsOf(gpu.KindGPU)})
	sampled := make([]bool, len(plan.Fields))
	for _, node := range sim.Nodes() {
		c := simulated.NewClock()
		src, err := sim.New(sim.Options{Node: node, Seed: 1, Now: c.Now})
		if err != nil {
			t.Fatal(err)
		}
		s, err := src.Open(t.Context(), plan)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		c.Pass(plan.Interval)
		var b gpu.Batch
		if err := s.Read(t.Context(), gpu.ReadRequest{}, &b); err != nil {
			t.Fatal(err)
		}
		for _, x := range b.Samples {
			sampled[x.Field] = true
		}
	}
	for i := range plan.Fields {
		f := &plan.Fields[i]
		reads := sim.Reads(&gpu.Plan{Fields: plan.Fields[i : i+1]})
		if reads != sampled[i] && f.ID != catalog.XIDErrors {
			t.Errorf("%s (%d): Reads = %t, want %t: whether it has a value on some node",
				f.Name, f.ID, reads, sampled[i])
		}
	}
}
