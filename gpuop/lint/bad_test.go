package lint_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/lint"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/material"
)

// bomb returns a few lines of YAML whose aliases expand to 9^levels values.
func bomb(levels int) string {
	var b strings.Builder
	b.WriteString("a0: &a0 {driver: {x: 1}}\n")
	for i := 1; i <= levels; i++ {
		fmt.Fprintf(&b, "a%d: &a%d {", i, i)
		for j := range 9 {
			fmt.Fprintf(&b, "k%d: *a%d, ", j, i-1)
		}
		b.WriteString("}\n")
	}
	fmt.Fprintf(&b, "driver: *a%d\n", levels)
	return b.String()
}

func TestAliasBombsAreOneFinding(t *testing.T) {
	list := "a: &a [x, x, x, x, x, x, x, x, x]\n"
	for i := range 8 {
		name := string(rune('b' + i))
		list += fmt.Sprintf("%s: &%s [%s]\n", name, name, strings.TrimSuffix(strings.Repeat("*"+string(rune('a'+i))+", ", 9), ", "))
	}
	for name, text := range map[string]string{
		"nested maps": bomb(9), "nested lists": list + "toolkit: {env: *i}\n", "an alias of itself": "driver: &d\n  enabled: true\n  more: *d\n",
		"a ConfigMap":   "apiVersion: v1\nkind: ConfigMap\ndata:\n  x: |\n    version: v1\n    sharing: {}\n    " + strings.ReplaceAll(bomb(9), "\n", "\n    ") + "\n",
		"a pod":         bomb(8) + "apiVersion: v1\nkind: Pod\nspec: {containers: [{name: x, image: y}], volumes: *a8}\n",
		"a HelmRelease": bomb(8) + "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nspec: {chart: {spec: {chart: gpu-operator}}, values: *a8}\n",
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			got := judge(t, lint.Options{Files: []lint.Input{{Name: "f", Data: []byte(text)}}})
			runtime.ReadMemStats(&after)
			if used := after.TotalAlloc - before.TotalAlloc; used > 50<<20 {
				t.Errorf("Lint allocated %d MB, want at most 50 MB", used>>20)
			}
			bombs := 0
			for _, f := range got.Report.Findings {
				if f.Check.ID == "yaml-aliases" {
					bombs++
				}
			}
			if bombs != 1 || len(got.Report.Findings) > 2 {
				t.Errorf("findings = %d, %d of them about aliases; want at most 2, 1 of them about aliases: %v", len(got.Report.Findings), bombs, brief(got.Report))
			}
		})
	}
}

// published returns the texts of the published inputs by file name.
func published(t testing.TB) map[string]string {
	t.Helper()
	dir := material.Path(t, "data/published-inputs")
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Ext(e.Name()) != ".md" {
			out[e.Name()] = string(data)
		}
	}
	return out
}

var fuzzCommands = []string{
	"helm install gpu-operator gpu-operator-v26.7.1.tgz", "helm install gpu-operator ./gpu-operator-v99.1.tgz --set driver.enabled=false",
	"helm install g nvidia/gpu-operator --version v0.0.0", "helm install g nvidia/gpu-operator --version", "helm upgrade -i g nvidia/gpu-operator --version v31.1.0 --reuse-values",
	"helm install", "helm", "helm --kubeconfig x", "helm install --version=x.y.z a gpu-operator-.tgz", "sudo helm", "--set a=b", "helm install x y --set toolkit.env[0].name=A --set toolkit.env[70000].value=1",
	"kubectl patch clusterpolicy x -p '{\"spec\":{}}'", "kubectl patch clusterpolicy x --type json -p '[{\"op\":\"add\",\"path\":\"/spec/driver/env/0/name\"}]'", "kubectl label node x nvidia.com/mig.config=",
	"A=(--set driver.enabled=false); helm install g nvidia/gpu-operator \"${A[@]}\"", "for i in 1 2; do helm install g$i nvidia/gpu-operator --set mig.strategy=$i; done",
	"helm install g nvidia/gpu-operator -f - <<EOF\ndriver: {enabled: false, version: $V}\nEOF\n", "f() { helm template g nvidia/gpu-operator --set-json 'driver={\"enabled\":1}'; }; f",
}

// FuzzLintAndFix lints a command, and then the corrected command. Neither run may panic, and the second must not fail.
func FuzzLintAndFix(f *testing.F) {
	for _, c := range fuzzCommands {
		f.Add(c, "")
		f.Add(c, "v26.7.9")
	}
	f.Add("helm install x nvidia/gpu-operator", "v1.2")
	f.Fuzz(func(t *testing.T, command, version string) {
		if len(command) > 4096 {
			return
		}
		result, err := lint.Lint(lint.Options{Command: command, Version: version})
		if err != nil || command == "" {
			return
		}
		if _, err := lint.Lint(lint.Options{Command: result.Corrected, Version: version}); err != nil {
			t.Errorf("Lint of %q corrected to %q: error %v", command, result.Corrected, err)
		}
		check.Mask(result.Corrected)
	})
}

func TestReleasesThatDoNotExist(t *testing.T) {
	for _, c := range fuzzCommands {
		for _, v := range []string{"", "v26.7.1", "v31.1.0", "v0.0.1", "v25.3.99", "x"} {
			_, err := lint.Lint(lint.Options{Command: c, Version: v})
			if err != nil && v != "x" && v != "v0.0.1" {
				t.Errorf("Lint of %q for %q: error %v, want none", c, v, err)
			}
		}
	}
	got := judge(t, lint.Options{Version: "v99.1.0", Files: []lint.Input{{Name: "v", Data: []byte("driver: {brandNew: 1, enabled: true}\nnewOperand: {x: 1}\n")}}})
	if got.Report.AtLeast(check.Warning) || got.Report.Summary() != "3 notes" {
		t.Errorf("findings for a newer release = %v, want 3 notes", brief(got.Report))
	}
	got = judge(t, lint.Options{Command: "helm install g gpu-operator-" + "v99.1.0.tgz -n gpu-operator --set driver.brandNew=1,mig.strategy=mixd"})
	if !got.Report.AtLeast(check.Error) {
		t.Errorf("findings for a wrong value of a newer release = %v, want an error", brief(got.Report))
	}
	if newest := chart.Load().Latest(); !strings.Contains(got.Report.Findings[0].Reason, newest.String()) {
		t.Errorf("reason = %q, want it to name the checked release %s", got.Report.Findings[0].Reason, newest)
	}
}

var update = flag.Bool("update", false, "write the golden files")

// The findings equal those in testdata/published.txt. Each line of that file was checked against the release's chart,
// CRDs and documentation.
func TestPublishedInputs(t *testing.T) {
	inputs := published(t)
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(inputs)) {
		o := lint.Options{Files: []lint.Input{{Name: name, Data: []byte(inputs[name])}}}
		if strings.HasSuffix(name, ".sh") {
			o = lint.Options{Command: inputs[name]}
		}
		got := judge(t, o)
		fmt.Fprintf(&out, "%s: %s\n", name, strings.Join(got.Kinds, ", "))
		for _, line := range brief(got.Report) {
			fmt.Fprintf(&out, "  %s\n", line)
		}
	}
	const path = "testdata/published.txt"
	if *update {
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(out.String(), "\n")); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}
