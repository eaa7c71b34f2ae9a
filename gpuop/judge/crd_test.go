package judge_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/judge"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/material"
)

// realCRDs returns the CRDs of v26.7.0.
func realCRDs(t *testing.T) []cluster.CRD {
	t.Helper()
	var all []cluster.CRD
	for _, name := range []string{"clusterpolicies", "nvidiadrivers", "gpuclusters"} {
		var crd map[string]any
		data := material.Read(t, "data/upstream/gpu-operator-v26.7.0/crds/nvidia.com_"+name+".yaml")
		if err := yaml.Unmarshal(data, &crd); err != nil {
			t.Fatal(err)
		}
		versions, _, _ := unstructured.NestedSlice(crd, "spec", "versions")
		schema, found, _ := unstructured.NestedMap(versions[len(versions)-1].(map[string]any), "schema", "openAPIV3Schema")
		if !found {
			t.Fatalf("%s has no schema", name)
		}
		all = append(all, cluster.CRD{Name: name + ".nvidia.com", Schema: schema})
	}
	return all
}

// TestStaleCRDs verifies the cases in testdata/crd.yaml. A case with a release or values is about an upgrade, which
// Preflight checks.
func TestStaleCRDs(t *testing.T) {
	s := healthy(t)
	s.ClusterPolicies[0].SetLabels(map[string]string{"helm.sh/chart": "gpu-operator-v26.7.0"})
	s.CRDs, s.Namespaces, s.Quotas = realCRDs(t), []corev1.Namespace{}, []corev1.ResourceQuota{}
	file := load[row](t, "crd.yaml")
	for _, c := range file.States {
		t.Run(c.Name, func(t *testing.T) {
			o, run := options, judge.Verify
			if c.Version != "" || c.Values != nil {
				run, o.Values = judge.Preflight, c.Values
			}
			if c.Version != "" {
				o.Release = release(t, c.Version)
			}
			rows := evidenced(t, run(patched(t, s, file.Bases[c.Base], c.Patch), o))
			rows = slices.DeleteFunc(rows, func(v check.Finding) bool { return v.Check.ID != "crd-stale" })
			if len(rows) != len(c.Want) || len(rows) > 0 && !c.Want[0].in(rows) {
				t.Errorf("findings = %+v, want %v", rows, c.Want)
			}
			if len(rows) > 0 && rows[0].Severity == check.Error && !strings.Contains(rows[0].Fix, "helm show crds") {
				t.Errorf("fix = %q, want it to contain helm show crds", rows[0].Fix)
			}
		})
	}
}
