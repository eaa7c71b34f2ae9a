package cluster

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Policies returns the ClusterPolicies, the one in force first. The operator ignores the others. Since v26.7.0, the
// oldest is in force; ties are broken by name (gpu-operator controllers/active_config.go, getSingletonClusterPolicy).
// Up to v26.3, it was the first one that the operator saw, so policies in the state "ignored" come last. The result
// points into s.ClusterPolicies.
func (s *State) Policies() []*unstructured.Unstructured {
	all := make([]*unstructured.Unstructured, len(s.ClusterPolicies))
	for i := range s.ClusterPolicies {
		all[i] = &s.ClusterPolicies[i]
	}
	ignored := func(u *unstructured.Unstructured) int {
		if state, _, _ := unstructured.NestedString(u.Object, "status", "state"); state == "ignored" {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(all, func(a, b *unstructured.Unstructured) int {
		return cmp.Or(ignored(a)-ignored(b), a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time),
			cmp.Compare(a.GetName(), b.GetName()))
	})
	return all
}
