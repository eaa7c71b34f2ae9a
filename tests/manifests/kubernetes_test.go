package manifests

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
)

var root = filepath.Join("..", "..")

// The manifests in docs/install/kubernetes.md have no unknown fields. They grant exactly the permissions that the
// exporter needs.
func TestDocumentedAccess(t *testing.T) {
	text := folder.Read(t, root, "docs", "install", "kubernetes.md")
	before, _, found := strings.Cut(text, "apiVersion: rbac.authorization.k8s.io/v1\n")
	start := strings.LastIndex(before, "```yaml\n") + len("```yaml\n")
	block, _, closed := strings.Cut(text[start:], "```")
	documents := strings.Split(block, "\n---\n")
	if !found || !closed || len(documents) != 3 {
		t.Fatalf("docs/install/kubernetes.md: RBAC manifests = %d in one block, want 3", len(documents))
	}
	var account core.ServiceAccount
	var role rbac.ClusterRole
	var binding rbac.ClusterRoleBinding
	for i, object := range []runtime.Object{&account, &role, &binding} {
		if err := yaml.UnmarshalStrict([]byte(documents[i]), object); err != nil {
			t.Errorf("%v in\n%s", err, documents[i])
		}
	}
	// exactly the permissions that internal/kube needs
	watch := []string{"list", "watch"}
	want := []rbac.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: watch},
		{APIGroups: []string{"resource.k8s.io"}, Resources: []string{"resourceslices"}, Verbs: watch},
		{APIGroups: []string{"resource.k8s.io"}, Resources: []string{"resourceclaims"}, Verbs: []string{"get"}},
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get"}},
	}
	if diff := cmp.Diff(want, role.Rules); diff != "" {
		t.Errorf("permissions (-want +got):\n%s", diff)
	}
	if binding.RoleRef.Name != role.Name || binding.Subjects[0].Name != account.Name ||
		binding.Subjects[0].Namespace != account.Namespace || account.Namespace != "gpu-monitoring" {
		t.Errorf("binding = role %s and subjects %v; want role %s and account %s/%s, in namespace gpu-monitoring",
			binding.RoleRef.Name, binding.Subjects, role.Name, account.Namespace, account.Name)
	}
}
