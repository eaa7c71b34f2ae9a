package lint_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/lint"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/charts"
)

// The defaults of every release are clean as what they are.
func TestDefaultsOfEveryReleaseAreClean(t *testing.T) {
	dir := charts.Data(t)
	for _, v := range charts.Sample(chart.Load().Versions(), 7) {
		t.Run(v.String(), func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join(dir, v.String(), "values.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			got := judge(t, lint.Options{Version: v.String(), Files: []lint.Input{{Name: "values.yaml", Data: data}}})
			if diff := cmp.Diff([]string(nil), brief(got.Report)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			rendered, err := os.ReadFile(filepath.Join(dir, v.String(), "rendered-defaults.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			// three charts are from the source tree, where the release is called devel-ubi8
			rendered = bytes.ReplaceAll(rendered, []byte("devel-ubi8"), []byte(v.String()))
			got = judge(t, lint.Options{Version: v.String(), Files: []lint.Input{{Name: "rendered.yaml", Data: rendered}}})
			if diff := cmp.Diff([]string(nil), brief(got.Report)); diff != "" {
				t.Errorf("rendered manifests (-want +got):\n%s", diff)
			}
		})
	}
}
