package lint_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/lint"
)

func TestTerraform(t *testing.T) {
	release := func(body string) string {
		return "resource \"helm_release\" \"x\" {\n  chart = \"gpu-operator\"\n" + body + "\n}\n"
	}
	for _, tt := range []struct {
		row, text string
		want      []string
	}{
		{"a set block", release("set {\n name = \"mig.strategy\"\n value = \"mixd\"\n}"), []string{"error wrong-value mig.strategy @4"}},
		{"a value that Helm splits at a comma", release(`set = [{ name = "driver.enabled", value = "false,toolkit.enbaled=true" }]`), []string{"error unknown-key toolkit.enbaled @3"}},
		{"an escaped comma", release(`set = [{ name = "operator.runtimeClass", value = "a\\,b" }]`), nil},
		{"a value of type string", release(`set = [{ name = "toolkit.env[0].name", value = "A" }, { name = "toolkit.env[0].value", value = "1", type = "string" }]`), nil},
		{"a number without a type", release(`set = [{ name = "toolkit.env[0].name", value = "A" }, { name = "toolkit.env[0].value", value = "1" }]`), []string{"error wrong-type toolkit.env[0].value @3"}},
		{"values in yamlencode", release("values = [yamlencode({\n driver = {\n  enabled = \"yess\"\n } })]"), []string{"error wrong-value driver.enabled @5"}},
		{"yamlencode inside yamlencode", release("values = [yamlencode({ devicePlugin = { config = { create = true, name = \"c\", default = \"a\", data = { a = yamlencode({ version = \"v1\", sharing = { timeSlicing = { resources = [{ name = \"nvidia.com/gpu\", replicas = 1 }] } } }) } } } })]"),
			[]string{"error sharing-replicas devicePlugin.config.data.a: sharing.timeSlicing.resources[0].replicas @3"}},
		{"both arms of a condition", release("values = [var.x ? yamlencode({ drivr = {} }) : yamlencode({ toolkt = {} })]"), []string{"error unknown-key drivr @3", "error unknown-key toolkt @3"}},
		{"a local defined below its use", release("values = [yamlencode({ drivr = local.d })]") + "locals {\n d = { enabled = local.e }\n e = false\n}\n", []string{"error unknown-key drivr @3"}},
		{"a file in a template", release("values = [\"${file(\"v.yaml\")}\"]"), []string{"error unknown-key drivr @2"}},
		{"variables without values", release("version = var.version\nvalues = [yamlencode({ driver = { version = var.v, env = [{ name = \"A\", value = var.w }] } }), var.more]"),
			[]string{"note not-judged", "note not-judged var.version @3", "note not-judged helm_release x @4"}},
		{"a values file that exists", release("values = [file(\"${path.module}/v.yaml\")]"), []string{"error unknown-key drivr @2"}},
		{"a values file that does not exist", release(`values = [file("w.yaml")]`), []string{"note not-judged w.yaml @3"}},
		{"an older release", release("version = \"v24.9.0\"\nset = [{ name = \"psp.enabled\", value = true }]"), []string{"warning key-gone psp.enabled @4"}},
		{"another chart", "resource \"helm_release\" \"x\" {\n chart = \"cilium\"\n}\n", nil},
		{"invalid Terraform", "resource \"helm_release\" {\n", []string{"error terraform-syntax @1"}},
		{"lists nested too deeply", "a = " + strings.Repeat("[", 100_000), []string{"note not-judged"}},
	} {
		t.Run(tt.row, func(t *testing.T) {
			read := func(_, name string) ([]byte, error) {
				if name != "dir/v.yaml" {
					return nil, errors.New("not here")
				}
				return []byte("# ours\ndrivr: {enabled: true}\n"), nil
			}
			got := judge(t, lint.Options{Read: read, Files: []lint.Input{{Name: "dir/main.tf", Data: []byte(tt.text)}}})
			if diff := cmp.Diff(tt.want, brief(got.Report)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Lint must use at most 50 MB for Terraform that expands to large values: nested locals, nested loops or wide formats.
func TestTerraformBombs(t *testing.T) {
	growing := "locals {\n a0 = \"xxxxxxxx\"\n l0 = [\"x\"]\n"
	for i := 1; i < 8; i++ {
		growing += fmt.Sprintf(" a%d = \"%s\"\n l%d = concat(%s)\n", i, strings.Repeat(fmt.Sprintf("${local.a%d}", i-1), 64), i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("local.l%d, ", i-1), 64), ", "))
	}
	growing += "}\n"
	many := " c = \"" + strings.Repeat("${local.a1}", 30) + "\"\n"
	for i := range 2000 {
		many += fmt.Sprintf(" b%d = \"${local.c}x\"\n", i)
	}
	use := "resource \"helm_release\" \"x\" {\n chart = \"gpu-operator\"\n values = [yamlencode({ driver = { version = %s } })]\n}\n"
	for name, text := range map[string]string{
		"locals that grow":            growing + fmt.Sprintf(use, "local.a7") + fmt.Sprintf(use, "local.l7"),
		"many locals":                 "locals {\n" + many + "}\n" + growing,
		"nested loops":                growing + fmt.Sprintf(use, "[for a in local.l2 : [for b in local.l2 : [for c in local.l2 : c]]]"),
		"a wide format":               fmt.Sprintf(use, `format("%999999999s", "x")`),
		"a join of long values":       growing + fmt.Sprintf(use, `join(local.a2, local.l2)`),
		"a text with many references": growing + strings.Replace(fmt.Sprintf(use, "1"), "yamlencode({ driver = { version = 1 } })", `"`+strings.Repeat("${local.a2}:\\n", 2000)+`"`, 1),
		"a list of references":        growing + fmt.Sprintf(use, "["+strings.Repeat("local.a2, ", 2000)+"]"),
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			judge(t, lint.Options{Files: []lint.Input{{Name: "main.tf", Data: []byte(text)}}})
			runtime.ReadMemStats(&after)
			if used := after.TotalAlloc - before.TotalAlloc; used > 50<<20 {
				t.Errorf("Lint allocated %d MB, want at most 50 MB", used>>20)
			}
		})
	}
}

// FuzzTerraform lints each file twice. Both runs must report the same findings.
func FuzzTerraform(f *testing.F) {
	f.Add("resource \"helm_release\" \"x\" {\n chart = \"gpu-operator\"\n values = [<<-EOT\n  driver: {enabled: ${var.x}}\n  EOT\n ]\n}\n")
	f.Add("locals {\n a = local.b\n b = local.a\n}\nresource \"helm_release\" \"x\" {\n chart = local.a\n set { name = 1 }\n}\n")
	f.Add("resource \"kubernetes_manifest\" \"x\" {\n manifest = { (var.a) = [for x in [1] : x] }\n}\n")
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 4096 {
			return
		}
		o := lint.Options{Files: []lint.Input{{Name: "main.tf", Data: []byte(text)}}}
		if diff := cmp.Diff(brief(judge(t, o).Report), brief(judge(t, o).Report)); diff != "" {
			t.Errorf("two runs differ:\n%s", diff)
		}
	})
}
