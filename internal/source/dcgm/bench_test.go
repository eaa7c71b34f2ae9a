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

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/dcgm"
	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
)

// The benchmarks and memory tests use eight GPUs with seven instances each.
const (
	benchInstances = 56
	benchFields    = 76
)

// denseWorld returns a script with that many instances, and a plan of fields that they have. One field is a string.
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

func cycle(t testing.TB, s *dcgm.Session, batch *gpu.Batch) {
	batch.Reset()
	if err := s.Read(context.Background(), gpu.ReadRequest{}, batch); err != nil {
		t.Fatal(err)
	}
	if want := benchInstances * benchFields; len(batch.Samples) != want {
		t.Fatalf("samples = %d, want %d", len(batch.Samples), want)
	}
}

// A cycle allocates little memory, and resident memory does not grow.
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
		debug.FreeOSMemory() // what remains belongs to the library, or is a leak
		return (after.TotalAlloc - before.TotalAlloc) / uint64(cycles), residentBytes(t)
	}
	_, warm := measure(200)
	allocated, late := measure(800)
	if allocated > 64<<10 {
		t.Errorf("a cycle allocates %d bytes, want at most %d", allocated, 64<<10)
	}
	if grown := late - warm; grown > 4<<20 {
		t.Errorf("resident memory grew by %d bytes in 800 cycles, want at most %d", grown, 4<<20)
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
