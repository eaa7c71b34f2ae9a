package sharing

import (
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
	const key = "devicePlugin.config.default"
	f := check.Finding{Check: otherChoice, Subject: ConfigLabel}
	wanted := label
	if label == "" {
		f.Subject, wanted = key, defaultName
	}
	switch {
	case wanted == "":
		f.Severity = check.Warning
		f.Reason = "no default and no node label: the operator uses an empty config, so nothing changes"
		f.Fix = "set " + key + ", or label the node " + ConfigLabel + "=<name>"
	case slices.Contains(names, wanted):
		return wanted, true, nil
	default:
		const reason = "the ConfigMap has no config %q: the config manager fails, and the device plugin does not start"
		f.Say(check.Error, reason, wanted)
		f.Fix = "add the config to the ConfigMap"
		if len(names) > 0 {
			f.Fix = check.Suggest(wanted, names, "there are: "+strings.Join(slices.Sorted(slices.Values(names)), ", "))
		}
	}
	return "", wanted == "", &f
}

// NamedConfig is a config with its key in the ConfigMap, to which node labels refer. Config is nil if the text is not a
// mapping.
type NamedConfig struct {
	Name   string
	Config *Config
}

// ParseAny parses a device-plugin config, or a ConfigMap with several configs. A config that is not in a ConfigMap gets
// the given name. The line numbers of findings refer to data.
func ParseAny(data []byte, name string) ([]NamedConfig, []check.Finding) {
	var doc struct {
		Kind string               `yaml:"kind"`
		Data map[string]yaml.Node `yaml:"data"`
	}
	if err := yaml.Unmarshal(data, &doc); err != nil || doc.Kind != "ConfigMap" {
		c, findings := Parse(data)
		return []NamedConfig{{Name: name, Config: c}}, findings
	}
	var named []NamedConfig
	var findings []check.Finding
	if len(doc.Data) == 0 {
		var r fields.Reader
		r.Add(fields.WrongType, check.Error, nil, "data", "the ConfigMap holds no data", "")
		return nil, r.Findings
	}
	for key, n := range doc.Data {
		c, found := Parse([]byte(n.Value))
		named = append(named, NamedConfig{Name: key, Config: c})
		for _, f := range found {
			f.Line += fields.LinesBefore(&n)
			f.Subject = strings.TrimSuffix("data."+key+": "+f.Subject, ": ")
			findings = append(findings, f)
		}
	}
	slices.SortFunc(named, func(a, b NamedConfig) int { return strings.Compare(a.Name, b.Name) })
	return named, findings
}
