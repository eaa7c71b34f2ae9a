package dashboards

import (
	"os"
	"strings"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/dcgm"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/nvml"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
)

// sourcesOf finds the sources that read what a family is made of, and returns their names
// as --source has them.
func sourcesOf(t *testing.T, name string, typ gpu.MetricType) []string {
	t.Helper()
	request, err := counters.NewRequest(name, typ, "")
	if err != nil {
		t.Fatal(err)
	}
	plan := counters.NewPlan([]counters.Request{request}, counters.PlanOptions{})
	var names []string
	for _, source := range []struct {
		name  string
		reads func(*gpu.Plan) bool
	}{{"dcgm", dcgm.Reads}, {"nvml", nvml.Reads}, {"sim", sim.Reads}} {
		if source.reads(plan) {
			names = append(names, source.name)
		}
	}
	return names
}

func from(t *testing.T, name string, typ gpu.MetricType) string {
	return strings.Join(sourcesOf(t, name, typ), ", ")
}

// promisedUnit returns the unit that the name of a family says.
func promisedUnit(name string) string {
	name = strings.TrimSuffix(strings.ToLower(name), "_total")
	for _, unit := range []gpu.Unit{catalog.Seconds, catalog.Bytes, catalog.Joules, catalog.Ratio} {
		if strings.HasSuffix(name, "_"+string(unit)) {
			return string(unit)
		}
	}
	return ""
}

// needDrivers skips a test that needs the sources that load a library, which a build without cgo
// has not, and fails it in CI, which builds with it.
func needDrivers(t *testing.T) {
	t.Helper()
	const reason = "SKIP no-cgo: the sources that load a library are not in this build"
	switch {
	case withDrivers:
	case os.Getenv("CI") != "":
		t.Fatal(reason)
	default:
		t.Skip(reason)
	}
}

// Every family comes from some source, and what the page says of the sources is not the same for
// all.
func TestEveryFamilyHasASource(t *testing.T) {
	needDrivers(t)
	with := map[string]int{}
	for _, e := range exportable() {
		with[from(t, e.Classic, kindOf(e))]++
		if classic, current := from(t, e.Classic, kindOf(e)), from(t, e.Current, kindOf(e)); classic != current {
			t.Errorf("%s is from %q, %s from %q", e.Classic, classic, e.Current, current)
		}
	}
	for _, d := range catalog.Families() {
		with[from(t, d.Name, d.Type)]++
	}
	for names := range with {
		if !strings.HasPrefix(names, "dcgm") {
			t.Errorf("%d families are from %q: the catalog is DCGM's", with[names], names)
		}
	}
	if with["dcgm, nvml, sim"] < 300 || with["dcgm, sim"] < 100 {
		t.Errorf("families by sources: %v", with)
	}
	if got := from(t, catalog.GPUHealthStatus, gpu.MetricGauge); got != "dcgm, sim" {
		t.Errorf("health checks are from %q: they are DCGM's own", got)
	}
}
