package catalog_test

import (
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Garbage that was seen in the field lies outside of the ranges, and what shipped boards and the
// next ones can say inside.
func TestRanges(t *testing.T) {
	const garbage, blank = 808334905, 140737488355328
	for id, tt := range map[gpu.FieldID]struct{ in, out []float64 }{
		202:  {[]float64{0, 1e7}, []float64{-1, garbage}},                // PCIe replays
		390:  {[]float64{0, 64}, []float64{garbage}},                     // retired pages
		391:  {[]float64{0, 64}, []float64{garbage}},                     // retired pages
		393:  {[]float64{0, 512}, []float64{garbage}},                    // remapped rows
		1009: {[]float64{0, 2.6e11}, []float64{-1, blank, 1.8446744e19}}, // PCIe, generation 7 of 16 lanes
		1010: {[]float64{0, 2.6e11}, []float64{-1, blank}},
		200:  {[]float64{0, 2.6e8}, []float64{blank}},
		203:  {[]float64{0, 100}, []float64{garbage}},
		1503: {[]float64{-3, 0, 6}, []float64{garbage}}, // IMEX, below 0 without a daemon
	} {
		e, ok := catalog.ByID(id)
		if !ok {
			t.Fatalf("no field %d", id)
		}
		plausible := func(v float64) bool { return e.Range.Contains(v) }
		for _, v := range tt.in {
			if !plausible(v) {
				t.Errorf("%s: %v is taken for garbage", e.Name, v)
			}
		}
		for _, v := range tt.out {
			if plausible(v) {
				t.Errorf("%s: %v is taken for a value", e.Name, v)
			}
		}
	}
}

// The engine's own pace of a field (DCGM 4.6, DcgmCacheManager.cpp) comes with the field.
func TestPace(t *testing.T) {
	for e := range catalog.All() {
		want := time.Duration(0)
		if e.ID == 83 || e.ID == 84 {
			want = 30 * time.Second
		}
		if got := e.Field().Pace; got != want {
			t.Errorf("%s: pace %v, want %v", e.Name, got, want)
		}
	}
}
