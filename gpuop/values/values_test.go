package values_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/lint"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/values"
)

func release(t testing.TB, s string) chart.Version {
	t.Helper()
	v, _, err := chart.Load().Resolve(s)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func migrated(t *testing.T, text string, from, to chart.Version) *values.Migration {
	t.Helper()
	m, err := values.Migrate(chart.Load(), "values.yaml", []byte(text), from, to, false)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// example returns a feature as a user writes it: without an optional argument, and with the version 580.105.08 if a
// version is required.
func example(feature string) string {
	word, _, _ := strings.Cut(feature, "[")
	return strings.ReplaceAll(word, "=version", "=580.105.08")
}

// requests returns requests for every platform, without features and with each single feature.
func requests(v chart.Version) []values.Request {
	var out []values.Request
	for _, p := range values.Platforms() {
		for _, f := range append([][2]string{{""}}, values.Features()...) {
			name := example(f[0])
			r := values.Request{Platform: p[0], Version: v, Exporter: "ghcr.io/x/dcgm-exporter:1.0"}
			if name != "" {
				r.Features = []string{name}
			}
			if p[0] == "air-gapped" || strings.HasPrefix(name, "vgpu") {
				r.Registry, r.PullSecret = "registry.example.com:5000/mirror", "key"
			}
			out = append(out, r)
		}
	}
	return out
}

// Every platform can be combined with every feature, unless the driver is the host's and the feature needs the
// operator's driver. Lint has no findings in the plans.
func TestEveryPlatformWithEveryFeature(t *testing.T) {
	plans := 0
	for _, r := range requests(release(t, "v26.7.0")) {
		feature, _, _ := strings.Cut(strings.Join(r.Features, ""), "=")
		t.Run(r.Platform+"/"+feature, func(t *testing.T) {
			plan, err := values.Generate(r)
			hosted := slices.Contains([]string{"eks", "aks", "gke-cos"}, r.Platform)
			if hosted && (feature == "rdma" || feature == "vgpu") {
				if !errors.Is(err, values.ErrExcludes) {
					t.Fatalf("host driver with %s: error = %v, want ErrExcludes", feature, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			plans++
			text, err := plan.YAML("values.yaml")
			if err != nil {
				t.Fatal(err)
			}
			judged, err := lint.Lint(lint.Options{
				Files: []lint.Input{{Name: "values.yaml", Data: text}},
				// without --values: the file is linted separately
				Command: strings.Replace(plan.Command("values.yaml"), "--values values.yaml", "--timeout 10m", 1),
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range judged.Report.Findings {
				t.Errorf("finding %s %s: %s, want none in the values:\n%s", f.Severity.String(), f.Subject, f.Reason, text)
			}
		})
	}
	if plans < 80 {
		t.Errorf("plans = %d, want at least 80", plans)
	}
}

func TestRefusals(t *testing.T) {
	for _, tt := range []struct {
		name string
		r    values.Request
		want error
	}{
		{"unknown platform", values.Request{Platform: "eksx"}, values.ErrUnknown},
		{"unknown feature", values.Request{Platform: "eks", Features: []string{"timeslicing"}}, values.ErrUnknown},
		{"too few replicas", values.Request{Platform: "eks", Features: []string{"time-slicing=1"}}, values.ErrInvalid},
		{"too many MPS clients", values.Request{Platform: "eks", Features: []string{"mps=49"}}, values.ErrInvalid},
		{"a value for a feature that takes none", values.Request{Platform: "generic", Features: []string{"gds=yes"}}, values.ErrInvalid},
		{"two MIG strategies", values.Request{Platform: "generic", Features: []string{"mig-single", "mig-mixed"}}, values.ErrExcludes},
		{"MPS and time-slicing", values.Request{Platform: "generic", Features: []string{"mps", "time-slicing"}}, values.ErrExcludes},
		{"MPS with MIG devices", values.Request{Platform: "generic", Features: []string{"mps", "mig-mixed"}}, values.ErrExcludes},
		{"preinstalled driver with RDMA", values.Request{Platform: "generic", Features: []string{"preinstalled-driver", "rdma"}}, values.ErrExcludes},
		{"vGPU without a registry", values.Request{Platform: "generic", Features: []string{"vgpu=580.105.08"}}, values.ErrMissing},
		{"vGPU without a driver version", values.Request{Platform: "generic", Features: []string{"vgpu"}, Registry: "a/b"}, values.ErrMissing},
		{"air gap without a registry", values.Request{Platform: "air-gapped"}, values.ErrMissing},
		{"a platform newer than the release", values.Request{Platform: "gke-cos", Version: release(t, "v23.9.0")}, values.ErrVersion},
		{"a feature newer than the release", values.Request{Platform: "generic", Features: []string{"gdrcopy"}, Version: release(t, "v23.9.0")}, values.ErrVersion},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.r.Version == (chart.Version{}) {
				tt.r.Version = release(t, "latest")
			}
			if _, err := values.Generate(tt.r); !errors.Is(err, tt.want) {
				t.Errorf("error = %v, want %v", err, tt.want)
			}
		})
	}
}

func TestOlderReleasesGetTheirOwnKeys(t *testing.T) {
	plan, err := values.Generate(values.Request{Platform: "generic", Features: []string{"gds"}, Version: release(t, "v24.3.0")})
	if err != nil {
		t.Fatal(err)
	}
	want := []chart.Setting{chart.Set("gds.enabled", true, ""), chart.Set("driver.useOpenKernelModules", true, "")}
	for i := range plan.Values {
		plan.Values[i].Origin = ""
	}
	if diff := cmp.Diff(want, plan.Values); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
}

func TestMigrate(t *testing.T) {
	const before = `# our cluster

driver:
  # the vendor's advice
  useOpenKernelModules: true
  version: 550.54.15
  rdma:
    enabled: true

psp:
  enabled: false

operator:
  defaultRuntime: containerd
validator:
  repository: registry.example.com/nvidia/cloud-native


# copies between GPUs and network cards
gdrcopy:
  enabled: true
cdi:
  default: true
mig:
  strategy: mixed # per profile
`
	m := migrated(t, before, release(t, "v23.9.2"), release(t, "v26.7.0"))
	const after = `# our cluster

driver:
  # the vendor's advice
  kernelModuleType: open
  version: 550.54.15
  rdma:
    enabled: true

validator:
  repository: registry.example.com/nvidia


# copies between GPUs and network cards
gdrcopy:
  enabled: true
mig:
  strategy: mixed # per profile
`
	if diff := cmp.Diff(after, m.YAML); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
	var got []string
	for _, c := range m.Changes {
		got = append(got, c.Kind+" "+c.Path)
	}
	want := []string{"dropped cdi.default", "renamed driver.useOpenKernelModules", "begins gdrcopy.enabled",
		"dropped operator.defaultRuntime", "dropped psp.enabled", "set validator.repository"}
	if diff := cmp.Diff(want, got[:min(len(got), len(want))]); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	for _, flipped := range []string{"cdi.enabled", "gfd.image", "validator.image", "dcgmExporter.serviceMonitor.enabled", "operator.upgradeCRD"} {
		if !strings.Contains(strings.Join(got, "\n"), "default "+flipped) {
			t.Errorf("changed default of %s is missing from the list", flipped)
		}
	}
	judged, err := lint.Lint(lint.Options{Version: "v26.7.0", Files: []lint.Input{{Name: "v", Data: []byte(m.YAML)}}})
	if err != nil {
		t.Fatal(err)
	}
	if left := brief(judged.Report); len(left) > 0 {
		t.Errorf("findings in the migrated file = %v, want none", judged.Report.Findings)
	}
}

func brief(r check.Report) (out []string) {
	for _, f := range r.Findings {
		if f.Severity >= check.Warning {
			out = append(out, f.Check.ID+" "+f.Subject)
		}
	}
	return out
}

func FuzzMigrate(f *testing.F) {
	f.Add("driver:\n  useOpenKernelModules: true\npsp: {enabled: true}\n")
	f.Add("validator: {image: {repository: a/b, tag: c}}\nx: &a {b: 1}\ny: *a\n")
	f.Add("driver.enabled: 1\nmig: [1]\n")
	f.Fuzz(func(t *testing.T, text string) {
		from, to := release(t, "v23.9.2"), release(t, "v26.7.0")
		var before map[string]any
		if yaml.Unmarshal([]byte(text), &before) != nil {
			return
		}
		m, err := values.Migrate(chart.Load(), "f", []byte(text), from, to, false)
		if err != nil || m.YAML == "" {
			return
		}
		var after map[string]any
		if err := yaml.Unmarshal([]byte(m.YAML), &after); err != nil {
			t.Errorf("migration of %q is not valid YAML: %v\n%s", text, err, m.YAML)
		}
	})
}

// A file that holds values inside another object is rejected. The object's own fields could be mistaken for keys of the
// chart.
func TestMigrateRefusesOtherFiles(t *testing.T) {
	table := chart.Load()
	for _, text := range []string{
		"apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata:\n  name: a\nspec:\n  values:\n    driver:\n      enabled: false\n",
		"releases:\n  - name: a\n    chart: nvidia/gpu-operator\n",
	} {
		if m, err := values.Migrate(table, "a.yaml", []byte(text), table.Latest(), table.Latest(), false); !errors.Is(err, values.ErrNoValues) {
			t.Errorf("%s: migration = %v, error = %v, want ErrNoValues", text, m, err)
		}
	}
}

func TestImageIsSplitAsTheOperatorJoinsIt(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0a", 32)
	for _, tt := range []struct {
		image string
		want  []any
	}{
		{"ghcr.io/gpu-telemetry/dcgm-exporter:1.2.3", []any{"ghcr.io/gpu-telemetry", "dcgm-exporter", "1.2.3"}},
		{"registry.example.com:5000/a/b/exporter@" + digest, []any{"registry.example.com:5000/a/b", "exporter", digest}},
	} {
		plan, err := values.Generate(values.Request{Platform: "generic", Features: []string{"exporter"}, Version: release(t, "v26.7.0"), Exporter: tt.image})
		if err != nil {
			t.Errorf("image %s: error = %v, want none", tt.image, err)
			continue
		}
		var got []any
		for _, key := range []string{"repository", "image", "version"} {
			for _, s := range plan.Values {
				if s.Path.String() == "dcgmExporter."+key {
					got = append(got, s.Value)
				}
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("image %s: repository, image and version (-want +got):\n%s", tt.image, diff)
		}
	}
	for _, image := range []string{"", "exporter", "ghcr.io/x/exporter", "https://ghcr.io/x/exporter:1", "ghcr.io/x/exporter:1 2"} {
		_, err := values.Generate(values.Request{Platform: "generic", Features: []string{"exporter"}, Version: release(t, "v26.7.0"), Exporter: image})
		if !errors.Is(err, values.ErrImage) {
			t.Errorf("%q: error = %v, want ErrImage", image, err)
		}
	}
}
