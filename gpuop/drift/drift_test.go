package drift_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	helm "helm.sh/helm/v3/pkg/release"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/drift"
)

// The files in testdata were written by kubectl get, from kube-apiserver v1.36.3 with the CRDs of v26.7.0.
//
// healthy.yaml was written after helm v3.22.0 installed a small chart. edited.yaml was written after kubectl then
// changed two fields of the ClusterPolicy, and an image and another field of two DaemonSets. upgraded.yaml was written
// after a helm upgrade with other values.

// compare returns the findings. It fails the test if a finding has no evidence, unless the reason contains "likely".
func compare(t *testing.T, s *cluster.State, o drift.Options) []check.Finding {
	t.Helper()
	findings := drift.Compare(s, o)
	for _, v := range findings {
		if e := v.Evidence; (e.Kind == "" || e.Object == "" || e.Text == "") && !strings.Contains(v.Reason, "likely") {
			t.Errorf("finding has no evidence, and its reason does not say that it is only likely: %+v", v)
		}
	}
	return findings
}

func short(findings []check.Finding) []string {
	var out []string
	for _, v := range wrong(findings) {
		out = append(out, v.Severity.String()+" "+v.Check.ID+" "+v.Subject)
	}
	return out
}

func TestEditsAreNamedWithTheirOwner(t *testing.T) {
	findings := compare(t, load(t, "edited.yaml"), intended(t))
	want := []string{
		"error drift-field ClusterPolicy/cluster-policy spec.dcgmExporter.args",
		"error drift-field ClusterPolicy/cluster-policy spec.driver.version",
	}
	if diff := cmp.Diff(want, short(findings)); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	for _, v := range findings {
		if v.Check.ID == "drift-field" && v.Severity == check.Error {
			if want := time.Hour; load(t, "edited.yaml").At.Sub(v.Since) > want || v.Since.IsZero() {
				t.Errorf("%s: Since = %s, want the time of the edit", v.Subject, v.Since)
			}
			if !strings.HasPrefix(v.Fix, "kubectl patch clusterpolicy/cluster-policy --type=merge -p '{\"spec\":") {
				t.Errorf("Fix = %q, want kubectl patch: helm upgrade does not revert an edit", v.Fix)
			}
		}
	}
}

// TestEachFieldIsFound changes and removes every field of the ClusterPolicy in turn. Compare must report that field and
// no other. It must not report a missing field that is empty or not in the manifest.
func TestEachFieldIsFound(t *testing.T) {
	fields := 0
	var visit func(path []string, m map[string]any, of func(*cluster.State) map[string]any)
	visit = func(path []string, m map[string]any, of func(*cluster.State) map[string]any) {
		for _, name := range slices.Sorted(maps.Keys(m)) {
			at := append(path[:len(path):len(path)], name)
			if inner, isMap := m[name].(map[string]any); isMap {
				visit(at, inner, func(s *cluster.State) map[string]any { return of(s)[name].(map[string]any) })
				continue
			}
			for _, value := range []any{"another", nil} {
				s := load(t, "healthy.yaml")
				of(s)[name] = value
				if value == nil {
					delete(of(s), name)
				}
				s.ClusterPolicies[0].SetManagedFields(nil) // as if managedFields had been stripped
				var got []string
				for _, v := range wrong(compare(t, s, drift.Options{Table: intended(t).Table})) {
					if v.Check.ID == "drift-field" {
						got = append(got, strings.TrimPrefix(v.Subject, "ClusterPolicy/cluster-policy "))
					}
				}
				want := []string{strings.Join(at, ".")}
				if list, isList := m[name].([]any); isList && len(list) == 0 && value == nil || m[name] == "" && value == nil {
					want = nil // removing an empty value changes nothing
				}
				if value == nil && !declared[strings.Join(at, ".")] {
					want = nil // the API server's default, which no manifest specifies
				}
				if value != nil && !declared[strings.Join(at, ".")] {
					continue
				}
				fields++
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s = %v: reported fields (-want +got):\n%s", strings.Join(at, "."), value, diff)
				}
			}
		}
	}
	first := load(t, "healthy.yaml")
	for document := range strings.SplitSeq(unpack(t, first.Secrets[0]).Manifest, "\n---\n") {
		var o map[string]any
		if err := yaml.Unmarshal([]byte(document), &o); err != nil {
			t.Fatal(err)
		}
		if o["kind"] == "ClusterPolicy" {
			declare("spec", o["spec"].(map[string]any))
		}
	}
	visit([]string{"spec"}, first.ClusterPolicies[0].Object["spec"].(map[string]any), func(s *cluster.State) map[string]any { return s.ClusterPolicies[0].Object["spec"].(map[string]any) })
	if fields < 40 {
		t.Errorf("changes tried = %d, want at least 40", fields)
	}
}

