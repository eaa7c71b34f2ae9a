package chart

import (
	"flag"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chartutil"
	helmlint "helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/finding"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/lint"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
)

var update = flag.Bool("update", false, "write the rendered files of testdata")

// maxLines is the length from which objects hold a file of the repository: rules, dashboards, counters.
const maxLines = 90

// varies are parts of a rendering that differ each time: certificates and salted hashes.
var varies = regexp.MustCompile(`[A-Za-z0-9+/=]{200,}|\$2a\$\S+|\S+\$[0-9a-f]{64}`)

// TestRendered: the values of testdata/*.values.yaml, which set every value of the chart between them,
// render to the files beside them; objects refer to each other, and the exporter takes its settings.
func TestRendered(t *testing.T) {
	c := load(t, folder)
	files, err := filepath.Glob("testdata/*.values.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		values, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".values.yaml"), func(t *testing.T) {
			r := mustRender(t, c, string(values))
			check(t, string(values), r)
			var docs []string
			for _, doc := range r.docs {
				if strings.Contains(doc, "kind: DaemonSet") || strings.Count(doc, "\n") < maxLines {
					docs = append(docs, varies.ReplaceAllString(strings.TrimSpace(doc), "…"))
				}
			}
			got := strings.Join(docs, "\n---\n") + "\n"
			golden := strings.TrimSuffix(file, ".values.yaml") + ".yaml"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), got); d != "" {
				t.Errorf("%s (-want +got), go test ./tests/chart -update:\n%s", golden, d)
			}
		})
	}
}

func daemonSet(t testing.TB, r *rendering) *apps.DaemonSet { return one[*apps.DaemonSet](t, r) }

// check holds a rendering against what every one must keep: whatever refers to something finds it,
// and the exporter takes its settings.
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
	daemons := daemonSet(t, r)
	pod := daemons.Spec.Template
	container := pod.Spec.Containers[0]

	// No object, mount or variable is there twice; mounts and volumes name each other.
	seen := map[string]bool{}
	once := func(what string) {
		t.Helper()
		if seen[what] {
			t.Errorf("%s is there twice", what)
		}
		seen[what] = true
	}
	for _, o := range r.objects(t) {
		once(o.kind + " " + o.namespace + "/" + o.name)
		for _, msg := range validation.NameIsDNSSubdomain(o.name, false) {
			t.Errorf("%s: %s", o.name, msg)
		}
	}
	var volumes, mounted []string
	paths := map[string]bool{}
	for _, v := range pod.Spec.Volumes {
		volumes = append(volumes, v.Name)
	}
	for _, m := range container.VolumeMounts {
		once("the mount " + m.MountPath)
		mounted, paths[m.MountPath] = append(mounted, m.Name), true
	}
	slices.Sort(volumes)
	slices.Sort(mounted)
	if d := cmp.Diff(volumes, slices.Compact(mounted), cmpopts.EquateEmpty()); d != "" {
		t.Errorf("volumes, and mounts of them (-volumes +mounts):\n%s", d)
	}
	env := map[string]string{}
	for _, e := range container.Env {
		once("the variable " + e.Name)
		env[e.Name] = e.Value
		if e.ValueFrom != nil {
			env[e.Name] = "node-7"
		}
	}

	// The exporter takes arguments and environment.
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
			return []byte("version: 1\n"), nil // that of a user
		}
		return nil, os.ErrNotExist
	})
	if err != nil {
		t.Fatalf("the exporter refuses its settings: %v", err)
	}
	for name := range env {
		if !lookedUp[name] && !strings.HasPrefix(name, "NVIDIA_") && (name != "DCGM_EXPORTER_COLLECTORS" || len(container.Args) == 0) {
			t.Errorf("the exporter does not read %s", name)
		}
	}
	if cfg.Kubernetes.Enabled && !paths[path.Dir(cfg.Kubernetes.Socket)] {
		t.Errorf("the kubelet's socket %s is not mounted", cfg.Kubernetes.Socket)
	}
	if f := cfg.Metrics.File; slices.Contains(volumes, "counters") && !strings.HasPrefix(f, "/etc/dcgm-exporter/counters/") && !paths[f] {
		t.Errorf("counters are read from %s", f)
	}

	// Ports.
	_, port, _ := strings.Cut(cfg.Web.Address, ":")
	if got := fmt.Sprint(container.Ports[0].ContainerPort); got != port {
		t.Errorf("the exporter listens on %s, the container has the port %s", cfg.Web.Address, got)
	}
	for _, s := range every[*core.Service](t, r) {
		if got := s.Spec.Ports[0].TargetPort.StrVal; got != container.Ports[0].Name {
			t.Errorf("the Service sends to %q, the container has %q", got, container.Ports[0].Name)
		}
		selects(t, "Service", s.Spec.Selector, pod.Labels)
		for _, m := range every[*monitoring.ServiceMonitor](t, r) {
			selects(t, "ServiceMonitor", m.Spec.Selector.MatchLabels, s.Labels)
			if got := m.Spec.Endpoints[0].Port; got != s.Spec.Ports[0].Name {
				t.Errorf("the ServiceMonitor scrapes %q, the Service has %q", got, s.Spec.Ports[0].Name)
			}
		}
	}
	for _, m := range every[*monitoring.PodMonitor](t, r) {
		selects(t, "PodMonitor", m.Spec.Selector.MatchLabels, pod.Labels)
	}
	for _, p := range every[*networking.NetworkPolicy](t, r) {
		selects(t, "NetworkPolicy", p.Spec.PodSelector.MatchLabels, pod.Labels)
	}
	selects(t, "DaemonSet", daemons.Spec.Selector.MatchLabels, pod.Labels)
	for _, p := range every[*core.Pod](t, r) {
		if labels.SelectorFromSet(daemons.Spec.Selector.MatchLabels).Matches(labels.Set(p.Labels)) {
			t.Errorf("the DaemonSet would adopt the pod %s", p.Name)
		}
	}

	// Rights: those that the settings need, and no other.
	granted := rights(t, r)
	var want []string
	own := func(needed bool, rules ...string) {
		if needed {
			want = append(want, rules...)
		}
	}
	own(cfg.Kubernetes.PodLabels || cfg.Kubernetes.PodUID, "/pods list", "/pods watch")
	own(cfg.Kubernetes.DRA, "resource.k8s.io/resourceclaims get", "resource.k8s.io/resourceslices list", "resource.k8s.io/resourceslices watch")
	own(set.Kubernetes.ReadNode, "/nodes get")
	own(cfg.Metrics.ConfigMap != (config.ConfigMapName{}), "/configmaps/mine get")
	if token := *pod.Spec.AutomountServiceAccountToken; token != (len(want) > 0) {
		t.Errorf("the token is mounted: %v, with the needs %q", token, want)
	}
	if !create { // somebody else grants them
		want = nil
		if bindings := len(every[*rbac.ClusterRoleBinding](t, r)) + len(every[*rbac.RoleBinding](t, r)); bindings > 0 {
			t.Errorf("%d bindings", bindings)
		}
	}
	slices.Sort(want)
	if d := cmp.Diff(slices.Compact(want), granted, cmpopts.EquateEmpty()); d != "" {
		t.Errorf("rights (-needed +granted):\n%s", d)
	}
	for _, s := range every[*core.ServiceAccount](t, r) {
		if s.Name != pod.Spec.ServiceAccountName {
			t.Errorf("the pods run as %s, and the account is %s", pod.Spec.ServiceAccountName, s.Name)
		}
	}
}

