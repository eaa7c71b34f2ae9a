package preflight

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/node"
)

// settings are what the chart is, or will be, installed with.
type settings struct {
	values  []map[string]any // of the files, the last wins
	policy  map[string]any   // the spec of the ClusterPolicy, where no values are given
	table   *chart.Table
	version chart.Version
}

// policyPaths are the settings whose place in the ClusterPolicy is not theirs in the values.
var policyPaths = map[string]string{"driver.nvidiaDriverCRD.enabled": "driver.useNvidiaDriverCRD"}

// get returns a setting, and where it was found; nil where none is known.
func (s *settings) get(path string) any {
	for i := len(s.values) - 1; i >= 0; i-- {
		if v, found, err := unstructured.NestedFieldNoCopy(s.values[i], strings.Split(path, ".")...); found && err == nil {
			return v
		}
	}
	in := path
	if p, known := policyPaths[path]; known {
		in = p
	}
	if v, found, err := unstructured.NestedFieldNoCopy(s.policy, strings.Split(in, ".")...); found && err == nil {
		return v
	}
	v, _ := s.table.Default(s.version, path)
	return v
}

func (s *settings) is(path string) bool { b, _ := s.get(path).(bool); return b }

// tolerations returns those of a list, as it is written.
func (s *settings) tolerations(path string) []node.Toleration {
	list, _ := s.get(path).([]any)
	var out []node.Toleration
	for _, each := range list {
		m, _ := each.(map[string]any)
		text := func(k string) string { t, _ := m[k].(string); return t }
		out = append(out, node.Toleration{Key: text("key"), Operator: text("operator"), Value: text("value"), Effect: text("effect")})
	}
	return out
}
