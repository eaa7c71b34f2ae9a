package release

import (
	"bytes"
	"fmt"
	"regexp"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
)

// label is where Helm's charts write their release into every object.
var label = regexp.MustCompile(`(?m)^\s*helm\.sh/chart:\s*"?gpu-operator-(v?[0-9]+\.[0-9]+\.[0-9]+)"?\s*$`)

// installed reads what helm get says of an installed release. Values are those in force, defaults
// and the user's own together; a manifest names the release, and the parts of the ClusterPolicy
// that its templates write.
func installed(name string, data []byte) (*chart.Release, error) {
	data = bytes.TrimPrefix(data, []byte("COMPUTED VALUES:\n"))
	if m := label.FindSubmatch(data); m != nil {
		return manifest(name, string(m[1]), data)
	}
	all, err := values(data)
	if err != nil || all["operator"] == nil || all["driver"] == nil {
		return nil, fmt.Errorf("%w %s: no chart, and not what helm get values -a or helm get manifest print", ErrChart, name)
	}
	return &chart.Release{Values: all, Reads: map[string]chart.Use{}}, nil
}

func manifest(name, version string, data []byte) (*chart.Release, error) {
	v, err := chart.ParseVersion(version)
	if err != nil {
		return nil, fmt.Errorf("%w %s: %w", ErrChart, name, err)
	}
	r := &chart.Release{Version: v, AppVersion: v.String(), Reads: map[string]chart.Use{}}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var object struct {
			Kind string         `yaml:"kind"`
			Spec map[string]any `yaml:"spec"`
		}
		if err := decoder.Decode(&object); err != nil {
			break
		}
		if object.Kind == "ClusterPolicy" {
			r.Values, _ = plain(object.Spec).(map[string]any)
		}
	}
	if r.Values == nil {
		return nil, fmt.Errorf("%w %s: the manifest has no ClusterPolicy", ErrChart, name)
	}
	return r, nil
}
