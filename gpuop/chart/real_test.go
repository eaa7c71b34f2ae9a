package chart_test

import (
	"encoding/json"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/release"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/charts"
)

// flatten lists the leaves of a values tree by their paths.
func flatten(path chart.Path, v any, out map[string]any) {
	m, isMap := v.(map[string]any)
	if !isMap || len(m) == 0 && len(path) > 0 {
		out[path.String()] = v
		return
	}
	for name, inner := range m {
		flatten(append(path[:len(path):len(path)], name), inner, out)
	}
}

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
			want := map[string]any{}
			flatten(nil, r.Values, want)
			for path, value := range want {
				got, known := table.Default(v, path)
				if !known || !reflect.DeepEqual(got, value) {
					t.Errorf("%s: default = %v (known: %t), want the chart's %v", path, got, known, value)
				}
			}
			for _, k := range table.Keys(v) {
				if _, has := want[k.Path.String()]; k.Listed(v) && !has {
					t.Errorf("%s is in the table but not in the chart", k.Path)
				}
			}
			for _, path := range reads[name] {
				p := chart.ParsePath(path)
				if status := table.Lookup(v, p).Status; status != chart.Known && status != chart.Group && status != chart.Free {
					t.Errorf("%s is read by templates; status in the table = %d, want known", path, status)
				}
			}
			for kind, list := range r.Fields {
				for _, f := range list {
					have, ok := table.Field(v, kind, f.Path)
					if !ok {
						t.Errorf("%s %s is in the chart but not in the table", kind, f.Path)
						continue
					}
					a, _ := json.Marshal(&f)
					b, _ := json.Marshal(have)
					if string(a) != string(b) {
						t.Errorf("%s %s = %s, want %s as in the definition", kind, f.Path, b, a)
					}
				}
			}
		})
	}
}
