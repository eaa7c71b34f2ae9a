package lint_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/lint"
)

// --fix also rewrites commands that a script passes to another shell.
func TestFixRewritesWhatAShellRuns(t *testing.T) {
	const command = "sudo bash -c \"helm install g nvidia/gpu-operator -n gpu-operator --version v26.7.0 --set mig.strategy=%s \\\n  --set \\\"driver.enabled=true\\\"\" | tee log"
	if got, want := judge(t, lint.Options{Command: fmt.Sprintf(command, "mixd")}).Corrected, fmt.Sprintf(command, "mixed"); got != want {
		t.Errorf("corrected command = %s, want %s", got, want)
	}
}

func TestFixDropsWhatALaterFlagSetsAgain(t *testing.T) {
	const install = "helm install g nvidia/gpu-operator -n gpu-operator --version v26.7.0 --set "
	for given, want := range map[string]string{
		"mig.strategy=single,mig.strategy=single":    "mig.strategy=single,mig.strategy=single",
		"toolkit.enabled=true,toolkit.enabled=false": "toolkit.enabled=false",
	} {
		if got := judge(t, lint.Options{Command: install + given + "\n", Fix: true}).Corrected; got != install+want+"\n" {
			t.Errorf("correction of %q = %q, want %q", given, got, want)
		}
	}
}

func TestFixWritesValuesOfFlags(t *testing.T) {
	for given, want := range map[string]string{
		"kubectl get pods -n gpu-opeator\n":                                               "kubectl get pods -n gpu-operator\n",
		"kubectl get pods -ngpu-opeator\n":                                                "kubectl get pods --namespace=gpu-operator\n",
		"helm template g nvidia/gpu-operator --version v26.7.0 --namespace gpu-opeator\n": "helm template g nvidia/gpu-operator --version v26.7.0 --namespace gpu-operator\n",
		"helm template g nvidia/gpu-operator --set mig.strategy=$S --version newest\n":    "helm template g nvidia/gpu-operator --set mig.strategy=$S --version v26.7.0\n",
		"kubectl --namespace=gpu-opeator get pods\n":                                      "kubectl --namespace=gpu-operator get pods\n",
		"kubectl create namespace 'gpu-opeator'\n":                                        "kubectl create namespace gpu-operator\n",
	} {
		got := judge(t, lint.Options{Command: given, Fix: true}).Corrected
		if got != want {
			t.Errorf("correction of %q = %q, want %q", given, got, want)
		}
	}
}

// Flags on the lines after a command are reported but not moved if the command ends inside quotes or parentheses, reads
// a here-document, or ends with a redirection.
func TestFixLeavesWhatItCannotContinue(t *testing.T) {
	for _, between := range []string{"\"\n", ")\n", " <<X\nmig: {}\nX\n", " >log\n"} {
		command := "helm install g nvidia/gpu-operator -n gpu-operator --version v26.7.0" + between + "  --set drivr.enabled=false"
		if opening, ok := map[byte]string{'"': "bash -c \"", ')': "("}[between[0]]; ok {
			command = opening + command
		}
		got := judge(t, lint.Options{Command: command})
		if found := brief(got.Report); len(found) != 1 || !strings.HasPrefix(found[0], "error broken-continuation --set @") || got.Corrected != command {
			t.Errorf("%s: findings = %v, want one broken-continuation; corrected command, want no change:\n%s", command, found, got.Corrected)
		}
	}
}

// A pinned version works, so --fix keeps it. In an upgrade, --fix removes a version that is the default of an older
// release.
func TestFixKeepsPins(t *testing.T) {
	const command = "helm install gpu-operator nvidia/gpu-operator -n gpu-operator --version v25.3.0 --set toolkit.version=%s"
	for _, tt := range []struct {
		pin, version, severity string
		kept                   bool
	}{
		{"v1.14.3-ubuntu20.04", "", "warning", true},  // the default of v23.9.0
		{"v1.17.8-ubuntu20.04", "", "note", true},     // the default of v25.3.4
		{"v1.17.99-ubuntu20.04", "", "warning", true}, // no release has this default
		{"v1.14.3-ubuntu20.04", "v26.7.0", "warning", false},
		{"v1.12.99-ubuntu20.04", "v26.7.0", "warning", true},
		{"v1.17.8-ubuntu20.04", "v25.3.0", "note", true}, // the command names this release
	} {
		got := judge(t, lint.Options{Command: strings.Replace(command, "%s", tt.pin, 1), Version: tt.version})
		if !slices.ContainsFunc(brief(got.Report), func(s string) bool { return strings.HasPrefix(s, tt.severity+" operand-version toolkit.version") }) {
			t.Errorf("pin %s, version %q: findings = %v, want toolkit.version with severity %s", tt.pin, tt.version, brief(got.Report), tt.severity)
		}
		if kept := strings.Contains(got.Corrected, "toolkit.version="+tt.pin); kept != tt.kept {
			t.Errorf("pin %s, version %q: kept = %t, want %t; corrected command:\n%s", tt.pin, tt.version, kept, tt.kept, got.Corrected)
		}
	}
}

func TestFixKeepsWhatIsUnknown(t *testing.T) {
	got := judge(t, lint.Options{Command: "helm install gpu-operator nvidia/gpu-operator -n gpu-operator --set driver.enabled=false --set driver.qqqq.x=1 --set driver.env[0].name=A"})
	if diff := cmp.Diff([]string{"error unknown-key driver.qqqq @1", "warning dead-setting driver.env[0].name @1"}, brief(got.Report)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !strings.Contains(got.Corrected, "driver.qqqq.x=1") || strings.Contains(got.Corrected, "driver.env") {
		t.Errorf("corrected command = %s, want it with driver.qqqq.x=1 and without driver.env", got.Corrected)
	}
}

func TestNamespaceOfTheEnvironment(t *testing.T) {
	const helm = "helm install gpu-operator nvidia/gpu-operator"
	for _, command := range []string{"HELM_NAMESPACE=gpu-operator " + helm, "export HELM_NAMESPACE=gpu-operator\n" + helm, "sudo HELM_NAMESPACE=x " + helm, "env HELM_NAMESPACE=x " + helm, helm + " -n x"} {
		if got := judge(t, lint.Options{Command: command}); len(got.Report.Findings) > 0 {
			t.Errorf("%s: findings = %v, want none", command, brief(got.Report))
		}
	}
	if got := judge(t, lint.Options{Command: "OTHER=x " + helm}); len(got.Report.Findings) != 1 {
		t.Errorf("without HELM_NAMESPACE: findings = %v, want one", brief(got.Report))
	}
}
