package lint_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/lint"
)

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
			underLimit(t, func() { judge(t, lint.Options{Files: []lint.Input{{Name: "main.tf", Data: []byte(text)}}}) })
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
