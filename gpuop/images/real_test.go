package images_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/images"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/charts"
)

// switched lists sections that the default values do not deploy, because they or sandboxWorkloads are disabled. Some
// releases' templates omit their images.
var switched = []string{"gds", "sandboxDevicePlugin", "vfioManager", "vfioManager.driverManager", "vgpuDeviceManager", "vgpuManager", "vgpuManager.driverManager"}

// The list with disabled operands must equal the images that the chart renders. Only sections in switched may be
// missing from the chart. The list without disabled operands must be a subset of the rendered images.
func TestImagesAreThoseThatTheChartRenders(t *testing.T) {
	var rendered map[string][]string
	charts.Read(t, filepath.Join(charts.Data(t), "rendered-images.json"), &rendered)
	if len(rendered) != 42 {
		t.Fatalf("releases = %d, want 42", len(rendered))
	}
	table := chart.Load()
	for name, want := range rendered {
		t.Run(name, func(t *testing.T) {
			v, exact, err := table.Resolve(name)
			if err != nil || !exact {
				t.Fatalf("Resolve(%s): exact = %v, error = %v, want the exact release", name, exact, err)
			}
			for i := range want {
				// three charts are from the source tree, which has the placeholder devel-ubi8 as the tag
				want[i] = strings.ReplaceAll(want[i], ":devel-ubi8", ":"+name)
			}
			slices.Sort(want)
			list := func(all bool) []string {
				found, err := images.List(table, v, nil, images.Nodes{}, all)
				if err != nil {
					t.Fatal(err)
				}
				var out []string
				for _, i := range found {
					if !all || slices.Contains(want, i.Name) || !slices.Contains(switched, i.Operand) {
						out = append(out, i.Name)
					}
				}
				slices.Sort(out)
				return out
			}
			if diff := cmp.Diff(slices.Compact(want), list(true)); diff != "" {
				t.Errorf("images (-chart +gpuop):\n%s", diff)
			}
			for _, i := range list(false) {
				if !slices.Contains(want, i) {
					t.Errorf("%s is listed but not rendered by the chart", i)
				}
			}
		})
	}
}
