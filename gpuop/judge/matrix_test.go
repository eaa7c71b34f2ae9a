package judge

import (
	"strings"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
)

func TestMatrixIsReadable(t *testing.T) {
	rows, err := matrix()
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, v := range chart.Load().Versions() {
		known[v.Minor()] = true
	}
	for _, r := range rows {
		if !known[r.series] {
			t.Errorf("%s is no release line of the chart", r.series)
		}
		if !strings.Contains(r.source, "github.com/") {
			t.Errorf("%s %s: source %q names no repository", r.series, r.id, r.source)
		}
	}
	if latest := chart.Load().Latest(); len(series(latest)) == 0 {
		t.Errorf("no row for %s, the newest release", latest)
	}
}

func TestMatrixRefusesWhatIsNoRow(t *testing.T) {
	for _, line := range []string{"v1\tubuntu", "v1\tubuntu\t1\t1.30\t-\tx", "v1\tubuntu\t1\t1.30-1.2\t-\tx", "v1\tubuntu\t1\t2.1-2.2\t-\tx", "v1\tubuntu\t1\t-\t-\t"} {
		if rows, err := parseMatrix(line + "\n"); err == nil {
			t.Errorf("%q is read as %+v", line, rows)
		}
	}
}
