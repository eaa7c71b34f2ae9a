//go:build linux && cgo

package nvml_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/nvml"
	fakenvml "github.com/gpu-telemetry/dcgm-exporter/tests/fake/nvml"
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
			path := library(b)
			world := fakenvml.NewWorld(b, append([]string{"gpus 8", "static"}, bench.script...)...)
			plan := planOf(b)
			for _, id := range shippedFields(b) {
				if f := planOf(b, id).Fields[0]; bench.profiling || !f.Profiling {
					plan.Fields = append(plan.Fields, f)
				}
			}
			s := open(b, nvml.New(path), plan)
			var batch gpu.Batch
			read := func() {
				batch.Reset()
				if err := s.Read(context.Background(), gpu.ReadRequest{}, &batch); err != nil {
					b.Fatal(err)
				}
			}
			read() // reads constants, and finds unsupported fields
			before := calls(world.Ledger(b))
			s.Age()
			read()
			each := calls(world.Ledger(b)) - before
			b.ReportAllocs()
			for b.Loop() {
				s.Age()
				read()
			}
			b.ReportMetric(float64(len(batch.Samples)), "samples")
			b.ReportMetric(float64(each), "calls")
		})
	}
}

// calls returns the total number of calls of library functions.
func calls(ledger map[string]uint64) uint64 {
	total := uint64(0)
	for name, n := range ledger {
		if strings.HasPrefix(name, "nvml") {
			total += n
		}
	}
	return total
}

// BenchmarkProcesses reads 330 processes on eight shared GPUs, up to 42 on one GPU.
func BenchmarkProcesses(b *testing.B) {
	path := library(b)
	script := []string{"gpus 8"}
	for i := range 330 {
		script = append(script, fmt.Sprintf("process %d pid %d memory 100", i%8, 1000+i))
	}
	world := fakenvml.NewWorld(b, append(script, "static")...)
	s := open(b, nvml.New(path), planOf(b, 150))
	var batch gpu.Batch
	req := gpu.ReadRequest{Processes: []bool{true, true, true, true, true, true, true, true}}
	read := func() {
		batch.Reset()
		if err := s.Read(context.Background(), req, &batch); err != nil || len(batch.Processes) != 330 {
			b.Fatalf("processes = %d, error %v; want 330", len(batch.Processes), err)
		}
	}
	read()
	before := calls(world.Ledger(b))
	read()
	each := calls(world.Ledger(b)) - before
	b.ReportAllocs()
	for b.Loop() {
		read()
	}
	b.ReportMetric(float64(each), "calls")
}
