package judge

import (
	"slices"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
)

// TestInitContainersAreExplained checks that awaits has every init container of every release, and only components that
// exist.
func TestInitContainersAreExplained(t *testing.T) {
	table := chart.Load()
	labels, names := []string{""}, map[string]bool{}
	for _, v := range table.Versions() {
		for _, o := range table.Operands(v) {
			labels = append(labels, o.Label)
			for _, c := range o.Containers {
				names[c.Name] = names[c.Name] || c.Init
			}
		}
	}
	// these init containers wait for nothing
	working := []string{"init-pod-nvidia-node-status-exporter", "gpu-feature-discovery-imex-init"}
	for name, init := range names {
		if _, known := awaits[name]; init && !known && !slices.Contains(working, name) {
			t.Errorf("awaits has no entry for the init container %s", name)
		}
	}
	for name, row := range awaits {
		if !names[name] || !slices.Contains(labels, row.component) {
			t.Errorf("awaits has %s (component %q), but no release has this init container or component", name, row.component)
		}
	}
}