func selects(t *testing.T, what string, selector, of map[string]string) {
	t.Helper()
	if len(selector) == 0 || !labels.SelectorFromSet(selector).Matches(labels.Set(of)) {
		t.Errorf("the %s selects %v, and there is %v", what, selector, of)
	}
}

// rights returns GROUP/RESOURCE VERB of every rule.
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
	for _, values := range []string{"{}", strings.Join([]string{"prometheusRule: {enabled: true}", "dashboards: {enabled: true}", "podMonitor: {enabled: true}", "networkPolicy: {enabled: true}"}, "\n")} {
		v, err := chartutil.ReadValues([]byte(values))
		if err != nil {
			t.Fatal(err)
		}
		linter := helmlint.All(folder, v, namespace, true)
		for _, m := range linter.Messages {
			if m.Severity > support.InfoSev {
				t.Errorf("%s: %v", m.Path, m.Err)
			}
		}
	}
}

// Under the GPU Operator gpuop finds nothing wrong with the DaemonSet; without what it needs
// there it does.
func TestGPUOperatorsLint(t *testing.T) {
	c := load(t, folder)
	found := func(values string) []string {
		var out []string
		for _, doc := range mustRender(t, c, values).docs {
			if !strings.Contains(doc, "kind: DaemonSet") {
				continue
			}
			result, err := lint.Lint(lint.Options{Files: []lint.Input{{Name: "daemonset.yaml", Data: []byte(doc)}}})
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range result.Report.Findings {
				if f.Severity > finding.Info {
					out = append(out, f.ID)
				}
			}
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	for _, more := range []string{"", "\nprofiling: {enabled: true}", "\nsharedGPUs: {enabled: true}", "\nkubernetesDRA: {enabled: true}"} {
		if got := found("gpuOperator: {client: true}\nruntimeClassName: nvidia" + more); len(got) > 0 {
			t.Errorf("findings with %q: %q", more, got)
		}
	}
	if got, want := found("{}"), []string{"gpu-client", "runtime-class"}; !slices.Equal(got, want) {
		t.Errorf("findings without: %q, want %q", got, want)
	}
}
