package chart_test

import (
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/release"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/charts"
)

// TestTableIsWhatTheChartsSay compares the table with the chart of every release. Both must have the same leaves,
// defaults and fields, and Lookup must find every path that the templates read.
func TestTableIsWhatTheChartsSay(t *testing.T) {
	dir := charts.Data(t)
	table := chart.Load()
	var reads map[string][]string
	charts.Read(t, filepath.Join(dir, "template-reads.json"), &reads)
	if len(reads) != 42 || len(table.Versions()) < 42 {
		t.Fatalf("releases in the data = %d, in the table = %d; want 42, and at least 42", len(reads), len(table.Versions()))
	}
	for name := range reads {
		t.Run(name, func(t *testing.T) {
			r, err := release.Open(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			v := r.Version
			if v.String() != name || table.AppVersion(v) != r.AppVersion {
				t.Errorf("version = %s with operator %s in the table, want %s with operator %s as in the chart", v, table.AppVersion(v), name, r.AppVersion)
			}
			for path, value := range r.Values {
				got, known := table.Default(v, path)
				if !known || !reflect.DeepEqual(got, value) {
					t.Errorf("%s: default = %v (known: %t), want the chart's %v", path, got, known, value)
				}
			}
			paths := slices.Collect(maps.Keys(r.Values))
			for _, k := range table.Keys(v) {
				if _, listed := k.Default(v); listed && !slices.Contains(paths, k.Path.String()) {
					t.Errorf("%s is in the table but not in the chart", k.Path)
				}
			}
			for _, path := range reads[name] {
				p := chart.ParsePath(path)
				if status := table.Lookup(v, p).Status; status != chart.Known && status != chart.Group && status != chart.Free {
					t.Errorf("%s is read by templates; status in the table = %d, want known", path, status)
				}
			}
			for at, list := range r.Fields {
				if diff := cmp.Diff(list, table.Fields(v, at.Kind, at.Path)); diff != "" {
					t.Errorf("fields of %s below %q (-chart +table):\n%s", at.Kind, at.Path, diff)
				}
			}
		})
	}
}