// declared is the set of fields in the manifest in testdata.
var declared = map[string]bool{}

func declare(path string, m map[string]any) {
	for name, value := range m {
		if inner, isMap := value.(map[string]any); isMap {
			declare(path+"."+name, inner)
			continue
		}
		declared[path+"."+name] = true
	}
}

// unpack decodes a release with Helm's own types.
func unpack(t *testing.T, s corev1.Secret) (r helm.Release) {
	t.Helper()
	packed, err := base64.StdEncoding.DecodeString(string(s.Data["release"]))
	if err != nil {
		t.Fatal(err)
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(unzipped).Decode(&r); err != nil {
		t.Fatal(err)
	}
	return r
}

// revise copies the last Secret, changes the release in the copy, and adds the copy to the state.
func revise(t *testing.T, s *cluster.State, change func(*helm.Release)) {
	t.Helper()
	from := s.Secrets[len(s.Secrets)-1]
	r := unpack(t, from)
	change(&r)
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(data); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	to := from.DeepCopy()
	to.Name = fmt.Sprintf("sh.helm.release.v1.%s.v%d", r.Name, r.Version)
	to.Namespace = r.Namespace
	to.Data = map[string][]byte{"release": []byte(base64.StdEncoding.EncodeToString(out.Bytes()))}
	s.Secrets = append(s.Secrets, *to)
}

func TestReleaseStates(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(*testing.T, *cluster.State)
		want []string
		says string
	}{
		{"pending for an hour", func(t *testing.T, s *cluster.State) {
			revise(t, s, func(r *helm.Release) { r.Version, r.Info.Status = 2, helm.StatusPendingUpgrade })
		}, []string{"error drift-release release/gpu-operator"}, "helm rollback gpu-operator 1 -n gpu-operator"},
		{"pending for a minute", func(t *testing.T, s *cluster.State) {
			revise(t, s, func(r *helm.Release) {
				r.Version, r.Info.Status = 2, helm.StatusPendingUpgrade
				r.Info.LastDeployed.Time = s.At.Add(-time.Minute)
			})
		}, []string{"warning drift-release release/gpu-operator"}, "helm status gpu-operator -n gpu-operator"},
		{"failed", func(t *testing.T, s *cluster.State) {
			revise(t, s, func(r *helm.Release) {
				r.Version, r.Info.Status, r.Info.Description = 2, helm.StatusFailed, "timed out"
				r.Manifest = strings.ReplaceAll(r.Manifest, "580.95.05", "999") // the cluster has never had this version
			})
		}, []string{"error drift-release release/gpu-operator"}, "timed out"},
		{"uninstalling", func(t *testing.T, s *cluster.State) {
			revise(t, s, func(r *helm.Release) { r.Version, r.Info.Status = 2, helm.StatusUninstalling })
		}, []string{"warning drift-release release/gpu-operator"}, "expected deployed"},
		{"another chart", func(t *testing.T, s *cluster.State) {
			revise(t, s, func(r *helm.Release) { r.Name, r.Chart.Metadata.Name = "x", "network-operator" })
		}, nil, ""},
		{"no release", func(_ *testing.T, s *cluster.State) { s.Secrets = []corev1.Secret{} },
			[]string{"warning drift-no-release Helm release"}, "helm list -A --all"},
		{"unreadable release", func(_ *testing.T, s *cluster.State) { s.Secrets[0].Data["release"] = []byte("H4sIAAAA") },
			[]string{"warning drift-release-unreadable Secret", "warning drift-no-release Helm release"}, "sh.helm.release.v1.gpu-operator.v1"},
		{"Secrets forbidden", func(_ *testing.T, s *cluster.State) {
			s.Secrets = nil
			s.Missing = []cluster.Missing{{Kind: cluster.Secrets, Why: cluster.Forbidden, Detail: "user x may not list secrets"}}
		}, []string{"warning unread list secrets"}, "kubectl auth can-i list secrets"},
		{"no ClusterPolicy", func(_ *testing.T, s *cluster.State) { s.ClusterPolicies = []unstructured.Unstructured{} },
			[]string{"error drift-object-missing ClusterPolicy/cluster-policy"}, "no longer in the cluster"},
		{"ClusterPolicies forbidden", func(_ *testing.T, s *cluster.State) {
			s.ClusterPolicies = nil
			s.Missing = []cluster.Missing{{Kind: cluster.ClusterPolicies, Why: cluster.Forbidden, Detail: "no"}}
		}, []string{"warning unread list clusterpolicies.nvidia.com"}, "kubectl auth can-i list clusterpolicies.nvidia.com"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := load(t, "healthy.yaml")
			c.make(t, s)
			findings := compare(t, s, drift.Options{Table: intended(t).Table})
			if diff := cmp.Diff(c.want, short(findings)); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
			if said := fmt.Sprint(wrong(findings)); !strings.Contains(strings.ToLower(said), strings.ToLower(c.says)) {
				t.Errorf("findings = %s, want them to contain %q", said, c.says)
			}
		})
	}
}

