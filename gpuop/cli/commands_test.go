package cli

import (
	"regexp"
	"strings"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/values"
)

var helmCall = regexp.MustCompile(`\bhelm (?:install|upgrade|template|pull)\b[^|&;\n]*`)

// helmCalls returns the helm commands in gpuop's output, including those in comments.
func helmCalls(text string) []string {
	text = regexp.MustCompile(`\\\n(# +)?`).ReplaceAllString(text, " ")
	return helmCall.FindAllString(text, -1)
}

// Printed helm commands contain --version, because helm otherwise installs the newest release of the day. They do not
// contain --reuse-values, which drops the defaults of the new release.
func TestPrintedCommandsNameTheirVersion(t *testing.T) {
	newest := chart.Load().Latest().String()
	calls := [][]string{
		{"images", "--long"},
		{"values", "migrate", example("values-v23.9.yaml"), "--from", "v23.9"},
		{"lint", "--fix", "--version", "latest", example("install.sh")},
		{"lint", "--fix", "--command", "helm upgrade g nvidia/gpu-operator -n gpu-operator --reuse-values --set mig.strategy=mixed"},
		{"lint", "--fix", "--version", "latest", "--command", "helm install g nvidia/gpu-operator -n gpu-operator"},
	}
	for _, p := range values.Platforms() {
		calls = append(calls, []string{"values", "gen", p[0], "--registry", "registry.example.com/mirror", "--pull-secret", "key"})
	}
	for _, f := range values.Features() {
		name, _, _ := strings.Cut(f[0], "[")
		calls = append(calls, []string{"values", "gen", "generic", name, "--registry", "registry.example.com/mirror"})
	}
	printed := 0
	for _, args := range calls {
		code, out, errOut := call("", args...)
		if code == exitBadInput {
			t.Errorf("gpuop %s: exit 2, want 0 or 1: %s", strings.Join(args, " "), errOut)
		}
		for _, c := range helmCalls(out + errOut) {
			printed++
			if !strings.Contains(c, "--version ") {
				t.Errorf("gpuop %s prints %q without --version", strings.Join(args, " "), c)
			}
			if strings.Contains(c, "--reuse-values") {
				t.Errorf("gpuop %s prints %q with --reuse-values", strings.Join(args, " "), c)
			}
			if strings.Contains(c, "nvidia/gpu-operator") && !strings.Contains(c, newest) {
				t.Errorf("gpuop %s prints %q, want release %s", strings.Join(args, " "), c, newest)
			}
		}
	}
	if printed < 25 {
		t.Errorf("printed helm commands = %d, want at least 25", printed)
	}
}
