package lint_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/charts"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
)

// rulesBelow adds the messages of the CEL rules in a CRD to out.
func rulesBelow(n any, kind string, out map[string]bool) {
	switch n := n.(type) {
	case []any:
		for _, e := range n {
			rulesBelow(e, kind, out)
		}
	case map[string]any:
		if names, ok := n["names"].(map[string]any); ok {
			kind = fmt.Sprint(names["kind"])
		}
		if rules, ok := n["x-kubernetes-validations"].([]any); ok {
			for _, r := range rules {
				out[kind+": "+strings.Join(strings.Fields(fmt.Sprint(r.(map[string]any)["message"])), " ")] = true
			}
		}
		for _, e := range n {
			rulesBelow(e, kind, out)
		}
	}
}

// TestRulesOfTheDefinitions lists the CEL rules in the CRDs of all releases, so that a new rule fails it. Of these,
// gpuop checks the rule about nodeSelector. For the other rules, the API server's messages are clear enough.
func TestRulesOfTheDefinitions(t *testing.T) {
	files := folder.Files(t, charts.Data(t), "*", "crds", "nvidia.com_*.yaml")
	if len(files) < 42 {
		t.Fatalf("CRD files = %d, want at least 42", len(files))
	}
	rules := map[string]bool{}
	for _, f := range files {
		var definition map[string]any
		if err := yaml.Unmarshal(read(t, f), &definition); err != nil {
			t.Fatal(err)
		}
		rulesBelow(definition["spec"], "", rules)
	}
	want := []string{
		"GPUCluster: GPUCluster is a singleton, metadata.name must be 'gpu-cluster'",
		"NVIDIADriver: default NVIDIADriver must not use nodeSelector",
		"NVIDIADriver: driverType is an immutable field. Please create a new NvidiaDriver resource instead when you want to change this setting.",
		"NVIDIADriver: usePrecompiled is an immutable field. Please create a new NvidiaDriver resource instead when you want to change this setting.",
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(rules))); diff != "" {
		t.Errorf("rules in CEL (-want +got):\n%s", diff)
	}
}
