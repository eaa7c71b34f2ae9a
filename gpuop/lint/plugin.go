package lint

import (
	"fmt"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/input"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/sharing"
)

// pluginFindings judges a device plugin config for the route by which it reaches the plugin.
func pluginFindings(data []byte, route sharing.Route) []report.Row {
	config, findings := sharing.Parse(data)
	if config != nil {
		findings = append(findings, config.Dead(route)...)
	}
	return findings
}

const sourcePlugin = "k8s-device-plugin deployments/helm/nvidia-device-plugin"

// pluginChart judges an installation of the device plugin's own chart.
func (r *run) pluginChart(s *input.Script, h *helmCommand) {
	r.judged++
	r.kinds = append(r.kinds, "helm "+h.verb+" of nvidia-device-plugin")
	in := newInstallation(r.table, r.orLatest(), nil)
	in.flags, in.route = true, sharing.Plugin
	for _, f := range h.flags {
		if strings.HasPrefix(f.name, "--set") {
			r.setFlag(s, in, f)
		}
	}
	configs := in.Below("config.map")
	for _, c := range configs {
		if name := c.Path[len(c.Path)-1]; !labelValue.MatchString(name) {
			r.at(input.Word{Line: c.Line, Col: c.Column}, "config-map", report.Failed, name, "the name cannot be the value of the node label nvidia.com/device-plugin.config", "use letters, digits, - _ and .", "Kubernetes label syntax")
		}
	}
	if len(configs) > 1 && in.Explicit("config.map.default") == nil && in.Explicit("config.default") == nil {
		r.at(h.Words[0], "config-fallback", report.Note, "config.map", fmt.Sprintf("%d configs and none named default: a node without the label nvidia.com/device-plugin.config gets none", len(configs)),
			"set config.default, or name one of them default", sourcePlugin)
	}
}
