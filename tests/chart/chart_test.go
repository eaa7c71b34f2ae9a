package chart

import (
	"flag"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"helm.sh/helm/v3/pkg/chartutil"
	helmlint "helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	gpuop "github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/lint"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
)

var update = flag.Bool("update", false, "update the golden files in testdata")

// Golden files contain the DaemonSet, and other objects with fewer than maxLines lines. Longer objects contain files of
// the repository (rules, dashboards, counters).
const maxLines = 90

// varies matches the parts of a rendering that differ each time: certificates, and hashes with a salt.
var varies = regexp.MustCompile(`[A-Za-z0-9+/=]{200,}|\$2a\$\S+|\S+\$[0-9a-f]{64}`)

// TestRendered renders the values of testdata/*.values.yaml. The output must match the golden files, and the exporter
// must accept the rendered settings.
func TestRendered(t *testing.T) {
	c := load(t)
	for _, file := range folder.Files(t, "testdata", "*.values.yaml") {
		values := folder.Read(t, file)
		t.Run(strings.TrimSuffix(filepath.Base(file), ".values.yaml"), func(t *testing.T) {
			r := mustRender(t, c, values)
			check(t, values, r)
			var docs []string
			for _, doc := range r.docs {
				if strings.Contains(doc, "kind: DaemonSet") || strings.Count(doc, "\n") < maxLines {
					docs = append(docs, varies.ReplaceAllString(strings.TrimSpace(doc), "…"))
				}
			}
			got := strings.Join(docs, "\n---\n") + "\n"
			golden := strings.TrimSuffix(file, ".values.yaml") + ".yaml"
			if *update {
				folder.Write(t, golden, got)
			}
			if d := cmp.Diff(folder.Read(t, golden), got); d != "" {
				t.Errorf("%s (-want +got):\n%s\nIf the change is intended, run go test ./tests/chart -update", golden,
					d)
			}
		})
	}
}

func daemonSet(t testing.TB, r *rendering) *apps.DaemonSet { return only[*apps.DaemonSet](t, r) }

// check checks that the exporter accepts the settings of a rendering. The RBAC rules must grant exactly the permissions
// that the settings need, or none if kubernetes.rbac.create is false.
func check(t *testing.T, values string, r *rendering) {
	t.Helper()
	var set struct {
		Kubernetes struct {
			ReadNode bool
			RBAC     struct{ Create *bool }
		}
	}
	if err := yaml.Unmarshal([]byte(values), &set); err != nil {
		t.Fatal(err)
	}
	create := set.Kubernetes.RBAC.Create == nil || *set.Kubernetes.RBAC.Create
	pod := daemonSet(t, r).Spec.Template
	container := pod.Spec.Containers[0]

	r.objects(t) // fail if the API server would reject an object
	env, paths := map[string]string{}, map[string]bool{}
	for _, e := range container.Env {
		env[e.Name] = e.Value
		if e.ValueFrom != nil {
			env[e.Name] = "node-7"
		}
	}
	for _, m := range container.VolumeMounts {
		paths[m.MountPath] = true
	}

	// the exporter must accept the arguments and the environment
	lookedUp := map[string]bool{}
	cfg, err := config.Parse(container.Args, func(name string) (string, bool) {
		lookedUp[name] = true
		v, ok := env[name]
		return v, ok
	}, func(name string) ([]byte, error) {
		for _, m := range every[*core.ConfigMap](t, r) {
			if text, ok := m.Data[path.Base(name)]; ok {
				return []byte(text), nil
			}
		}
		if name == "/etc/dcgm-exporter/config.yaml" {
			return []byte("version: 1\n"), nil // a file that the user provides
		}
		return nil, os.ErrNotExist
	})
	if err != nil {
		t.Fatalf("exporter rejects the settings: %v", err)
	}
	for name := range env {
		if !lookedUp[name] && !strings.HasPrefix(name, "NVIDIA_") &&
			(name != "DCGM_EXPORTER_COLLECTORS" || len(container.Args) == 0) {
			t.Errorf("exporter does not read the variable %s", name)
		}
	}
	if cfg.Kubernetes.Enabled && !paths[path.Dir(cfg.Kubernetes.Socket)] {
		t.Errorf("kubelet socket %s is not mounted", cfg.Kubernetes.Socket)
	}

	// if the chart creates RBAC rules, they must grant exactly the permissions that the settings need
	granted := rights(t, r)
	var want []string
	own := func(needed bool, rules ...string) {
		if needed {
			want = append(want, rules...)
		}
	}
	own(cfg.Kubernetes.PodLabels || cfg.Kubernetes.PodUID, "/pods list", "/pods watch")
	own(cfg.Kubernetes.DRA, "resource.k8s.io/resourceclaims get", "resource.k8s.io/resourceslices list",
		"resource.k8s.io/resourceslices watch")
	own(set.Kubernetes.ReadNode, "/nodes get")
	own(cfg.Metrics.ConfigMap != (config.ConfigMapName{}), "/configmaps/mine get")
	if token := *pod.Spec.AutomountServiceAccountToken; token != (len(want) > 0) {
		t.Errorf("service account token mounted = %v, needed permissions = %q; "+
			"want the token only if permissions are needed", token, want)
	}
	if !create { // the user has to grant the permissions
		want = nil
		if bindings := len(every[*rbac.ClusterRoleBinding](t, r)) + len(every[*rbac.RoleBinding](t, r)); bindings > 0 {
			t.Errorf("role bindings = %d, want 0", bindings)
		}
	}
	slices.Sort(want)
	if d := cmp.Diff(slices.Compact(want), granted, cmpopts.EquateEmpty()); d != "" {
		t.Errorf("permissions (-needed +granted):\n%s", d)
	}
}

