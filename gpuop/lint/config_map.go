package lint

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/sharing"
)

// configs checks settings about ConfigMaps that the chart creates or that the values name.
func (in *installation) configs() {
	for _, c := range []string{"devicePlugin.config", "migManager.config", "dcgmExporter.config"} {
		create := in.Explicit(c + ".create")
		if create == nil || create.Text() != "true" || in.correction(create).Drop {
			continue
		}
		if name, _ := in.Value(c + ".name"); chart.Text(name) == "" {
			reason := "the chart does not render: " + c + ".create=true needs a " + c + ".name"
			in.add(badConfigMap, reason, "set "+c+".name", create)
		}
		if data := in.Explicit(c + ".data"); len(in.Below(c+".data")) == 0 && (data == nil || data.Text() == "") {
			reason := c + ".create=true needs " + c + ".data, otherwise no ConfigMap is created"
			in.add(badConfigMap, reason, "set "+c+".data", create).Severity = check.Warning
		}
	}
	fallback, name := in.Explicit("devicePlugin.config.default"), in.given("devicePlugin.config.name")
	if name != nil && (fallback == nil || fallback.Text() == "") && !in.correction(name).Drop {
		const reason = "without devicePlugin.config.default a node gets no config until it has the label " +
			sharing.ConfigLabel
		in.add(configFallback, reason, "set devicePlugin.config.default to the config for all nodes", name)
	}
}

// configMap is a ConfigMap in an input, or one that the chart creates from values, with its device-plugin configs.
type configMap struct {
	name, file string
	configs    []string
}

// configUse is a reference to a device-plugin config, or to its ConfigMap.
type configUse struct {
	configMap, config string // configMap is empty if the reference is a node label
	at                check.Finding
}

func placeOf(s *model.Setting, prefix string) check.Finding {
	return check.Finding{File: s.File, Line: s.Line, Column: s.Column, Subject: prefix + s.Name()}
}

func (d *doc) place(n *yaml.Node, subject string) check.Finding {
	return check.Finding{File: d.file, Line: n.Line + d.line, Column: n.Column, Subject: subject}
}

// badConfig adds an error, by default one about a ConfigMap.
func (r *run) badConfig(at check.Finding, reason, fix string) {
	at.Check, at.Severity, at.Reason, at.Fix = cmp.Or(at.Check, badConfigMap), check.Error, reason, fix
	r.add("", at)
}

// otherNodes are the nodes that use the default config.
const otherNodes = "every node without the label " + sharing.ConfigLabel

// noConfig reports a reference to a config that does not exist. where is the subject of the sentence, and nodes are
// those that need the config.
func (r *run) noConfig(at check.Finding, where, config, nodes string, configs []string) {
	reason := fmt.Sprintf("%s a config %q: the config manager fails on %s", where, config, nodes)
	r.badConfig(at, reason, check.Suggest(config, configs, "use an existing config: "+strings.Join(configs, ", ")))
}

// notText reports a config that is written as a mapping.
func (r *run) notText(at check.Finding, key string) {
	const reason = "found a mapping, expected a string: a ConfigMap contains only strings"
	r.badConfig(at, reason, "write |- after "+key+":")
}

// configMap checks the configs in a ConfigMap. It reports whether the ConfigMap contains a known kind of config.
func (r *run) configMap(d *doc) (judged bool) {
	m := configMap{name: fields.Text(d.root, "metadata", "name"), file: d.file}
	for _, f := range fields.Of(fields.Get(d.root, "data")) {
		at := d.place(f.Key, "data."+f.Name)
		if f.Value.Kind == yaml.MappingNode {
			if holds := detect(r.table, f.Value); holds == kindMIG || holds == kindPlugin && isPluginConfig(f.Value) {
				judged = true
				r.notText(at, f.Name)
			}
		}
		if f.Value.Kind != yaml.ScalarNode {
			continue
		}
		holds, isConfig := r.embedded(*d, at.Subject, f.Value)
		judged = judged || isConfig
		switch {
		case holds == kindMIG:
			r.migKey(f.Name, at)
		case holds == kindPlugin && len(validation.IsValidLabelValue(f.Name)) == 0:
			m.configs = append(m.configs, f.Name)
		case holds == kindPlugin:
			r.badConfig(at, "the key cannot be the value of the node label "+sharing.ConfigLabel+
				", so no node can select it", "use letters, digits, - _ and .")
		}
	}
	r.configMaps = append(r.configMaps, m)
	return judged
}

