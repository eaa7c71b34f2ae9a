package lint

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/input"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/sharing"
)

// pluginFindings judges a device plugin config for the route by which it reaches the plugin.
func pluginFindings(data []byte, route sharing.Route) []report.Row {
	_, findings := sharing.Parse(data, route)
	return findings
}

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

// pluginValues judges the configs in config.map.
func (r *run) pluginValues(d *doc) {
	for _, f := range fields.Of(fields.Get(d.root, "config", "map")) {
		if f.Value.Kind == yaml.ScalarNode {
			r.embedded(d.file, "config.map."+f.Name, f.Value, d.line, sharing.Plugin)
		}
	}
}

// pluginChart judges the configs that an installation of the device plugin's own chart sets.
func (r *run) pluginChart(s *input.Script, h *helmCommand) {
	r.judged++
	r.kinds = append(r.kinds, "helm "+h.verb+" of "+pluginChartName)
	in := newInstallation(r.table, r.orLatest(), nil)
	in.flags, in.route = true, sharing.Plugin
	for _, f := range h.flags {
		if strings.HasPrefix(f.name, "--set") {
			r.setFlag(s, in, f)
		}
	}
}
