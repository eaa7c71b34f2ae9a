package catalog_test

import (
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Invalid values seen in practice are outside the ranges. Possible values of current and next boards are inside.
func TestRanges(t *testing.T) {
	const garbage, blank = 808334905, 140737488355328
	for id, tt := range map[gpu.FieldID]struct{ in, out []float64 }{
		202:  {[]float64{0, 1e7}, []float64{-1, garbage}},                // PCIe replays
		390:  {[]float64{0, 64}, []float64{garbage}},                     // retired pages
		391:  {[]float64{0, 64}, []float64{garbage}},                     // retired pages
		393:  {[]float64{0, 512}, []float64{garbage}},                    // remapped rows
		1009: {[]float64{0, 2.6e11}, []float64{-1, blank, 1.8446744e19}}, // PCIe generation 7 with 16 lanes
		1010: {[]float64{0, 2.6e11}, []float64{-1, blank}},
		200:  {[]float64{0, 2.6e8}, []float64{blank}},
		203:  {[]float64{0, 100}, []float64{garbage}},
		1503: {[]float64{-3, 0, 6}, []float64{garbage}}, // IMEX; negative without a daemon
	} {
		e, ok := catalog.ByID(id)
		if !ok {
			t.Fatalf("field %d is not in the catalog", id)
		}
		plausible := func(v float64) bool { return e.Range.Contains(v) }
		for _, v := range tt.in {
			if !plausible(v) {
				t.Errorf("%s: %v is outside the range, want inside", e.Name, v)
			}
		}
		for _, v := range tt.out {
			if plausible(v) {
				t.Errorf("%s: %v is inside the range, want outside", e.Name, v)
			}
		}
	}
}

// The catalog has the engine's own interval of a field (DCGM 4.6, DcgmCacheManager.cpp).
func TestPace(t *testing.T) {
	for e := range catalog.All() {
		want := time.Duration(0)
		if e.ID == 83 || e.ID == 84 {
			want = 30 * time.Second
		}
		if got := e.Field().MinInterval; got != want {
			t.Errorf("%s: MinInterval = %v, want %v", e.Name, got, want)
		}
	}
}
