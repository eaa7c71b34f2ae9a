//go:build linux && cgo

package dcgm_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	godcgm "github.com/NVIDIA/go-dcgm/pkg/dcgm"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/dcgm"
	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
)

// The shape that is measured: eight GPUs cut into seven instances each.
const (
	benchInstances = 56
	benchFields    = 76
)

// denseWorld is a script of that shape, and a plan of fields that the instances have. One of them
// is a text.
func denseWorld() ([]string, *gpu.Plan) {
	lines := slices.Concat(versions, []string{"value any:* 50-1999 double 12.5"})
	for id := range 8 {
		lines = append(lines, gpuLine(id, ""))
	}
	for i := range benchInstances {
		lines = append(lines, fmt.Sprintf("instance %d gpu=%d nvml=%d profile=1g.10gb", 100+i, i/7, i%7+1))
	}
	plan := &gpu.Plan{Interval: time.Second, Devices: gpu.Selector{Minor: true}}
	onInstance := gpu.KindsOf(gpu.KindGPUInstance)
	for id := gpu.FieldID(400); len(plan.Fields) < benchFields-1; id++ {
		plan.Fields = append(plan.Fields, field(id, onInstance))
	}
	driver := text(1)
	driver.Levels = onInstance
	plan.Fields = append(plan.Fields, driver)
	return lines, plan
}

// BenchmarkReadFakeDCGM56x76 is one cycle over the test library through this package.
func BenchmarkReadFakeDCGM56x76(b *testing.B) {
	for name, remote := range map[string]string{"embedded": "", "remote": "10.0.0.9:5555"} {
		b.Run(name, func(b *testing.B) {
			lines, plan := denseWorld()
			e := fakedcgm.New(b, lines...)
			s := open(b, e, plan, dcgm.Options{Remote: engineAt(remote)})
			var batch gpu.Batch
			cycle(b, s, &batch)
			before := total(e.Calls())
			b.ReportAllocs()
			b.ResetTimer()
			n := 0
			for b.Loop() {
				cycle(b, s, &batch)
				n++
			}
			b.ReportMetric(float64(total(e.Calls())-before)/float64(n), "calls/op")
		})
	}
}

func cycle(t testing.TB, s *dcgm.Session, batch *gpu.Batch) {
	batch.Reset()
	if err := s.Read(context.Background(), batch); err != nil {
		t.Fatal(err)
	}
	if want := benchInstances * benchFields; len(batch.Samples) != want {
		t.Fatalf("%d samples, want %d", len(batch.Samples), want)
	}
}

// BenchmarkReadGoDCGM56x76 is the same data read with go-dcgm's own call, for comparison.
func BenchmarkReadGoDCGM56x76(b *testing.B) {
	lines, plan := denseWorld()
	e := fakedcgm.New(b, lines...)
	open(b, e, plan, dcgm.Options{})
	var entities []godcgm.GroupEntityPair
	for i := range benchInstances {
		entities = append(entities, godcgm.GroupEntityPair{EntityGroupId: godcgm.FE_GPU_I, EntityId: uint(100 + i)})
	}
	var ids []godcgm.Short
	for i := range plan.Fields {
		ids = append(ids, godcgm.Short(plan.Fields[i].ID))
	}
	b.ReportAllocs()
	for b.Loop() {
		values, err := godcgm.EntitiesGetLatestValues(entities, ids, 0)
		if err != nil || len(values) != benchInstances*benchFields {
			b.Fatal(len(values), err)
		}
	}
}

func total(calls map[string]int64) (n int64) {
	for _, c := range calls {
		n += c
	}
	return n
}

// A cycle allocates little, and resident memory does not grow with cycles.
func TestMemoryOfCycles(t *testing.T) {
	lines, plan := denseWorld()
	e := fakedcgm.New(t, lines...)
	s := open(t, e, plan, dcgm.Options{})
	var batch gpu.Batch
	measure := func(cycles int) (allocated uint64, resident int64) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range cycles {
			cycle(t, s, &batch)
		}
		runtime.ReadMemStats(&after)
		debug.FreeOSMemory() // the rest is the library's, or leaks
		return (after.TotalAlloc - before.TotalAlloc) / uint64(cycles), residentBytes(t)
	}
	_, warm := measure(200)
	allocated, late := measure(800)
	if allocated > 64<<10 {
		t.Errorf("a cycle allocates %d bytes", allocated)
	}
	if grown := late - warm; grown > 4<<20 {
		t.Errorf("resident memory grew by %d bytes in 800 cycles", grown)
	}
}

func residentBytes(t *testing.T) int64 {
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(data))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}
