package lint

import (
	"path"
	"slices"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
)

// kustomizations are the names under which Kustomize finds what a folder is made of.
var kustomizations = []string{"kustomization.yaml", "kustomization.yml", "Kustomization"}

// isPatch reports whether the Kustomization beside the file takes it for a patch, which may lack required fields.
func (r *run) isPatch(file string) bool {
	for _, name := range kustomizations {
		data, _, err := r.beside(file, name)
		if err != nil {
			continue
		}
		var reader fields.Reader
		root := reader.Document(model.TrimBOM(data))
		var names []string
		for _, n := range fields.Items(fields.Get(root, "patchesStrategicMerge")) {
			names = append(names, n.Value)
		}
		for _, n := range fields.Items(fields.Get(root, "patches")) {
			names = append(names, fields.Text(n, "path"))
		}
		if slices.ContainsFunc(names, func(name string) bool { return path.Clean(name) == path.Base(file) }) {
			return true
		}
	}
	return false
}
