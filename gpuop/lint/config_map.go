package lint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// configs judges the ConfigMaps that the chart can create or that it names.
func (in *installation) configs() {
	for _, c := range []string{"devicePlugin", "migManager", "dcgmExporter"} {
		create := in.Explicit(c + ".config.create")
		if create == nil || create.Text() != "true" || in.correction(create).Drop {
			continue
		}
		if name, _ := in.Value(c + ".config.name"); model.ScalarText(name) == "" {
			in.add("config-map", report.Failed, "the chart refuses to render: "+c+".config.create=true needs a "+c+".config.name", "set "+c+".config.name", create)
		}
		if data := in.Explicit(c + ".config.data"); len(in.Below(c+".config.data")) == 0 && (data == nil || data.Text() == "") {
			in.add("config-map", report.Failed, c+".config.create=true needs "+c+".config.data, or no ConfigMap is made", "set "+c+".config.data", create)
		}
	}
	fallback := in.Explicit("devicePlugin.config.default")
	in.fallbackConfig(fallback)
	if name := in.Explicit("devicePlugin.config.name"); name != nil && name.Text() != "" && !in.correction(name).Drop && (fallback == nil || fallback.Text() == "") {
		in.add("config-fallback", report.Note, "without devicePlugin.config.default a node gets no config until it has the label nvidia.com/device-plugin.config",
			"set devicePlugin.config.default to the config for all nodes", name)
	}
}

// fallbackConfig judges the config for nodes that select none.
func (in *installation) fallbackConfig(fallback *model.Setting) {
	data := in.Below("devicePlugin.config.data")
	if fallback == nil || fallback.Text() == "" || len(data) == 0 {
		return
	}
	var names []string
	for _, s := range data {
		names = append(names, s.Path[len(s.Path)-1])
	}
	if !slices.Contains(names, fallback.Text()) {
		fix := "the configs are " + strings.Join(names, ", ")
		if near := report.Nearest(fallback.Text(), names); near != "" {
			fix = "write " + near
			in.set(fallback, near)
		}
		in.add("config-map", report.Failed, fmt.Sprintf("no config %q in devicePlugin.config.data; the config-manager of every node exits", fallback.Text()), fix, fallback)
	}
}

// A configMap is one of the input with configs for the device plugin, or counters for the exporter.
type configMap struct {
	name, file string
	configs    []string
	// counters are the keys that hold counters of the exporter and that the operator does not mount.
	counters []report.Row
}

// A configUse is a place that names a config of the device plugin, or the ConfigMap that has it.
type configUse struct {
	configMap, config string
	// label says that it is the label of a node.
	label bool
	at    report.Row
}

// configUses notes the ConfigMap and the config that the values or fields name, unless the chart makes the ConfigMap.
func (r *run) configUses(in *installation, prefix string) {
	if s := in.Explicit("dcgmExporter.config.name"); s != nil && !s.Unknown && !in.Is("dcgmExporter.config.create", true) {
		r.counters = append(r.counters, s.Text())
	}
	name, config := in.Explicit("devicePlugin.config.name"), in.Explicit("devicePlugin.config.default")
	if name == nil || name.Unknown || in.Is("devicePlugin.config.create", true) {
		return
	}
	use := func(s *model.Setting, config string) {
		r.uses = append(r.uses, configUse{configMap: name.Text(), config: config,
			at: report.Row{File: s.File, Line: s.Line, Column: s.Column, Subject: prefix + s.Name()}})
	}
	use(name, "")
	if config != nil && !config.Unknown && config.Text() != "" {
		use(config, config.Text())
	}
}

// joinConfigs compares what names a config with the ConfigMaps of the input. A ConfigMap that is not there may be in the
// cluster, unless the same file has one of almost the same name.
func (r *run) joinConfigs() {
	for _, m := range r.configMaps {
		for _, row := range m.counters {
			row.State, row.Reason = report.Note, "an exporter of the operator reads "+countersKey+" alone; another exporter may read this key"
			if slices.Contains(r.counters, m.name) {
				row.State, row.Reason = report.Failed, "the operator mounts the key "+countersKey+" of the exporter's ConfigMap; under another name the file is not found"
				row.Fix = "write " + countersKey
			}
			r.findings = append(r.findings, row)
		}
	}
	for _, use := range r.uses {
		var configs, maps, beside []string
		for _, m := range r.configMaps {
			maps = append(maps, m.name)
			if use.label || m.name == use.configMap {
				configs = append(configs, m.configs...)
			} else if m.file == use.at.File {
				beside = append(beside, m.name)
			}
		}
		slices.Sort(configs)
		configs = slices.Compact(configs)
		row := use.at
		row.ID, row.State, row.Source = "config-map", report.Failed, "k8s-device-plugin cmd/config-manager"
		switch {
		case len(configs) == 0 && use.config == "":
			near := report.Nearest(use.configMap, beside)
			row.Reason, row.Fix = fmt.Sprintf("no ConfigMap here has the name %q: the device plugin's pods wait for it", use.configMap), "write "+near
			if near == "" {
				continue
			}
		case len(configs) == 0 || use.config == "" || slices.Contains(configs, use.config):
			continue
		case use.label:
			row.ID = "config-label"
			row.Reason = fmt.Sprintf("no ConfigMap here has a config %q: the config-manager of the node exits", use.config)
		default:
			row.Reason = fmt.Sprintf("the ConfigMap %s has no config %q: the config-manager of every node exits", use.configMap, use.config)
		}
		if row.Fix == "" {
			row.Fix = write(use.config, configs, "the configs are "+strings.Join(configs, ", "))
			if slices.Contains(maps, use.config) {
				row.Fix = "write the name of a config, not of the ConfigMap: " + alternatives(configs)
			}
		}
		r.findings = append(r.findings, row)
	}
}