// rights returns the permissions of all roles, sorted, as "GROUP/RESOURCE VERB" or "GROUP/RESOURCE/NAME VERB".
func rights(t *testing.T, r *rendering) []string {
	t.Helper()
	var out []string
	add := func(rules []rbac.PolicyRule) {
		for _, rule := range rules {
			for _, g := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						for _, name := range rule.ResourceNames {
							resource += "/" + name
						}
						out = append(out, g+"/"+resource+" "+verb)
					}
				}
			}
		}
	}
	for _, role := range every[*rbac.ClusterRole](t, r) {
		add(role.Rules)
	}
	for _, role := range every[*rbac.Role](t, r) {
		add(role.Rules)
	}
	slices.Sort(out)
	return out
}

func TestHelmLint(t *testing.T) {
	const all = "prometheusRule: {enabled: true}\ndashboards: {enabled: true}\npodMonitor: {enabled: true}\n" +
		"networkPolicy: {enabled: true}"
	for _, values := range []string{"{}", all} {
		v, err := chartutil.ReadValues([]byte(values))
		if err != nil {
			t.Fatal(err)
		}
		linter := helmlint.All(chartDir, v, namespace, true)
		for _, m := range linter.Messages {
			if m.Severity > support.InfoSev {
				t.Errorf("helm lint: %s: %v", m.Path, m.Err)
			}
		}
	}
}

// TestGPUOperatorsLint renders the DaemonSet with values for the GPU Operator. gpuop must report nothing more severe
// than a note about it.
func TestGPUOperatorsLint(t *testing.T) {
	c := load(t)
	for _, more := range []string{
		"", "profiling: {enabled: true}", "profiling: {enabled: false}", "sharedGPUs: {enabled: true}",
		"kubernetesDRA: {enabled: true}", "kernelLog: {enabled: true}",
	} {
		for _, doc := range mustRender(t, c, "gpuOperator: {client: true}\nruntimeClassName: nvidia\n"+more).docs {
			if !strings.Contains(doc, "kind: DaemonSet") {
				continue
			}
			result, err := lint.Lint(lint.Options{Files: []lint.Input{{Name: "daemonset.yaml", Data: []byte(doc)}}})
			if err != nil {
				t.Fatal(err)
			}
			if result.Report.AtLeast(gpuop.Note + 1) {
				t.Errorf("gpuop findings with %q = %+v, want only notes", more, result.Report.Findings)
			}
		}
	}
}
