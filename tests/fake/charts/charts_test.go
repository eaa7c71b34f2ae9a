package charts_test

import (
	"slices"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/charts"
)

func TestSampleSpreadsOverAll(t *testing.T) {
	all := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	t.Setenv("GPUOP_ALL", "")
	if got := charts.Sample(all, 3); !slices.Equal(got, []int{0, 5, 10}) {
		t.Errorf("Sample of 3 items = %v, want the first, the middle and the last", got)
	}
	if got := charts.Sample(all, 20); !slices.Equal(got, all) {
		t.Errorf("Sample of more items than there are = %v, want all", got)
	}
	t.Setenv("GPUOP_ALL", "1")
	if got := charts.Sample(all, 3); !slices.Equal(got, all) {
		t.Errorf("Sample with GPUOP_ALL=1 = %v, want all", got)
	}
}
