//go:build linux && cgo

package nvml_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// BenchmarkRead reads every field of the shipped counters files through go-nvml, with and without profiling fields. The
// library returns immediately, so it measures the time in this package, go-nvml and cgo.
func BenchmarkRead(b *testing.B) {
	var instances []string
	for g := range 8 {
		for i := range 7 {
			instances = append(instances, fmt.Sprintf("gpu %d instance %d 0 1g.10gb 9984", g, 7+i))
		}
	}
	for _, bench := range []struct {
		name      string
		script    []string
		profiling bool
	}{
		{"gpus=8", nil, false},
		{"gpus=8/profiling", nil, true},
		{"gpus=8/instances=56", instances, false},
		{"gpus=8/instances=56/profiling", instances, true},
	} {
		b.Run(bench.name, func(b *testing.B) {
			plan := planOf(shippedFields(b)...)
			isLeftOut := func(f gpu.Field) bool { return f.Profiling && !bench.profiling }
			plan.Fields = slices.DeleteFunc(plan.Fields, isLeftOut)
			r := start(b, plan, append([]string{"gpus 8", "static"}, bench.script...)...)
			var batch gpu.Batch
			r.bench(b, func() {
				batch.Reset()
				r.Age()
				if err := r.Read(b.Context(), gpu.ReadRequest{}, &batch); err != nil {
					b.Fatal(err)
				}
			})
			b.ReportMetric(float64(len(batch.Samples)), "samples")
		})
	}
}

// bench measures read after its first run, which reads constants and finds unsupported fields.
func (r *rig) bench(b *testing.B, read func()) {
	calls := func() (total uint64) {
		for name, n := range r.world.Ledger(b) {
			if strings.HasPrefix(name, "nvml") {
				total += n
			}
		}
		return total
	}
	read()
	before := calls()
	read()
	each := calls() - before
	b.ReportAllocs()
	for b.Loop() {
		read()
	}
	b.ReportMetric(float64(each), "calls")
}

// BenchmarkProcesses reads 330 processes on eight shared GPUs, up to 42 on one GPU.
func BenchmarkProcesses(b *testing.B) {
	script := []string{"gpus 8", "static"}
	for i := range 330 {
		script = append(script, fmt.Sprintf("process %d pid %d memory 100", i%8, 1000+i))
	}
	r := start(b, planOf(150), script...)
	var batch gpu.Batch
	req := gpu.ReadRequest{Processes: []bool{true, true, true, true, true, true, true, true}}
	r.bench(b, func() {
		batch.Reset()
		if err := r.Read(b.Context(), req, &batch); err != nil || len(batch.Processes) != 330 {
			b.Fatalf("processes = %d, error %v; want 330", len(batch.Processes), err)
		}
	})
}
