package lint_test

import (
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/lint"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
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
			var got check.Report
			underLimit(t, func() { got = findings(t, "", text) })
			bombs := strings.Count(strings.Join(brief(got), "\n"), " yaml-aliases")
			if bombs != 1 || len(got.Findings) > 2 {
				t.Errorf("findings = %v; want at most 2, 1 of them about aliases", brief(got))
			}
		})
	}
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
	if _, err := lint.Lint(lint.Options{Version: "v99"}); !errors.Is(err, chart.ErrVersion) {
		t.Errorf("Lint for v99: error = %v, want %v", err, chart.ErrVersion)
	}
	newer := findings(t, "v99.1.0", "driver: {brandNew: 1, enabled: true}\nnewOperand: {x: 1}\n")
	if newer.AtLeast(check.Warning) || newer.Summary() != "3 notes" {
		t.Errorf("findings for a newer release = %v, want 3 notes", brief(newer))
	}
	got := judge(t, lint.Options{Command: "helm install g gpu-operator-" + "v99.1.0.tgz -n gpu-operator --set driver.brandNew=1,mig.strategy=mixd"})
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
	var out strings.Builder
	for _, file := range folder.Files(t, material.Path(t, "data/published-inputs"), "*") {
		name, data := filepath.Base(file), read(t, file)
		o := lint.Options{Files: []lint.Input{{Name: name, Data: data}}}
		switch filepath.Ext(name) {
		case ".md":
			continue
		case ".sh":
			o = lint.Options{Command: string(data)}
		}
		got := judge(t, o)
		fmt.Fprintf(&out, "%s: %s\n", name, strings.Join(got.Kinds, ", "))
		for _, line := range brief(got.Report) {
			fmt.Fprintf(&out, "  %s\n", line)
		}
	}
	const path = "testdata/published.txt"
	if *update {
		folder.Write(t, path, out.String())
	}
	want := read(t, path)
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(out.String(), "\n")); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}
