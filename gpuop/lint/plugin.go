package lint

import (
	"fmt"
	"regexp"
	"strings"

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

var pluginVersion = regexp.MustCompile(`^v?0\.([0-9]+)\.[0-9]+`)

const sourcePlugin = "k8s-device-plugin deployments/helm/nvidia-device-plugin"

// pluginChart judges an installation of the device plugin's own chart.
func (r *run) pluginChart(s *script, h *helmCommand) {
	r.judged++
	r.kinds = append(r.kinds, "helm "+h.verb+" of nvidia-device-plugin")
	if f := h.flag("--version"); f != nil && !f.value.dynamic {
		if m := pluginVersion.FindStringSubmatch(f.value.value); m != nil && (len(m[1]) < 2 || m[1] < "20") {
			r.at(f.value, "old-version", report.Note, "--version "+f.value.value, "the current chart is 0.20.0; a separate resource for MIG profiles such as 1g.10gb+me came with it", "", sourcePlugin)
		}
	}
	configs, named := 0, false
	for _, f := range h.flags {
		if f.name != "--set-file" || f.value.dynamic {
			continue
		}
		assignments, err := parseSet(f.value.value, false)
		if err != nil {
			r.at(f.value, "set-syntax", report.Failed, f.name+" "+f.value.value, err.Error(), "", sourceHelm)
		}
		for _, a := range assignments {
			name, isMap := strings.CutPrefix(a.path.String(), "config.map.")
			if !isMap {
				continue
			}
			configs++
			named = named || name == "default"
			if !labelValue.MatchString(name) {
				r.at(f.value, "config-map", report.Failed, name, "the name cannot be the value of the node label nvidia.com/device-plugin.config", "use letters, digits, - _ and .", "Kubernetes label syntax")
			}
			r.pluginFile(s, f, scalarText(a.value))
		}
	}
	if configs > 1 && !named && h.flagSetting("config.default") == "" {
		r.at(h.words[0], "config-fallback", report.Note, "config.map", fmt.Sprintf("%d configs and none named default: a node without the label nvidia.com/device-plugin.config gets none", configs),
			"set config.default, or name one of them default", sourcePlugin)
	}
}

// flagSetting is the value of a --set on the command, or "".
func (h *helmCommand) flagSetting(path string) string {
	value := ""
	for _, f := range h.flags {
		if f.name != "--set" && f.name != "--set-string" {
			continue
		}
		assignments, _ := parseSet(f.value.value, true)
		for _, a := range assignments {
			if a.path.String() == path {
				value = scalarText(a.value)
			}
		}
	}
	return value
}

// pluginFile judges a config that --set-file brings to the device plugin's chart, unless the script writes it.
func (r *run) pluginFile(s *script, f *flagUse, name string) {
	if d := s.files[name]; d != nil {
		d.route = sharing.Plugin
		return
	}
	data, err := r.file(s, name)
	if err != nil {
		r.at(f.value, "file-not-read", report.Note, name, "the file is not here, so it is not judged", "run gpuop lint where the file is", "")
		return
	}
	r.parse(text{name: name, data: data, route: sharing.Plugin})
}