func TestKeyThatTheReleaseDoesNotHave(t *testing.T) {
	o := intended(t)
	o.Intended["mig"].(map[string]any)["stratgey"] = "mixed"
	findings := wrong(compare(t, load(t, "healthy.yaml"), o))
	if len(findings) != 1 || findings[0].Check.ID != "drift-value" || findings[0].Subject != "mig.stratgey" || !strings.Contains(findings[0].Reason, "but gpu-operator revision 1 has nothing") {
		t.Errorf("findings = %+v, want only drift-value of mig.stratgey", findings)
	}
}

func TestControllersOwnTheInstallation(t *testing.T) {
	flux := map[string]string{"helm.toolkit.fluxcd.io/name": "gpu", "helm.toolkit.fluxcd.io/namespace": "flux-system"}
	for _, c := range []struct {
		name string
		make func(*unstructured.Unstructured)
		want string
		says string
	}{
		{"Flux", func(p *unstructured.Unstructured) { p.SetLabels(flux) }, "note drift-owner HelmRelease/flux-system/gpu", "manages the installation"},
		{"Argo CD", func(p *unstructured.Unstructured) {
			p.SetAnnotations(map[string]string{"argocd.argoproj.io/tracking-id": "gpu:nvidia.com/ClusterPolicy:gpu-operator/cluster-policy"})
		}, "note drift-owner Application/gpu", "manages the installation"},
		{"Argo CD, in another namespace", func(p *unstructured.Unstructured) {
			p.SetAnnotations(map[string]string{"argocd.argoproj.io/tracking-id": "apps_gpu:nvidia.com/ClusterPolicy:gpu-operator/cluster-policy"})
		}, "note drift-owner Application/apps/gpu", "manages the installation"},
		{"Argo CD before v3", func(p *unstructured.Unstructured) {
			p.SetLabels(map[string]string{"app.kubernetes.io/instance": "gpu"})
			p.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "argocd-controller"}})
		}, "note drift-owner Application/gpu", "change the values of Application gpu"},
		{"Helm", func(p *unstructured.Unstructured) {
			p.SetLabels(map[string]string{"app.kubernetes.io/instance": "gpu"})
		}, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := load(t, "healthy.yaml")
			c.make(&s.ClusterPolicies[0])
			findings := compare(t, s, intended(t))
			if got := strings.Join(short(findings), "; "); got != c.want {
				t.Errorf("findings = %q, want %q", got, c.want)
			}
			if said := fmt.Sprint(findings); !strings.Contains(said, c.says) {
				t.Errorf("findings = %s, want them to contain %q", said, c.says)
			}
		})
	}
	s := load(t, "healthy.yaml")
	s.Secrets = []corev1.Secret{}
	s.ClusterPolicies[0].SetAnnotations(map[string]string{"argocd.argoproj.io/tracking-id": "gpu:nvidia.com/ClusterPolicy:gpu-operator/cluster-policy"})
	if said := fmt.Sprint(compare(t, s, intended(t))); !strings.Contains(said, "argocd app diff gpu") {
		t.Errorf("findings = %s, want the fix argocd app diff gpu", said)
	}
	s = load(t, "upgraded.yaml")
	s.ClusterPolicies[0].SetLabels(flux)
	for _, v := range compare(t, s, intended(t)) {
		if v.Check.ID == "drift-value" && v.Severity == check.Error && !strings.Contains(v.Fix, "change the values of HelmRelease flux-system/gpu") {
			t.Errorf("%s: Fix = %q, want a change of the HelmRelease", v.Subject, v.Fix)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte("H4sIAAAAAAAA"))
	f.Add([]byte(base64.StdEncoding.EncodeToString([]byte(`{"name":"a","chart":{"metadata":{"name":"gpu-operator"}},"info":{},"manifest":"a: b\n---\nc"}`))))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := &cluster.State{Namespace: "x", Secrets: []corev1.Secret{{ObjectMeta: metav1.ObjectMeta{Name: "sh.helm.release.v1.a.v1"}, Data: map[string][]byte{"release": data}}}}
		if len(compare(t, s, drift.Options{Table: intended(t).Table})) == 0 {
			t.Fatal("no findings, want the release's status or that it is missing or unreadable")
		}
	})
}

