package kube_test

import (
	"testing"
)

const claimsPath = "/apis/resource.k8s.io/v1/namespaces/ml/resourceclaims"

func resourceClaim(name string, results ...any) map[string]any {
	return map[string]any{
		"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
		"metadata": map[string]any{"namespace": "ml", "name": name, "resourceVersion": "1"},
		"status":   map[string]any{"allocation": map[string]any{"devices": map[string]any{"results": results}}},
	}
}

func result(device string, admin any) map[string]any {
	r := map[string]any{"request": "gpu", "driver": "gpu.nvidia.com", "pool": "node-1", "device": device}
	if admin != nil {
		r["adminAccess"] = admin
	}
	return r
}

// A claim's status says which of its devices it holds with admin access. What is not known is read
// behind the question, and the revision says that it was.
func TestClaimsWithAdminAccess(t *testing.T) {
	s := newServer(t)
	s.put(claimsPath,
		resourceClaim("monitor", result("gpu-0", true), result("gpu-1", true)),
		resourceClaim("mixed", result("gpu-0", true), result("gpu-1", false), result("gpu-2", nil)),
		resourceClaim("odd", "x", result("gpu-0", "yes")))
	c, outcomes := s.client()
	claims := c.Claims(t.Context())
	if claims.Admin("ml", "monitor", "gpu.nvidia.com", "node-1", "gpu-0") {
		t.Error("admin access before anything is known")
	}
	until(t, "the claim monitor", func() bool { return claims.Admin("ml", "monitor", "gpu.nvidia.com", "node-1", "gpu-0") })
	if claims.Revision() == 0 {
		t.Error("the answer has changed, and the revision has not")
	}
	claims.Admin("ml", "odd", "gpu.nvidia.com", "node-1", "gpu-0")
	claims.Admin("ml", "absent", "gpu.nvidia.com", "node-1", "gpu-0")
	until(t, "the claim mixed", func() bool { return claims.Admin("ml", "mixed", "gpu.nvidia.com", "node-1", "gpu-0") })
	for of, want := range map[[3]string]bool{
		{"monitor", "node-1", "gpu-1"}: true, {"monitor", "node-2", "gpu-1"}: false, {"monitor", "node-1", "gpu-2"}: false,
		{"mixed", "node-1", "gpu-1"}: false, {"mixed", "node-1", "gpu-2"}: false,
		{"odd", "node-1", "gpu-0"}: false, {"absent", "node-1", "gpu-0"}: false,
	} {
		if got := claims.Admin("ml", of[0], "gpu.nvidia.com", of[1], of[2]); got != want {
			t.Errorf("%v: %t", of, got)
		}
	}
	if claims.Admin("other", "monitor", "gpu.nvidia.com", "node-1", "gpu-0") {
		t.Error("a claim of another namespace has its name alone in common")
	}
	until(t, "what the API server answered", func() bool { _, ok := outcomes.of("resourceclaims"); return ok })
}
