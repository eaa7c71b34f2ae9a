package kube_test

import (
	"testing"

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
	want(t, "a claim before it is read", claims.Get("ml", "monitor", "gpu.nvidia.com", "node-1", "gpu-0", ""), podmapper.Claimed{})
	until(t, "the claim monitor", func() bool { return claims.Get("ml", "monitor", "gpu.nvidia.com", "node-1", "gpu-0", "").Admin })
	if claims.Revision() == 0 {
		t.Error("revision after the claim was read = 0, want more")
	}
	claims.Get("ml", "odd", "gpu.nvidia.com", "node-1", "gpu-0", "")
	claims.Get("ml", "absent", "gpu.nvidia.com", "node-1", "gpu-0", "")
	until(t, "the claim mixed", func() bool { return claims.Get("ml", "mixed", "gpu.nvidia.com", "node-1", "gpu-0", "").Admin })
	for of, want := range map[[3]string]bool{
		{"monitor", "node-1", "gpu-1"}: true, {"monitor", "node-2", "gpu-1"}: false, {"monitor", "node-1", "gpu-2"}: false,
		{"mixed", "node-1", "gpu-1"}: false, {"mixed", "node-1", "gpu-2"}: false,
		{"odd", "node-1", "gpu-0"}: false, {"absent", "node-1", "gpu-0"}: false,
	} {
		if got := claims.Get("ml", of[0], "gpu.nvidia.com", of[1], of[2], "").Admin; got != want {
			t.Errorf("claim %v: admin access = %t, want %t", of, got, want)
		}
	}
	if claims.Get("other", "monitor", "gpu.nvidia.com", "node-1", "gpu-0", "").Admin {
		t.Error("claim of another namespace has admin access, want none")
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
		share("a", map[string]any{"memory": "20Gi", "gpu.nvidia.com/shares": 1}), share("b", map[string]any{"memory": "60Gi", "odd": "x"})))
	c, _ := s.client()
	claims := c.Claims(t.Context())
	get := func(id string) podmapper.Claimed {
		return claims.Get("ml", "shares", "gpu.nvidia.com", "node-1", "gpu-0", id)
	}
	until(t, "the claim", func() bool { return get("a").Consumed != nil })
	want(t, "a", get("a"), podmapper.Claimed{Read: true, Consumed: map[string]float64{"memory": 20 << 30, "shares": 1}})
	want(t, "b", get("b"), podmapper.Claimed{Read: true, Consumed: map[string]float64{"memory": 60 << 30, "odd": 0}})
	want(t, "another share", get("c"), podmapper.Claimed{})
}

// Wait returns once all requested claims are read.
func TestClaimsAreReadAfterWait(t *testing.T) {
	s := newServer(t)
	s.put(claimsPath, resourceClaim("a", result("gpu-0", nil)), resourceClaim("b", result("gpu-1", nil)))
	c, _ := s.client()
	claims := c.Claims(t.Context())
	read := func(claim, device string) bool {
		return claims.Get("ml", claim, "gpu.nvidia.com", "node-1", device, "").Read
	}
	if read("a", "gpu-0") || read("b", "gpu-1") {
		t.Error("claim is known before it was read, want it unknown")
	}
	claims.Wait(t.Context())
	if !read("a", "gpu-0") || !read("b", "gpu-1") {
		t.Error("claim is unknown after Wait, want it known")
	}
	if read("a", "gpu-7") {
		t.Error("device gpu-7, which the claim does not have: Read = true, want false")
	}
}

// If the API server forbids reading claims, the error is reported, and Get returns it too.
func TestForbiddenClaims(t *testing.T) {
	s := newServer(t)
	s.deny("get", claimsPath, true)
	c, outcomes := s.client()
	claims := c.Claims(t.Context())
	get := func() podmapper.Claimed { return claims.Get("ml", "a", "gpu.nvidia.com", "node-1", "gpu-0", "") }
	want(t, "before the answer", get(), podmapper.Claimed{})
	claims.Wait(t.Context())
	want(t, "after it", get(), podmapper.Claimed{Forbidden: true})
	if err, ok := outcomes.of("resourceclaims"); !ok || err == nil {
		t.Errorf("reported outcome = %v (reported: %t), want an error", err, ok)
	}
}
