package judge_test

import (
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

func TestStaleCRDs(t *testing.T) {
	old := func(s *cluster.State) {
		t.Helper()
		unstructured.RemoveNestedField(s.CRDs[0].Schema, "properties", "spec", "properties", "driver", "properties", "kernelModuleType")
		unstructured.RemoveNestedField(s.CRDs[0].Schema, "properties", "spec", "properties", "hostPaths")
	}
	newest := judge.Options{Table: options.Table, Release: release(t, "v26.7.0")}
	dropped := "the API server drops spec.driver.kernelModuleType, spec.hostPaths"
	for name, test := range map[string]struct {
		change    func(*cluster.State)
		preflight bool
		options   judge.Options
		severity  check.Severity
		reason    string // part of the reason; empty if no finding is expected
	}{
		"CRDs of the release": {options: options},
		"CRDs not upgraded":   {change: old, options: options, severity: check.Error, reason: dropped},
		"no release label": {change: func(s *cluster.State) {
			old(s)
			s.ClusterPolicies[0].SetLabels(nil)
		}, options: options},
		"label with an unknown release": {change: func(s *cluster.State) {
			old(s)
			s.ClusterPolicies[0].SetLabels(map[string]string{"helm.sh/chart": "gpu-operator-v26.7.9"})
		}, options: options},
		"CRDs not installed": {change: func(s *cluster.State) {
			s.NVIDIADrivers, s.CRDs = nil, s.CRDs[:1]
			s.Missing = append(s.Missing, cluster.Missing{Kind: cluster.NVIDIADrivers, Why: cluster.Absent})
		}, options: options, severity: check.Error, reason: "not installed, but needed by the operator of v26.7.0: nvidiadrivers.nvidia.com"},
		"CRDs without schemas": {change: func(s *cluster.State) {
			for i := range s.CRDs {
				s.CRDs[i].Schema = nil
			}
		}, options: options},
		"old CRDs before an upgrade": {change: old, preflight: true, options: newest, severity: check.OK, reason: "helm upgrade adds the fields"},
		"old CRDs before an upgrade without the hook": {change: old, preflight: true, severity: check.Error, reason: dropped,
			options: judge.Options{Table: options.Table, Values: map[string]any{"operator": map[string]any{"upgradeCRD": false}}}},
		"CRDs left over from an earlier installation": {change: func(s *cluster.State) {
			old(s)
			s.ClusterPolicies = []unstructured.Unstructured{}
		}, preflight: true, options: newest, severity: check.Error, reason: dropped},
	} {
		t.Run(name, func(t *testing.T) {
			s := healthy(t)
			s.ClusterPolicies[0].SetLabels(map[string]string{"helm.sh/chart": "gpu-operator-v26.7.0"})
			s.CRDs, s.Namespaces, s.Quotas = realCRDs(t), []corev1.Namespace{}, []corev1.ResourceQuota{}
			if test.change != nil {
				test.change(s)
			}
			run := judge.Verify
			if test.preflight {
				run = judge.Preflight
			}
			var got []check.Finding
			for _, v := range evidenced(t, run(s, test.options)) {
				if v.Check.ID == "crd-stale" {
					got = append(got, v)
				}
			}
			switch {
			case test.reason == "" && len(got) > 0:
				t.Errorf("findings = %+v, want none", got)
			case test.reason != "" && (len(got) != 1 || got[0].Severity != test.severity || !strings.Contains(got[0].Reason, test.reason)):
				t.Errorf("findings = %+v, want one that is %s and says %q", got, test.severity, test.reason)
			case test.severity == check.Error && !strings.Contains(got[0].Fix, "helm show crds"):
				t.Errorf("fix = %q, want it to contain helm show crds", got[0].Fix)
			}
		})
	}
}
