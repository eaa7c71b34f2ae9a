package input

import (
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
)

// A Patch stands in a Kustomization itself.
type Patch struct {
	// Text is YAML of a part of an object, or of a list of operations on one of the kind Target.
	Text   *yaml.Node
	Target string
}

// Patches returns the patches of a Kustomization that are texts, not names of files.
func Patches(root *yaml.Node) (out []Patch) {
	for _, list := range []string{"patches", "patchesJson6902", "patchesStrategicMerge"} {
		for _, p := range fields.Items(fields.Get(root, list)) {
			text := fields.Resolve(p)
			if inner := fields.Get(p, "patch"); inner != nil {
				text = fields.Resolve(inner)
			}
			if text.Kind == yaml.ScalarNode && strings.Contains(text.Value, "\n") {
				out = append(out, Patch{Text: text, Target: fields.Text(fields.Get(p, "target"), "kind")})
			}
		}
	}
	return out
}
