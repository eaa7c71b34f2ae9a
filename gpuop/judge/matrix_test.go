package judge

import (
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
)

func TestMatrixIsReadable(t *testing.T) {
	known := map[string]bool{}
	for _, v := range chart.Load().Versions() {
		known[v.Minor()] = true
	}
	for _, r := range matrix() {
		if !known[r.series] {
			t.Errorf("%s is not a release series of the chart", r.series)
		}
		if r.last < r.first || r.first == 0 && r.id != "rhcos" || len(r.versions) == 0 {
			t.Errorf("%s %s: versions %v, Kubernetes 1.%d to 1.%d; want at least one version and a range (optional for rhcos)", r.series, r.id, r.versions, r.first, r.last)
		}
	}
	if latest := chart.Load().Latest(); len(series(latest)) == 0 {
		t.Errorf("no row for %s, the newest release", latest)
	}
}
