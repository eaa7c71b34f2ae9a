package lint_test

import (
	"strings"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/lint"
)

// A setting has an effect if an enabled operand reads it, even if the setting's own group is disabled.
func TestSettingsThatOtherOperandsRead(t *testing.T) {
	for _, test := range []struct {
		release, flags, dead string
	}{
		{"v26.7.0", "driver.enabled=false gds.enabled=true", ""},
		{"v26.7.0", "driver.enabled=false gdrcopy.enabled=true", ""},
		{"v24.9.0", "driver.enabled=false gds.enabled=true", ""},
		{"v24.9.0", "driver.enabled=false gdrcopy.enabled=true", "gdrcopy.enabled"},
		{"v23.9.0", "driver.enabled=false driver.rdma.enabled=true", ""},
		{"v26.7.0", "driver.enabled=false driver.rdma.enabled=true", "driver.rdma.enabled"},
		{"v26.7.0", "driver.enabled=false gds.enabled=true gds.version=2.20.5", "gds.version"},
		{"v26.7.0", "driver.enabled=false devicePlugin.enabled=false gds.enabled=true", "gds.enabled"},
		{"v26.7.0", "driver.enabled=false driver.nvidiaDriverCRD.enabled=true", ""},
		{"v26.7.0", "devicePlugin.enabled=false devicePlugin.config.name=c", ""},
		{"v26.7.0", "devicePlugin.enabled=false devicePlugin.config.name=c devicePlugin.repository=registry.example.com/nvidia", ""},
		{"v26.7.0", "devicePlugin.enabled=false devicePlugin.repository=registry.example.com/nvidia", "devicePlugin.repository"},
		{"v26.7.0", "devicePlugin.enabled=false gfd.enabled=false devicePlugin.config.name=c", "devicePlugin.config.name"},
		{"v26.7.0", "devicePlugin.enabled=false devicePlugin.mps.root=/x", "devicePlugin.mps.root"},
	} {
		command := "helm install g nvidia/gpu-operator -n gpu-operator --version " + test.release
		for flag := range strings.FieldsSeq(test.flags) {
			command += " --set " + flag
		}
		result, err := lint.Lint(lint.Options{Command: command, Fix: true})
		if err != nil {
			t.Fatal(err)
		}
		dead := ""
		for _, f := range result.Report.Findings {
			if f.Check.ID == "dead-setting" {
				dead = f.Subject
			}
		}
		if dead != test.dead {
			t.Errorf("%s, %s: dead setting = %q, want %q", test.release, test.flags, dead, test.dead)
		}
		for flag := range strings.FieldsSeq(test.flags) {
			if key, _, _ := strings.Cut(flag, "="); test.dead == "" && !strings.Contains(result.Corrected, flag) {
				t.Errorf("%s: --fix removed %s, want it kept:\n%s", test.flags, key, result.Corrected)
			}
		}
	}
}

// --fix does not rename a key that no release ever had: renaming it to a similar key could disable an operand.
func TestFixKeepsUnknownKeys(t *testing.T) {
	for _, flag := range []string{"validator.toolkit.enabled=false", "nodeStatusExporter.toolkit.enabled=false",
		"operator.devicePlugin.enabled=false", "toolkit.driver.enabled=false", "gfd.nfd.enabled=false", "drivr.enabled=false"} {
		command := "helm install g nvidia/gpu-operator -n gpu-operator --version v26.7.0 --set " + flag
		result, err := lint.Lint(lint.Options{Command: command, Fix: true})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(result.Corrected, "--set "+flag) || len(result.Report.Findings) == 0 {
			t.Errorf("%s: findings = %d, corrected command = %s; want at least one finding and an unchanged command", command, len(result.Report.Findings), result.Corrected)
		}
	}
}
