package lint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// configs judges the ConfigMaps that the chart can create or that it names.
func (in *installation) configs() {
	for _, c := range []string{"devicePlugin", "migManager", "dcgmExporter"} {
		create := in.explicit(c + ".config.create")
		if create == nil || create.text() != "true" || create.edit.Drop {
			continue
		}
		if name, _ := in.value(c + ".config.name"); scalarText(name) == "" {
			in.add("config-map", report.Failed, "the chart refuses to render: "+c+".config.create=true needs a "+c+".config.name", "set "+c+".config.name", sourceTemplates, create)
		}
		if data := in.explicit(c + ".config.data"); len(in.below(c+".config.data")) == 0 && (data == nil || data.text() == "") {
			in.add("config-map", report.Failed, c+".config.create=true needs "+c+".config.data, or no ConfigMap is made", "set "+c+".config.data", sourceTemplates, create)
		}
	}
	fallback := in.explicit("devicePlugin.config.default")
	in.fallbackConfig(fallback)
	if name := in.explicit("devicePlugin.config.name"); name != nil && name.text() != "" && !name.edit.Drop && (fallback == nil || fallback.text() == "") {
		in.add("config-fallback", report.Note, "without devicePlugin.config.default a node gets no config until it has the label nvidia.com/device-plugin.config",
			"set devicePlugin.config.default to the config for all nodes", sourceOperator, name)
	}
}

// fallbackConfig judges the config for nodes that select none.
func (in *installation) fallbackConfig(fallback *setting) {
	data := in.below("devicePlugin.config.data")
	if fallback == nil || fallback.text() == "" || len(data) == 0 {
		return
	}
	var names []string
	for _, s := range data {
		names = append(names, s.Path[len(s.Path)-1])
	}
	if !slices.Contains(names, fallback.text()) {
		fix := "the configs are " + strings.Join(names, ", ")
		if near := report.Nearest(fallback.text(), names); near != "" {
			fix, fallback.edit.Value = "write "+near, &near
		}
		in.add("config-map", report.Failed, fmt.Sprintf("no config %q in devicePlugin.config.data; the config-manager of every node exits", fallback.text()), fix, "k8s-device-plugin cmd/config-manager", fallback)
	}
}
