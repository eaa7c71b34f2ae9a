package sharing

import (
	"cmp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
)

// ConfigLabel is the node label that selects a config.
const ConfigLabel = "nvidia.com/device-plugin.config"

// Choose selects the config of a node as the operator's config manager does: by the label, then by the default. If name
// is empty and ok is true, the node has no config. If ok is false, the config manager fails and the plugin does not
// start. problem is nil or a finding about the choice.
func Choose(names []string, label, defaultName string) (name string, ok bool, problem *check.Finding) {
	f := check.Finding{Check: otherChoice, Subject: ConfigLabel}
	if label == "" {
		f.Subject = "devicePlugin.config.default"
	}
	wanted := cmp.Or(label, defaultName)
	switch {
	case wanted == "":
		f.Say(check.Warning, "no default and no node label: the operator uses an empty config, so nothing changes")
		f.Fix = "set " + f.Subject + ", or label the node " + ConfigLabel + "=<name>"
	case slices.Contains(names, wanted):
		return wanted, true, nil
	default:
		f.Say(check.Error,
			"the ConfigMap has no config %q: the config manager fails, and the device plugin does not start", wanted)
		f.Fix = check.Suggest(wanted, names, "the ConfigMap has the configs "+
			cmp.Or(strings.Join(slices.Sorted(slices.Values(names)), ", "), "(none)"))
	}
	return "", wanted == "", &f
}

// ParseAny parses a device-plugin config, or a ConfigMap with several configs. It returns the configs by their keys in
// the ConfigMap, to which node labels refer. A config that is not in a ConfigMap gets the given name. A config that is
// not a mapping is nil. The line numbers of findings refer to data.
func ParseAny(data []byte, name string) (map[string]*Config, []check.Finding) {
	var doc struct {
		Kind string               `yaml:"kind"`
		Data map[string]yaml.Node `yaml:"data"`
	}
	if err := yaml.Unmarshal(data, &doc); err != nil || doc.Kind != "ConfigMap" {
		c, findings := Parse(data)
		return map[string]*Config{name: c}, findings
	}
	var r fields.Reader
	if len(doc.Data) == 0 {
		r.Add(fields.WrongType, check.Error, nil, "data", "the ConfigMap holds no data", "")
	}
	configs := map[string]*Config{}
	for key, n := range doc.Data {
		c, found := Parse([]byte(n.Value))
		configs[key] = c
		for _, f := range found {
			f.Line += fields.LinesBefore(&n)
			f.Subject = strings.TrimSuffix("data."+key+": "+f.Subject, ": ")
			r.Findings = append(r.Findings, f)
		}
	}
	return configs, r.Findings
}
