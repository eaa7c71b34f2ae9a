package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/release"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/charts"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
)

// same checks that the table produces the files in the repository, except for the file named except.
func same(t *testing.T, table *chart.Table, except string) {
	t.Helper()
	for name, text := range files(table, operandsIn(table)) {
		if name == except {
			continue
		}
		have := folder.Read(t, "..", "..", "gpuop", "chart", name)
		if diff := cmp.Diff(strings.Split(have, "\n"), strings.Split(string(text), "\n")); diff != "" {
			t.Errorf("%s (-repository +generated):\n%s", name, diff)
		}
	}
}

func operandsIn(table *chart.Table) map[chart.Version][]chart.Operand {
	out := map[chart.Version][]chart.Operand{}
	for _, v := range table.Versions() {
		out[v] = table.Operands(v)
	}
	return out
}

func TestTablesRoundTrip(t *testing.T) { same(t, chart.Load(), "") }

// TestTablesMatchCharts compares the files in the repository with tables made from the charts. The newest release is
// added last, and the others in the order of their file names.
func TestTablesMatchCharts(t *testing.T) {
	dir := charts.Whole(t)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	table, newest := &chart.Table{}, chart.Load().Latest()
	var last *chart.Release
	for _, e := range entries {
		r, err := release.Open(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if r.Version == newest {
			last = r
			continue
		}
		table = table.With(r)
	}
	if last == nil {
		t.Fatalf("%s has no chart of %s", dir, newest)
	}
	same(t, table.With(last), "operands.txt") // operands come from the operator's source
}
