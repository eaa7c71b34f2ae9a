package lint_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/lint"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/charts"
)

// The defaults and rendered manifests of a release have no findings when they are checked against that release.
func TestDefaultsOfEveryReleaseAreClean(t *testing.T) {
	dir := charts.Data(t)
	for _, v := range charts.Sample(chart.Load().Versions(), 7) {
		t.Run(v.String(), func(t *testing.T) {
			for _, name := range []string{"values.yaml", "rendered-defaults.yaml"} {
				data := read(t, dir, v.String(), name)
				// three charts are from the source tree, which has the placeholder devel-ubi8 as the tag
				data = bytes.ReplaceAll(data, []byte("devel-ubi8"), []byte(v.String()))
				got := judge(t, lint.Options{Version: v.String(), Files: []lint.Input{{Name: name, Data: data}}})
				if diff := cmp.Diff([]string(nil), brief(got.Report)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", name, diff)
				}
			}
		})
	}
}

// The values of an old release, checked against a new one, yield one warning. In a copy of another release's
// values.yaml, only settings that the user changed are reported as dead. In any other file, former defaults are
// reported too.
func TestCopyOfAnOlderReleasesValues(t *testing.T) {
	dir := charts.Data(t)
	for _, release := range []string{"v23.9.2", "v24.6.2", "v25.3.4"} {
		report := findings(t, "v26.7.0", string(read(t, dir, release, "values.yaml")))
		text := strings.Join(reasons(report), "\n")
		if report.AtLeast(check.Error) || !strings.Contains(report.Summary(), "1 warning") ||
			!strings.Contains(text, "the file contains the defaults of "+release[:3]) {
			t.Errorf("values of %s: findings = %v, want one warning\n%s", release, brief(report), text)
		}
	}
	data := read(t, dir, "v25.3.0", "values.yaml")
	dead := func(text string) (out []string) {
		for _, row := range judge(t, lint.Options{Files: []lint.Input{{Name: "values.yaml", Data: []byte(text)}}}).Report.Findings {
			if row.Check.ID == "dead-setting" {
				out = append(out, row.Subject)
			}
		}
		return out
	}
	ours := strings.Replace(string(data), "nodeStatusExporter:\n", "nodeStatusExporter:\n  args: [--ours]\n", 1)
	ours = strings.Replace(ours, "\n  args: []", "", 1)
	if diff := cmp.Diff([]string{"nodeStatusExporter.args"}, dead(ours)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	few := "nodeStatusExporter: {image: gpu-operator-validator}\n"
	if diff := cmp.Diff([]string{"nodeStatusExporter.image"}, dead(few)); diff != "" {
		t.Errorf("not a copy (-want +got):\n%s", diff)
	}
}
