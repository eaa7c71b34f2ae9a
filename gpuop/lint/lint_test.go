package lint_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/lint"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
)

func judge(t testing.TB, o lint.Options) *lint.Result {
	t.Helper()
	o.Fix = true
	result, err := lint.Lint(o)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// findings lints a text as the only file for a release.
func findings(t testing.TB, version, text string) check.Report {
	t.Helper()
	return judge(t, lint.Options{Version: version, Files: []lint.Input{{Name: "f", Data: []byte(text)}}}).Report
}

func read(t testing.TB, path ...string) []byte { return []byte(folder.Read(t, path...)) }

// underLimit checks that a function allocates at most 50 MB.
func underLimit(t *testing.T, f func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 50<<20 {
		t.Errorf("Lint allocated %d MB, want at most 50 MB", used>>20)
	}
}

// brief formats each finding as "severity check subject @line".
func brief(r check.Report) []string {
	var out []string
	for _, f := range r.Findings {
		line := ""
		if f.Line > 0 {
			line = fmt.Sprintf(" @%d", f.Line)
		}
		subject := ""
		if f.Subject != "" {
			subject = " " + f.Subject
		}
		out = append(out, fmt.Sprintf("%s %s%s%s", f.Severity.String(), f.Check.ID, subject, line))
	}
	return out
}

func reasons(r check.Report) (out []string) {
	for _, f := range r.Findings {
		out = append(out, f.Reason)
	}
	return out
}

// TestInstallCommandIsCorrected lints the command of the article after --fix. Only validator.image is still reported,
// because it has several possible corrections.
func TestInstallCommandIsCorrected(t *testing.T) {
	for _, version := range []string{"", "v22.9.2", "v24.3.0", "latest"} {
		corrected := judge(t, lint.Options{Version: version, Command: string(read(t, "testdata/install.sh"))}).Corrected
		var left []string
		for _, row := range judge(t, lint.Options{Command: corrected}).Report.Findings {
			if row.Severity >= check.Warning {
				left = append(left, row.Check.ID+" "+row.Subject)
			}
		}
		if diff := cmp.Diff([]string{"below-a-value validator.image"}, left); diff != "" {
			t.Errorf("version %q: findings after --fix (-want +got):\n%s\ncorrected command:\n%s", version, diff, corrected)
		}
		if version == "latest" {
			for _, want := range []string{"--version v26.7.0", "mig.strategy=mixed", "driver.enabled=false", "dcgmExporter.repository=registry.example.com:5000/nvidia/k8s"} {
				if !strings.Contains(corrected, want) {
					t.Errorf("corrected command lacks %s:\n%s", want, corrected)
				}
			}
		}
	}
}

// A config that a file names is not compared with the ConfigMap of another file, which may be for another cluster.
func TestConfigMapOfAnotherFile(t *testing.T) {
	const configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: time-slicing-config}\ndata:\n" +
		"  any: |-\n    version: v1\n    sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}\n"
	const values = "devicePlugin: {config: {name: time-slicing-confg, default: any}}\n"
	got := judge(t, lint.Options{Files: []lint.Input{
		{Name: "a.yaml", Data: []byte(configMap)},
		{Name: "b.yaml", Data: []byte(values)},
	}})
	if got.Judged != 3 || len(got.Report.Findings) > 0 {
		t.Errorf("ConfigMap with a similar name in another file: findings = %v, checked = %d (%v); want none, 3", brief(got.Report), got.Judged, got.Kinds)
	}
}

// within checks that a result is consistent: lines are inside the text, and findings have a check and a reason.
func within(t *testing.T, text string, result *lint.Result) {
	t.Helper()
	// YAML has five kinds of line break, and a lone carriage return is one of them
	lines := 1
	for _, end := range []string{"\n", "\r", "\u0085", "\u2028", "\u2029"} {
		lines += strings.Count(text, end)
	}
	for _, f := range result.Report.Findings {
		if f.Line < 0 || f.Line > lines {
			t.Errorf("check %s at line %d, but the input has %d lines", f.Check.ID, f.Line, lines)
		}
		if f.Check.ID == "" || f.Reason == "" {
			t.Errorf("finding lacks an ID or reason: %+v", f)
		}
	}
}

