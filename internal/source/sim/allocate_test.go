package sim_test

import (
	"context"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/simulated"
)

// A Read of 56 instances and 100 fields, like that of the benchmark, does not allocate.
func TestReadDoesNotAllocate(t *testing.T) {
	plan := simulated.PlanOf(func(e catalog.Entry) bool {
		return e.Levels.Has(gpu.KindGPUInstance) && e.Type != catalog.Text
	})
	one := plan.Fields
	for len(plan.Fields) < 100 {
		plan.Fields = append(plan.Fields, one[:min(len(one), 100-len(plan.Fields))]...)
	}
	r := play(t, sim.Options{Node: "mig8x7", Seed: 1}, plan)
	read := func() {
		r.Pass(30 * time.Second)
		r.b.Reset()
		if err := r.s.Read(context.Background(), gpu.ReadRequest{}, &r.b); err != nil {
			t.Fatal(err)
		}
	}
	read() // grow the batch
	if len(r.b.Samples) < 56*80 {
		t.Fatalf("samples = %d, want most of 56 × 100 and those of the GPUs", len(r.b.Samples))
	}
	if n := testing.AllocsPerRun(100, read); n > 2 {
		t.Errorf("allocations per Read = %v, want at most 2", n)
	}
}
