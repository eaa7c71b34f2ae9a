//go:build e2e

package operator

import (
	"net/http"
	"strings"
	"testing"
)

// TestStaleCRD removes a field from the ClusterPolicy's CRD, as if Helm had not updated it. verify must report
// crd-stale, and so must preflight if the chart does not update CRDs.
func TestStaleCRD(t *testing.T) {
	s := start(t)
	s.enter(t, load(t, "healthy"))
	const path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/clusterpolicies.nvidia.com"
	crd := object(s.do(t, http.MethodGet, path, nil))
	versions, _ := crd.at("spec", "versions").([]any)
	driver, _ := object(versions[0].(map[string]any)).at("schema", "openAPIV3Schema", "properties", "spec",
		"properties", "driver", "properties").(map[string]any)
	delete(driver, "kernelModuleType")
	s.do(t, http.MethodPut, path, crd)
	for _, command := range [][]string{{"verify"},
		{"preflight", "--version", version, "--set", "operator.upgradeCRD=false"}} {
		r := s.gpuop(t, administrator, command...)
		first, _, _ := strings.Cut(r.out, "\n")
		if r.code != 1 || !strings.Contains(first, "the API server drops spec.driver.kernelModuleType [crd-stale]") {
			t.Errorf("%v: exit code %d, first line %q; want 1 and crd-stale\n%s", command, r.code, first, r.log)
		}
	}
}
