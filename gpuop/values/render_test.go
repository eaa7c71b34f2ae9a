package values_test

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/values"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/charts"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
)

// policyOf returns the ClusterPolicy among rendered manifests.
func policyOf(t *testing.T, manifests string) map[string]any {
	t.Helper()
	decoder := yaml.NewDecoder(strings.NewReader(manifests))
	for {
		var object map[string]any
		if err := decoder.Decode(&object); err != nil {
			t.Fatalf("found no ClusterPolicy in the manifests: %v", err)
		}
		if object["kind"] == "ClusterPolicy" {
			return object
		}
	}
}

// chartsOwn lists values that the chart itself uses. They are not fields of the ClusterPolicy.
var chartsOwn = []string{"nfd", "node-feature-discovery", "platform", "clusterPolicy", "gpuCluster"}

// over merges a plan's values into the spec that the chart renders by default. Values and spec use the same names. The
// keys create and data are skipped, because only the chart uses them.
func over(spec, plan map[string]any) map[string]any {
	out := maps.Clone(spec)
	if out == nil {
		out = map[string]any{}
	}
	for k, v := range plan {
		if k == "create" || k == "data" {
			continue
		}
		if inner, isMap := v.(map[string]any); isMap {
			base, _ := out[k].(map[string]any)
			out[k] = over(base, inner)
			continue
		}
		out[k] = v
	}
	return out
}

func withoutNull(m map[string]any) map[string]any {
	out := map[string]any{}
	for k, v := range m {
		if inner, isMap := v.(map[string]any); isMap {
			v = withoutNull(inner)
		}
		if v != nil {
			out[k] = v
		}
	}
	return out
}

// planned returns the values for a request, or nil if the release or another feature excludes it.
func planned(t *testing.T, r values.Request) []byte {
	t.Helper()
	plan, err := values.Generate(r)
	if errors.Is(err, values.ErrVersion) || errors.Is(err, values.ErrExcludes) {
		return nil
	}
	if err != nil {
		t.Fatalf("%s %s %v: Generate: error = %v, want none", r.Version, r.Platform, r.Features, err)
	}
	text, err := plan.YAML("values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// The test validates the ClusterPolicy of every plan against the release's CRDs, in a sample of releases.
func TestPlansFitTheDefinitionsOfEveryRelease(t *testing.T) {
	dir := charts.Data(t)
	releases, plans := charts.Sample(chart.Load().Versions(), 5), 0
	for _, v := range releases {
		set := &charts.Definitions{}
		for _, f := range folder.Files(t, dir, v.String(), "crds", "*.yaml") {
			if err := set.Add([]byte(folder.Read(t, f))); err != nil {
				t.Fatal(err)
			}
		}
		object := policyOf(t, folder.Read(t, dir, v.String(), "rendered-defaults.yaml"))
		// the API server drops nulls from fields that are not nullable; validation alone would reject them
		spec := withoutNull(object["spec"].(map[string]any))
		for _, r := range requests(v) {
			text := planned(t, r)
			if text == nil {
				continue
			}
			var own map[string]any
			if err := yaml.Unmarshal(text, &own); err != nil {
				t.Fatal(err)
			}
			for _, name := range chartsOwn {
				delete(own, name)
			}
			if operator, ok := own["operator"].(map[string]any); ok {
				// the operator's own image is in its Deployment, not in the ClusterPolicy
				delete(operator, "repository")
				delete(operator, "imagePullSecrets")
			}
			object["spec"] = over(spec, own)
			problems, known := set.Validate("nvidia.com/v1", "ClusterPolicy", object)
			if !known {
				t.Fatalf("%s: the CRDs do not define ClusterPolicy", v)
			}
			for _, f := range problems {
				t.Errorf("%s %s %v: the CRD rejects the ClusterPolicy: %s: %s", v, r.Platform, r.Features, f.Subject, f.Reason)
			}
			plans++
		}
	}
	t.Logf("%d plans", plans)
	if plans < len(releases)*60 {
		t.Errorf("plans = %d, want at least 60 for each release", plans)
	}
}

// helmTool returns the path of helm. If the environment variable HELM is not set, it builds helm from its Go module.
func helmTool(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("HELM"); path != "" {
		return path
	}
	bin := t.TempDir()
	cmd := exec.Command("go", "install", "helm.sh/helm/v3/cmd/helm@v3.22.0")
	cmd.Env = append(os.Environ(), "GOBIN="+bin, "GOFLAGS=-mod=mod")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go install helm: %v\n%s", err, out)
	}
	return filepath.Join(bin, "helm")
}

func render(t *testing.T, helm, path string, text []byte) {
	t.Helper()
	cmd := exec.Command(helm, "template", "gpu-operator", path, "--namespace", "gpu-operator", "--values", "-")
	cmd.Stdin = bytes.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: helm template: %v\n%s\n%s", path, err, out, text)
	}
}

