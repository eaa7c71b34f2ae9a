package lint

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
)

// pluginChartName is the device plugin's own chart. Of its values the configs for the device plugin are judged.
const pluginChartName = "nvidia-device-plugin"

var (
	// pluginMarks are keys that this chart has and the operator's has not, and sharedKeys stand in both.
	pluginMarks = []string{"compatWithCPUManager", "deviceDiscoveryStrategy", "deviceIDStrategy", "deviceListStrategy", "failOnInitError", "gdsEnabled", "legacyDaemonsetAPI", "migStrategy", "mofedEnabled"}
	sharedKeys  = []string{"cdi", "devicePlugin", "gfd", "nfd", "node-feature-discovery", "nameOverride", "fullnameOverride"}
)

// isPluginValues reports whether a document is a values file of the device plugin's own chart.
func isPluginValues(t *chart.Table, root *yaml.Node) bool {
	configs := fields.Get(root, "config", "map")
	if configs != nil && configs.Kind == yaml.MappingNode || strings.HasSuffix(fields.Text(root, "image", "repository"), "/k8s-device-plugin") {
		return true
	}
	marks, operators := 0, 0
	for _, f := range fields.Of(root) {
		switch {
		case slices.Contains(pluginMarks, f.Name), f.Name == "nfd" && fields.Get(f.Value, "worker") != nil:
			marks++
		case t.Component(f.Name) == f.Name && !slices.Contains(sharedKeys, f.Name):
			operators++
		}
	}
	return marks > operators
}
