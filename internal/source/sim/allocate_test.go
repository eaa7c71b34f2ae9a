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

// dense opens a session with 56 instances and 100 fields, like the benchmark.
func dense(tb testing.TB, c *simulated.Clock) *sim.Session {
	tb.Helper()
	plan := simulated.PlanOf(func(e catalog.Entry) bool { return e.Levels.Has(gpu.KindGPUInstance) && e.Type != catalog.Text })
	one := plan.Fields
	for len(plan.Fields) < 100 {
		plan.Fields = append(plan.Fields, one[:min(len(one), 100-len(plan.Fields))]...)
	}
	src, err := sim.New(sim.Options{Node: "mig8x7", Seed: 1, Now: c.Now})
	if err != nil {
		tb.Fatal(err)
	}
	s, err := src.Open(context.Background(), plan)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	return s
}

func TestReadDoesNotAllocate(t *testing.T) {
	c := simulated.NewClock()
	s := dense(t, c)
	var b gpu.Batch
	read := func() {
		c.Pass(30 * time.Second)
		b.Reset()
		if err := s.Read(context.Background(), gpu.ReadRequest{}, &b); err != nil {
			t.Fatal(err)
		}
	}
	read() // grow the batch
	if len(b.Samples) < 56*80 {
		t.Fatalf("samples = %d, want most of 56 × 100 and those of the GPUs", len(b.Samples))
	}
	if n := testing.AllocsPerRun(100, read); n > 2 {
		t.Errorf("allocations per Read = %v, want at most 2", n)
	}
}
