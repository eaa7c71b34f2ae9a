package lint

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/sharing"
)

const pluginChartName = "nvidia-device-plugin"

// pluginKeys are the values of the device plugin's own chart, from
// deployments/helm/nvidia-device-plugin/values.yaml of k8s-device-plugin at v0.20.0 and the
// releases before.
var pluginKeys = []string{"affinity", "allowDefaultNamespace", "cdi", "cdi-feature-discovery", "cdiEnabled", "compatWithCPUManager", "config", "deviceDiscoveryStrategy", "deviceIDStrategy",
	"deviceListStrategy", "devicePlugin", "failOnInitError", "fullnameOverride", "gdrcopyEnabled", "gdsEnabled", "gfd", "hostNetwork", "image", "imagePullSecrets", "legacyDaemonsetAPI",
	"migStrategy", "mofedEnabled", "mps", "nameOverride", "namespaceOverride", "nfd", "node-feature-discovery", "nodeSelector", "nvidiaDriverRoot", "nvidiaDevRoot", "nvidiaCTKPath", "podAnnotations",
	"podLabels", "podSecurityContext", "priorityClassName", "resources", "runtimeClassName", "securityContext", "selectorLabelsOverride", "tolerations", "updateStrategy", "extraEnvs", "serviceAccount",
	"cdiHookPath", "cdiAnnotationPrefix", "nvidiaCdiHookPath", "containerDriverRoot", "sleepInterval"}

// pluginMarks are keys that the device plugin's chart has and the operator's has not.
var pluginMarks = []string{"compatWithCPUManager", "deviceIDStrategy", "deviceListStrategy", "failOnInitError", "migStrategy", "legacyDaemonsetAPI", "nvidiaDriverRoot", "deviceDiscoveryStrategy", "gdsEnabled", "mofedEnabled", "runtimeClassName"}

// driverMarks are keys of NVIDIA's charts for dynamic resource allocation.
var driverMarks = []string{"kubeletPlugin", "gpuResourcesEnabledOverride"}

// isPluginValues reports whether a document is a values file of the device plugin's own chart.
func isPluginValues(root *yaml.Node) bool {
	if m := fields.Get(root, "config", "map"); m != nil && m.Kind == yaml.MappingNode {
		return true
	}
	image := fields.Text(root, "image", "repository")
	if strings.HasSuffix(image, "/k8s-device-plugin") {
		return true
	}
	if slices.ContainsFunc(driverMarks, func(name string) bool { return fields.Get(root, name) != nil }) {
		return false
	}
	marks, others := 0, 0
	for _, f := range fields.Of(root) {
		switch {
		case slices.Contains(pluginMarks, f.Name), f.Name == "nfd" && fields.Get(f.Value, "worker") != nil:
			marks++
		case !slices.Contains(pluginKeys, f.Name):
			others++
		}
	}
	return marks > others
}

// pluginValues judges the keys of the device plugin's own chart, and the configs in config.map.
func (r *run) pluginValues(d *doc) {
	r.judged++
	reader := &fields.Reader{Unknown: "the chart nvidia-device-plugin has no such key and ignores it"}
	reader.Mapping(d.root, "", pluginKeys...)
	var configs []string
	for _, f := range fields.Of(fields.Get(d.root, "config", "map")) {
		configs = append(configs, f.Name)
		if f.Value.Kind == yaml.ScalarNode {
			r.embedded(d.file, "config.map."+f.Name, f.Value, d.line, sharing.Plugin)
		}
	}
	if n := fields.Get(d.root, "config", "default"); n != nil && n.Value != "" && len(configs) > 0 && report.Nearest(n.Value, configs) != n.Value {
		reader.Add("config-map", report.Failed, n, "config.default", "no config of this name in config.map; the plugin of every node exits", "the configs are "+strings.Join(configs, ", "))
	}
	r.report(d, reader.Findings)
}
