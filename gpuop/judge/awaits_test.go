package judge

import (
	"slices"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
)

// Every init container of every release has an entry in awaits. Every entry names an existing operand.
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
			t.Errorf("%s has no row", name)
		}
	}
	for name, row := range awaits {
		if !names[name] || !slices.Contains(labels, row.component) {
			t.Errorf("%s (component %q): no release has this init container or operand", name, row.component)
		}
	}
}