func TestOwnerOf(t *testing.T) {
	entry := func(manager, fields string, hour int) metav1.ManagedFieldsEntry {
		at := metav1.NewTime(time.Date(2026, 9, 1, hour, 0, 0, 0, time.UTC))
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: "Update", Time: &at, FieldsV1: metav1.NewFieldsV1(fields)}
	}
	whole, exact, other := `{"f:spec":{"f:driver":{}}}`, `{"f:spec":{"f:driver":{"f:version":{}}}}`, `{"f:spec":{"f:toolkit":{"f:version":{}}}}`
	for _, c := range []struct {
		name    string
		entries []metav1.ManagedFieldsEntry
		want    string
	}{
		{"the most specific owner wins over a later one", []metav1.ManagedFieldsEntry{entry("exact", exact, 1), entry("whole", whole, 9)}, "exact"},
		{"the latest of two owners, listed last", []metav1.ManagedFieldsEntry{entry("late", exact, 9), entry("early", exact, 1)}, "late"},
		{"the latest of two owners, listed first", []metav1.ManagedFieldsEntry{entry("early", exact, 1), entry("late", exact, 9)}, "late"},
		{"the owner of the whole group", []metav1.ManagedFieldsEntry{entry("other", other, 9), entry("whole", whole, 1)}, "whole"},
		{"no owner", []metav1.ManagedFieldsEntry{entry("other", other, 9), {Manager: "empty"}, entry("broken", `{`, 9)}, ""},
	} {
		if got := drift.OwnerOf(c.entries, "spec", "driver", "version"); got.Manager != c.want {
			t.Errorf("%s: manager = %q, want %q", c.name, got.Manager, c.want)
		}
	}
}
