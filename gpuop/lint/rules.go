package lint

import (
	"maps"
	"slices"
	"strings"
)

// Sources of the facts.
const (
	sourceValues     = "gpu-operator values.yaml, tags v1.7.0 to v26.7.0"
	sourceTemplates  = "gpu-operator deployments/gpu-operator/templates"
	sourceOperator   = "gpu-operator controllers/object_controls.go"
	sourceMatrix     = "GPU Operator component matrix"
	sourceDocs       = "GPU Operator documentation"
	sourceCRD        = "gpu-operator custom resource definitions, v26.7.0"
	sourceKubernetes = "Kubernetes documentation: schedule GPUs, device plugins"
)

// rules run in this order: later ones look at what earlier ones dropped.
var rules = []func(*installation){
	(*installation).keys, (*installation).twice, (*installation).types, (*installation).images,
	(*installation).dead, (*installation).contradictions, (*installation).oldDefaults, (*installation).versions,
}

// judge runs every rule on the installation.
func (in *installation) judge() {
	for _, rule := range rules {
		rule(in)
	}
}

// names are the keys of a map, in order.
func names[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// list names the default driver and the branches.
func list(versions []string) string {
	if len(versions) == 1 {
		return versions[0]
	}
	var branches []string
	for _, v := range versions {
		b, _, _ := strings.Cut(v, ".")
		if !slices.Contains(branches, b) {
			branches = append(branches, b)
		}
	}
	return versions[0] + " (or branch " + alternatives(branches) + ")"
}
