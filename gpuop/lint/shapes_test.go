package lint_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/lint"
)

// Findings name the script or the command that they are about.
func TestScriptsAmongTheFiles(t *testing.T) {
	script := func(name, text string) lint.Input {
		return lint.Input{Name: name, Data: []byte(text), Script: true}
	}
	result := judge(t, lint.Options{Files: []lint.Input{
		script("a.sh", "helm install gpu-operator nvidia/gpu-operator -n gpu-operator --version v26.7.0 --set drivr.enabled=false"),
		script("b.sh", "kubectl apply -f - <<EOF\napiVersion: nvidia.com/v1alpha1\nkind: NVIDIADriver\nmetadata:\n  name: a\nspec:\n  imag: driver\nEOF\n"),
		script("c.sh", "echo nothing"),
	}, Command: "kubectl label node n nvidia.com/mig.confg=all-1g.10gb --overwrite"})
	var got []string
	for _, f := range result.Report.Findings {
		got = append(got, f.File+" "+f.Check.ID)
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"a.sh unknown-key", "b.sh unknown-field", "command unknown-label"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"c.sh"}, result.Unjudged); diff != "" {
		t.Errorf("unjudged (-want +got):\n%s", diff)
	}
	if want := "kubectl label node n nvidia.com/mig.confg=all-1g.10gb --overwrite"; result.Corrected != want {
		t.Errorf("corrected command = %q, want %q", result.Corrected, want)
	}
}

// The search of a folder checks only the files that are for the operator.
func TestFilesOfAFolder(t *testing.T) {
	file := func(name, text string) lint.Input { return lint.Input{Name: name, Data: []byte(text), Found: true} }
	result := judge(t, lint.Options{Files: []lint.Input{
		file("Chart.yaml", "apiVersion: v2\nname: a\nversion: 1.0.0\n"),
		file("tasks.yaml", "- name: a\n  debug: {}\n"),
		file("values.yaml", "drivr:\n  enabled: false\n"),
		file("broken.yaml", "nvidia: [\n"),
		file("other.yaml", "a: [\n"),
		file("job.yaml", "kind: Job\nmetadata: {name: @@NAME@@ # gpu\n"),
		file("launch.json", "// gpu\n{\"a\": 1 /* nvidia */}\n"),
		file("near.yaml", "vsp: {enabled: true}\noperator: {image: {tag: v1}, replicas: 2}\nimage: nvidia\n"),
		file("network.yaml", "nfd: {deployNodeFeatureRules: true, enabled: true}\nnvidia: a\n"),
		file("flags.yaml", "flags: {gpu: true, migStrategy: all}\n"),
		file("kyverno.yaml", "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nspec: {nvidia: 1}\n"),
		file("near-group.yaml", "apiVersion: nvidia.co/v1\nkind: ClusterPolicy\nspec: {nvidia: 1}\n"),
		file("umbrella.yaml", "gpu-operator: {deviceConfig: {}, kmm: {enabled: true}}\n"),
		file("own/values.yaml", "driver: {enabled: false}\ntoolkit: {enbaled: false}\n"),
		file("other-vendor.yaml", "version: v1\nsharing: {timeSlicing: {resources: [{name: gpu.example.com/gpu, replicas: 10}]}}\n"),
		file("policy.yaml", "apiVersion: nvidia.com/v1\nkind: ClusterPolicy\nspec: [\n"),
	}})
	if diff := cmp.Diff([]string{"error yaml-syntax @3", "error unknown-key toolkit.enbaled @2"}, brief(result.Report)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(14, len(result.Unjudged)); diff != "" {
		t.Errorf("unjudged (-want +got):\n%s", diff)
	}
}

// A values file that another file of the folder uses is checked once, for the release of that file.
func TestUsedValuesAreCheckedOnce(t *testing.T) {
	const values = "gds: {enabled: false}\nwait: true\ntoolkit: {enabled: true}\n"
	for name, text := range map[string]string{
		"main.tf":    "resource \"helm_release\" \"gpu\" {\n  chart = \"gpu-operator\"\n  version = \"v24.9.2\"\n  values = [file(\"gpu.yaml\")]\n}\n",
		"install.sh": "#!/bin/sh\nhelm install g nvidia/gpu-operator -n gpu-operator --version v24.9.2 -f ./gpu.yaml\n",
	} {
		t.Run(name, func(t *testing.T) {
			result := judge(t, lint.Options{
				Files: []lint.Input{
					{Name: "gpu.yaml", Data: []byte(values), Found: true},
					{Name: name, Data: []byte(text), Found: true, Script: name == "install.sh"},
				},
				Read: func(_, name string) ([]byte, error) {
					if strings.TrimPrefix(name, "./") != "gpu.yaml" {
						return nil, os.ErrNotExist
					}
					return []byte(values), nil
				},
			})
			want := []string{"no version of the chart has this key; v24.9.2 silently ignores it"}
			if diff := cmp.Diff(want, reasons(result.Report)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if len(result.Unjudged) > 0 {
				t.Errorf("unjudged inputs = %v, want none", result.Unjudged)
			}
		})
	}
}

// The column of a finding inside a block of text counts from the start of the file's line.
func TestColumnsInsideABlock(t *testing.T) {
	const text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  any: |\n    version: v1\n    sharing:\n      timeSlicing:\n        resources:\n        - name: nvidia.com/gpu\n          replicas: 1\n"
	for name, o := range map[string]lint.Options{
		"in a ConfigMap":     {Files: []lint.Input{{Name: "a.yaml", Data: []byte(text)}}},
		"in a here-document": {Command: "kubectl apply -f - <<'EOF'\n" + text + "EOF\n"},
	} {
		result := judge(t, o)
		if len(result.Report.Findings) != 1 {
			t.Fatalf("%s: findings = %v, want one", name, brief(result.Report))
		}
		if got, want := result.Report.Findings[0].Column, 21; got != want {
			t.Errorf("%s: column = %d, want %d", name, got, want)
		}
	}
}

// The fix for an unknown key is a similar key. If there is none, the fix lists the keys of the same group.
func TestAnswersToUnknownKeys(t *testing.T) {
	for key, want := range map[string]string{
		"driver.repoConfig.name":               "did you mean driver.repoConfig.configMapName?",
		"driver.licensingConfig.secret":        "did you mean driver.licensingConfig.secretName?",
		"driver.licensingConfig.Name":          "driver.licensingConfig has the keys ",
		"dcgmExporter.arguments":               "did you mean dcgmExporter.args?",
		"driver.upgradePolicy.drain.timeout":   "did you mean driver.upgradePolicy.drain.timeoutSeconds?",
		"migManager.strategy":                  "did you mean mig.strategy?",
		"node-feature-discovery.tolerations":   "did you mean node-feature-discovery.worker.tolerations?",
		"toolkit.enbaled":                      "did you mean toolkit.enabled?",
		"driver.upgradePolicy.drain.something": "driver.upgradePolicy.drain has the keys deleteEmptyDir, enable, force, podSelector, timeoutSeconds",
	} {
		result := judge(t, lint.Options{Command: "helm install gpu-operator nvidia/gpu-operator -n gpu-operator --version v26.7.0 --set " + key + "=a"})
		if rows := result.Report.Findings; len(rows) != 1 || !strings.HasPrefix(rows[0].Fix, want) {
			t.Errorf("%s: findings = %+v, want one with a fix that begins with %q", key, rows, want)
		}
	}
}
