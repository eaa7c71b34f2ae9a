package cli

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/material"
)

// TestSharedCases runs gpuop on small inputs from public repositories that gpuop once got wrong. The output must match
// the regular expression want, and must not match the one in not.
func TestSharedCases(t *testing.T) {
	root := material.Path(t, "cases/gpuop")
	healthy, err := filepath.Abs(filepath.Join("..", "drift", "testdata", "healthy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	const noError = `(?m)^error|^warn`
	for _, c := range []struct {
		folder, call string
		code         int
		want, not    string
	}{
		{"amd-operator", "lint install.sh", 2, `not checked`, `deviceConfig`},
		{"cm-map", "lint cm.yaml", 1, `data\.any(.|\n)*write \|- after any:`, ``},
		{"drift-secrets", "drift -f values.yaml --from " + healthy, 1, `clientSecret`, `plain-`},
		{"drift-secrets", "drift -o json -f values.yaml --from " + healthy, 1, `clientSecret`, `plain-`},
		{"drift-secrets", "drift --set driver.password=plain-5 -f values.yaml --from " + healthy, 1, `password`, `plain-`},
		{"fix-secrets", "lint --fix install.sh", 1, `masked`, `plain-`},
		{"fix-secrets", "lint --fix -o json install.sh", 1, `corrected`, `plain-`},
		{"fleet", "lint fleet.yaml", 1, `toolkit\.enbaled(.|\n)*toolkit\.enabled\?`, ``},
		{"gds-preinstalled", "lint values.yaml", 0, `no findings`, noError},
		{"gds-preinstalled", "lint --fix install.sh", 0, `gds\.enabled=true(.|\n)*gdrcopy\.enabled=true`, noError},
		{"heredoc-variable", "lint apply.sh", 0, `not-judged|skipped`, noError},
		{"jsonc", "lint .", 2, `nothing to check`, noError},
		{"jsonc", "lint Makefile", 2, ``, noError},
		{"merge-list", "lint values.yaml", 0, `no findings`, noError},
		{"modified-chart", "lint .", 0, `house`, noError},
		{"must-gather-events", "verify --from .", 1, `enforces baseline`, ``},
		{"nested-own-name", "lint release.yaml", 1, `write the keys without gpu-operator: above them`, `operator\?`},
		{"os-suffix", "lint values.yaml", 1, `write 580\.105\.08\b`, ``},
		{"plugin-config-gfd", "lint values.yaml", 0, `no findings`, noError},
		{"plugin-config-gfd", "lint --fix install.sh", 0, `devicePlugin\.config\.name=`, noError},
		{"validator-toolkit", "values migrate values.yaml --from v24.9", 1, `validator:\n +toolkit:`, `(?m)^(toolkit|driver):`},
		{"workflow", "lint .github/workflows/deploy.yaml", 1, `drver`, ``},
	} {
		t.Run(c.folder+"/"+strings.Fields(c.call)[0], func(t *testing.T) {
			t.Chdir(filepath.Join(root, c.folder))
			code, out, errOut := call("", strings.Fields(c.call)...)
			text := out + errOut
			if code != c.code || !regexp.MustCompile(c.want).MatchString(text) || c.not != "" && regexp.MustCompile(c.not).MatchString(text) {
				t.Errorf("gpuop %s: exit %d, want %d with %q and without %q:\n%s", c.call, code, c.code, c.want, c.not, text)
			}
		})
	}
}

// TestStandardInput reads a text from standard input. The output must match the regular expression want, and must not
// match the one in not.
func TestStandardInput(t *testing.T) {
	const upgrade = "helm upgrade gpu-operator nvidia/gpu-operator -n gpu-operator --version v26.7.0 --set "
	const crio = "helm template g nvidia/gpu-operator --version v1.11.0 --set operator.defaultRuntime=crio"
	const release = "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {name: a}\nspec: {values: {driver: {enabled: false}}}\n"
	for _, c := range []struct {
		text, call string
		code       int
		want, not  string
	}{
		// a script, with and without a #! line
		{upgrade + "drver.enabled=false\n", "lint -", 1, `drver`, ``},
		{"#!/bin/sh\nset -e\n" + upgrade + "drver.enabled=false\n", "lint -", 1, `drver`, ``},
		{"# install\n" + upgrade + "drver.enabled=false\n", "lint -", 1, `drver`, ``},
		// the exit code depends on --fail-on
		{upgrade + "driver.enabled=false", "lint -c -", 0, `no findings`, ``},
		{upgrade + "dcgm.version=4.5.0", "lint -c -", 0, `1 warning`, ``},
		{crio, "lint -c -", 0, `note`, `warning|error`},
		{crio, "lint -c - --fail-on note", 1, `note`, `warning|error`},
		// the headers that helm get values prints
		{"USER-SUPPLIED VALUES:\nmig: {strategy: mixed}\n", "lint -", 0, `no findings`, ``},
		{"COMPUTED VALUES:\ndriver: {enabled: yes}\n", "lint -", 0, `no findings`, ``},
		// --version is only added to a chart of a repository
		{"helm install g ./gpu-operator-v26.7.0.tgz -n gpu-operator", "lint --fix -c -", 0, `\./gpu-operator-v26`, `--version`},
		{"helm install g ./charts/gpu-operator -n gpu-operator", "lint --fix -c -", 0, `\./charts/gpu-operator`, `--version`},
		{"helm install g /srv/gpu-operator -n gpu-operator", "lint --fix -c -", 0, `/srv/gpu-operator`, `--version`},
		{"driver: {rdma: {enabled: true}}\n", "lint -", 0, `v26\.7\.0, assumed`, ``},
		{"driver: {rdma: {enabled: true}}\n", "lint - --version v26.7.0", 0, `v26\.7\.0`, `assumed`},
		{"cdi: {enabled: true}\n", "lint - --version v25.4.0", 0, `v25\.4\.0.*unknown release; checked against v25\.3\.4`, ``},
		{"cdi: {enabled: true}\n", "lint - --version v26.11.0", 0, `v26\.11\.0.*unknown release; checked against v26\.7`, ``},
		// users mirror the printed images, so none are printed if the values cannot be read
		{release, "images -", 1, `HelmRelease`, `nvcr\.io`},
		{release, "images - -o json", 1, `HelmRelease`, `nvcr\.io`},
		{"mig-configs: []\n", "node predict --gpu A100-40GB --config a -f -", 2, `it has no config`, `allocatable`},
		{"mig-configs: [\n", "node predict --gpu A100-40GB --config a -f -", 1, `stdin.* error: `, `allocatable`},
	} {
		code, out, errOut := call(c.text, strings.Fields(c.call)...)
		text := out + errOut
		if code != c.code || !regexp.MustCompile(c.want).MatchString(text) || c.not != "" && regexp.MustCompile(c.not).MatchString(text) {
			t.Errorf("gpuop %s of %q: exit %d, want %d with %q and without %q:\n%s", c.call, c.text, code, c.code, c.want, c.not, text)
		}
	}
}
