package sharing

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// Named is a config with the name under which a ConfigMap, and so a node label, knows it. Config is
// nil where the text is not a mapping.
type Named struct {
	Name   string
	Config *Config
}

// ParseAny reads a device-plugin file of the GPU Operator's, or a ConfigMap that holds several, and names what it found:
// a bare file gets the name that is given. Lines in findings count from the top of the data.
func ParseAny(data []byte, name string) ([]Named, []report.Row) {
	var doc struct {
		Kind string               `yaml:"kind"`
		Data map[string]yaml.Node `yaml:"data"`
	}
	if err := yaml.Unmarshal(data, &doc); err != nil || doc.Kind != "ConfigMap" {
		c, findings := Parse(data, Operator)
		return []Named{{Name: name, Config: c}}, findings
	}
	var named []Named
	var findings []report.Row
	if len(doc.Data) == 0 {
		return nil, []report.Row{{ID: fields.RuleType, State: report.Failed, Subject: "data", Reason: "the ConfigMap holds no data"}}
	}
	for key, n := range doc.Data {
		offset := n.Line
		if n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) == 0 {
			offset = n.Line - 1
		}
		c, found := Parse([]byte(n.Value), Operator)
		named = append(named, Named{Name: key, Config: c})
		for _, f := range found {
			f.Line += offset
			f.Subject = strings.TrimSuffix("data."+key+": "+f.Subject, ": ")
			findings = append(findings, f)
		}
	}
	slices.SortFunc(named, func(a, b Named) int { return strings.Compare(a.Name, b.Name) })
	return named, findings
}