// pluginMap is the path of the configs in values of the device plugin's own chart.
const pluginMap = "config.map."

func (r *run) pluginConfig(d *doc) {
	_, findings := sharing.Parse(d.data)
	if strings.HasPrefix(d.where, pluginMap) { // the operator, which would override values, is not used
		findings = slices.DeleteFunc(findings, func(f check.Finding) bool { return f.Check == sharing.Overridden })
	}
	r.report(d, findings)
}

// pluginValues checks the configs in values of the device plugin's own chart, and reports whether there are any.
func (r *run) pluginValues(d *doc) (judged bool) {
	var names []string
	for _, f := range fields.Of(fields.Get(d.root, "config", "map")) {
		_, isConfig := r.embedded(*d, pluginMap+f.Name, f.Value)
		names, judged = append(names, f.Name), judged || isConfig
	}
	chosen := fields.Get(d.root, "config", "default")
	if judged && chosen != nil && chosen.Value != "" && !slices.Contains(names, chosen.Value) {
		r.noConfig(d.place(chosen, "config.default"), "config.map does not have", chosen.Value, otherNodes, names)
	}
	return judged
}

// migKey reports a key that the MIG manager does not read.
func (r *run) migKey(key string, at check.Finding) {
	if key != "config.yaml" {
		reason := fmt.Sprintf("found the key %q: the MIG manager reads only the key config.yaml of its ConfigMap", key)
		r.badConfig(at, reason, "write config.yaml")
	}
}

// embeddedData checks the configs from which the chart creates ConfigMaps.
func (r *run) embeddedData(in *installation) {
	plugin := in.Below("devicePlugin.config.data")
	if made := in.given("devicePlugin.config.name"); made != nil {
		m := configMap{name: made.Text(), file: made.File}
		for _, s := range plugin {
			m.configs = append(m.configs, s.Path[3])
		}
		r.configMaps = append(r.configMaps, m)
	}
	for _, s := range append(plugin, in.Below("migManager.config.data")...) {
		at := placeOf(s, "")
		if s.Node == nil {
			continue
		}
		if len(s.Path) > 4 {
			at.Line, at.Column, at.Subject = s.Keys[3].Line+s.Shift, s.Keys[3].Column, s.Path[:4].String()
			r.notText(at, s.Path[3]) // equal findings about several keys are merged
		} else if _, isText := s.Value.(string); isText {
			if s.Path[0] == "migManager" {
				r.migKey(s.Path[3], at)
			}
			r.embedded(doc{file: s.File, line: s.Shift}, s.Name(), s.Node)
		}
	}
}

// configUses records which configs and ConfigMaps the settings refer to.
func (r *run) configUses(in *installation, prefix string) {
	name := in.given("devicePlugin.config.name")
	if name == nil {
		return
	}
	r.uses = append(r.uses, configUse{configMap: name.Text(), at: placeOf(name, prefix)})
	if config := in.given("devicePlugin.config.default"); config != nil {
		use := configUse{configMap: name.Text(), config: config.Text(), at: placeOf(config, prefix)}
		r.uses = append(r.uses, use)
	}
}

// joinConfigs checks that the references match the ConfigMaps of the input. A missing ConfigMap may exist in the
// cluster, so it is reported only if a ConfigMap in the same file has a similar name.
func (r *run) joinConfigs() {
	for _, use := range r.uses {
		var configs, beside []string
		for _, m := range r.configMaps {
			if use.configMap == "" || m.name == use.configMap {
				configs = append(configs, m.configs...)
			} else if m.file == use.at.File && len(m.configs) > 0 {
				beside = append(beside, m.name)
			}
		}
		slices.Sort(configs)
		configs = slices.Compact(configs)
		near := check.Nearest(use.configMap, beside)
		switch {
		case len(configs) == 0 && use.config == "" && near != "":
			const reason = "ConfigMap %q not found: the device plugin's pods cannot start without it"
			r.badConfig(use.at, fmt.Sprintf(reason, use.configMap), "write "+near)
		case len(configs) == 0 || use.config == "" || slices.Contains(configs, use.config):
		case use.configMap == "":
			use.at.Check = configLabel
			r.noConfig(use.at, "no ConfigMap in the input has", use.config, "this node", configs)
		default:
			r.noConfig(use.at, "the ConfigMap "+use.configMap+" does not have", use.config, otherNodes, configs)
		}
	}
}