// Every plan renders with its release's chart. With GPUOP_ALL=1, every platform is combined with every feature.
// Otherwise features are combined with two platforms only, because few combinations yield new values.
func TestPlansRenderWithTheRealCharts(t *testing.T) {
	dir := charts.Whole(t)
	helm := helmTool(t)
	for _, v := range chart.Load().Versions() {
		t.Run(v.String(), func(t *testing.T) {
			path := filepath.Join(dir, v.String())
			if _, err := os.Stat(path); err != nil {
				t.Fatal(err)
			}
			seen, plans := map[string]bool{}, 0
			for _, r := range requests(v) {
				if len(r.Features) > 0 && r.Platform != "generic" && r.Platform != "openshift" && !charts.All() {
					continue
				}
				text := planned(t, r)
				if text == nil {
					continue
				}
				plans++
				if seen[string(withoutComments(text))] {
					continue
				}
				seen[string(withoutComments(text))] = true
				render(t, helm, path, text)
			}
			t.Logf("rendered %d plans, %d of them with distinct values", plans, len(seen))
		})
	}
}

func withoutComments(text []byte) []byte {
	var out [][]byte
	for line := range bytes.Lines(text) {
		if !bytes.HasPrefix(bytes.TrimSpace(line), []byte("#")) {
			out = append(out, line)
		}
	}
	return bytes.Join(out, nil)
}

// The values of each release are migrated to the newest release. They must render with the newest chart.
func TestMigrationsRenderWithTheNewestChart(t *testing.T) {
	dir := charts.Whole(t)
	helm := helmTool(t)
	table := chart.Load()
	for _, v := range table.Versions() {
		m := migrated(t, readValues(t, dir, v), v, table.Latest())
		render(t, helm, filepath.Join(dir, table.Latest().String()), []byte(m.YAML))
	}
	t.Logf("%d migrations", len(table.Versions()))
}

// A group that is null has no defaults in Helm. If gpuop says that the templates need the defaults, rendering must
// fail. gpuop may miss only a few such groups.
func TestNullGroupsEndTheRealCharts(t *testing.T) {
	dir := charts.Whole(t)
	helm := helmTool(t)
	table := chart.Load()
	found, missed := 0, 0
	for _, v := range charts.Sample(table.Versions(), 7) {
		groups := map[string]chart.Path{}
		for _, k := range table.Keys(v) {
			for n := 1; n < len(k.Path); n++ {
				groups[k.Path[:n].String()] = k.Path[:n]
			}
		}
		for name, path := range groups {
			if path[0] == "node-feature-discovery" && len(path) > 1 {
				continue
			}
			out, err := exec.Command(helm, "template", "gpu-operator", filepath.Join(dir, v.String()), "--set", name+"=null").CombinedOutput()
			ends := err != nil && bytes.Contains(out, []byte("nil pointer"))
			switch needed := table.Needed(v, path); {
			case needed && !ends:
				t.Errorf("%s: setting %s to null printed %.300s, want a nil pointer error from the templates", v, name, out)
			case ends && needed:
				found++
			case ends:
				missed++
				t.Logf("%s: %s=null makes the templates fail, but the table does not list it", v, name)
			}
		}
	}
	if found < 20*missed || found < 100 {
		t.Errorf("groups found = %d, missed = %d, want at least 100 found and at most 1 missed of 20", found, missed)
	}
}