func FuzzFile(f *testing.F) {
	for _, s := range []string{"driver: {enabled: false, version: 1}", "version: v1\nsharing: {mps: {}}", "kind: Pod\nspec: {containers: [{resources: {limits: {nvidia.com/gpu: 0.5}}}]}",
		"a: &a [*a]", "x: &x {y: *x}", "---\n---\nkind: List\nitems: [{kind: Node}]", "Name: x\nLabels: a=b\nCapacity:\n", "mig-configs: {}", "kind: ConfigMap\ndata: {a: 'version: v1'}", "\r0",
		"- helm: {chart_ref: a/gpu-operator, values: [], set_values: [{value: a=b}, {value: =}]}\n- block: [{shell: helm install, command: {argv: [helm, {}]}, k8s: {definition: kind}}]",
		"apiVersion: kustomize.config.k8s.io/v1\nkind: Kustomization\npatches: [{patch: \"- op: a\\n\", target: {kind: ClusterPolicy}}, \"kind: ClusterPolicy\\nspec: {}\"]\npatchesStrategicMerge: {}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		o := lint.Options{Files: []lint.Input{{Name: "f", Data: []byte(text)}}}
		result := judge(t, o)
		within(t, text, result)
		if diff := cmp.Diff(result, judge(t, o)); diff != "" {
			t.Errorf("two runs differ:\n%s", diff)
		}
	})
}

var fuzzCommands = []string{
	"helm install --wait -n gpu-opeator \\  --set a.b={1,2},c=d gpu-operator nvidia/gpu-operator --version v1.11.0",
	"cat <<EOF | kubectl apply -f -\nkind: Pod\nEOF\nhelm repo add x https://nvidia.github.io/gpu-operator",
	"kubernetes lable nodes <node> nvidia.com/mig.config=all-1g.10gb",
	"$ helm upgrade -i g oci://x/gpu-operator-v26.7.0.tgz --set-json 'driver={\"version\":1}' --set validator.image.tag=$(x)",
	"helm upgrade g nvidia/gpu-operator --set-json =$X --set-literal ==a --set =b --set-json ={}",
	"A=(a); x && A=(--set b=c -n \"$@\"); bash -ec \"helm install g nvidia/gpu-operator \\\"${A[@]}\\\" \\\\ --set \\$X\"; $x 'helm install' 'sh -c \"'",
	"helm upgrade g gpu-operator-1.tgz --set-json $X --set-string $Y",
	"helm install g nvidia/gpu-operator --set toolkit.env[0].name=A --set driver.manager.image.repository='a b/c'",
	"helm install gpu-operator gpu-operator-v26.7.1.tgz", "helm install gpu-operator ./gpu-operator-v99.1.tgz --set driver.enabled=false",
	"helm install g nvidia/gpu-operator --version v0.0.0", "helm install g nvidia/gpu-operator --version", "helm upgrade -i g nvidia/gpu-operator --version v31.1.0 --reuse-values",
	"helm install", "helm", "helm --kubeconfig x", "helm install --version=x.y.z a gpu-operator-.tgz", "sudo helm", "--set a=b", "helm install x y --set toolkit.env[0].name=A --set toolkit.env[70000].value=1",
	"kubectl patch clusterpolicy x -p '{\"spec\":{}}'", "kubectl patch clusterpolicy x --type json -p '[{\"op\":\"add\",\"path\":\"/spec/driver/env/0/name\"}]'", "kubectl label node x nvidia.com/mig.config=",
	"A=(--set driver.enabled=false); helm install g nvidia/gpu-operator \"${A[@]}\"", "for i in 1 2; do helm install g$i nvidia/gpu-operator --set mig.strategy=$i; done",
	"helm install g nvidia/gpu-operator -f - <<EOF\ndriver: {enabled: false, version: $V}\nEOF\n", "f() { helm template g nvidia/gpu-operator --set-json 'driver={\"enabled\":1}'; }; f",
}

// FuzzCommand lints a command for a release, and then the corrected command until it does not change. It must not panic.
func FuzzCommand(f *testing.F) {
	for _, c := range fuzzCommands {
		f.Add(c, "")
		f.Add(c, "v26.7.9")
	}
	f.Fuzz(func(t *testing.T, text, version string) {
		if len(text) > 4096 {
			return
		}
		result, err := lint.Lint(lint.Options{Command: text, Version: version, Fix: true})
		if err != nil { // an unknown release
			return
		}
		within(t, text, result)
		for before := range 9 { // a correction may reveal more findings, but this must end
			check.Mask(result.Corrected)
			again := judge(t, lint.Options{Command: result.Corrected, Version: version})
			if again.Corrected == result.Corrected {
				break
			}
			if before == 8 {
				t.Errorf("corrected command of %q changes when it is corrected again:\n%s\n%s", text, result.Corrected, again.Corrected)
			}
			result = again
		}
	})
}
