package kube_test

import (
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/kube"
	"github.com/gpu-telemetry/dcgm-exporter/internal/podmapper"
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

// get returns what a claim in the namespace ml says about a device of the node.
func get(c *kube.Claims, claim, device, share string) podmapper.Claimed {
	return c.Get("ml", claim, "gpu.nvidia.com", "node-1", device, share)
}

// A claim's status says which devices it holds with admin access. Unknown claims are read in the background. The
// revision changes once they are read.
func TestClaimsWithAdminAccess(t *testing.T) {
	s := newServer(t)
	s.put(claimsPath,
		resourceClaim("monitor", result("gpu-0", true), result("gpu-1", true)),
		resourceClaim("mixed", result("gpu-0", true), result("gpu-1", false), result("gpu-2", nil)),
		resourceClaim("odd", "x", result("gpu-0", "yes")))
	c, outcomes := s.client()
	claims := c.Claims(t.Context())
	for _, claim := range []string{"monitor", "odd", "absent", "mixed"} {
		want(t, claim+" before it is read", get(claims, claim, "gpu-0", ""), podmapper.Claimed{})
	}
	claims.Wait(t.Context())
	if claims.Revision() == 0 {
		t.Error("revision after the claims were read = 0, want more")
	}
	for of, admin := range map[[2]string]bool{
		{"monitor", "gpu-0"}: true, {"monitor", "gpu-1"}: true, {"monitor", "gpu-2"}: false,
		{"mixed", "gpu-0"}: true, {"mixed", "gpu-1"}: false, {"mixed", "gpu-2"}: false,
		{"odd", "gpu-0"}: false, {"absent", "gpu-0"}: false,
	} {
		if got := get(claims, of[0], of[1], "").Admin; got != admin {
			t.Errorf("claim %v: admin access = %t, want %t", of, got, admin)
		}
	}
	if claims.Get("ml", "monitor", "gpu.nvidia.com", "node-2", "gpu-1", "").Admin ||
		claims.Get("other", "monitor", "gpu.nvidia.com", "node-1", "gpu-0", "").Admin {
		t.Error("device of another pool, or claim of another namespace, has admin access, want none")
	}
	until(t, "the API server's outcome", func() bool { _, ok := outcomes.of("resourceclaims"); return ok })
}

// A claim's status says how much of a device's capacity each share consumes, in any format of a quantity.
func TestClaimsOfShares(t *testing.T) {
	s := newServer(t)
	share := func(id string, consumed map[string]any) map[string]any {
		r := result("gpu-0", nil)
		r["shareID"], r["consumedCapacity"] = id, consumed
		return r
	}
	s.put(claimsPath, resourceClaim("shares",
		share("a", map[string]any{"memory": "20Gi", "gpu.nvidia.com/shares": 1}),
		share("b", map[string]any{"memory": "60Gi", "odd": "x"})))
	c, _ := s.client()
	claims := c.Claims(t.Context())
	get(claims, "shares", "gpu-0", "a")
	claims.Wait(t.Context())
	for id, consumed := range map[string]map[string]float64{
		"a": {"memory": 20 << 30, "shares": 1}, "b": {"memory": 60 << 30, "odd": 0},
	} {
		want(t, id, get(claims, "shares", "gpu-0", id), podmapper.Claimed{Read: true, Consumed: consumed})
	}
	want(t, "another share", get(claims, "shares", "gpu-0", "c"), podmapper.Claimed{})
}

// If the API server forbids reading claims, the error is reported, and Get returns it too.
func TestForbiddenClaims(t *testing.T) {
	s := newServer(t)
	s.deny("get", claimsPath, true)
	c, outcomes := s.client()
	claims := c.Claims(t.Context())
	want(t, "before the answer", get(claims, "a", "gpu-0", ""), podmapper.Claimed{})
	claims.Wait(t.Context())
	want(t, "after it", get(claims, "a", "gpu-0", ""), podmapper.Claimed{Forbidden: true})
	if err, ok := outcomes.of("resourceclaims"); !ok || err == nil {
		t.Errorf("reported outcome = %v (reported: %t), want an error", err, ok)
	}
}
