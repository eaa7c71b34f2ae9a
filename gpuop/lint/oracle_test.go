package lint_test

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"

	helmchart "helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/strvals"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/lint"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/charts"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/material"
)

// The tests in this file compare gpuop with reference implementations: the validation of the API server, Helm's packages
// and bash.

// apiServer returns a validator with the CRDs of v26.7.0. It rejects unknown fields, like strict field validation.
func apiServer(t *testing.T) *charts.Definitions {
	t.Helper()
	set := &charts.Definitions{}
	for _, f := range folder.Files(t, charts.Data(t), "v26.7.0", "crds", "nvidia.com_*.yaml") {
		if err := set.Add(read(t, f)); err != nil {
			t.Fatal(err)
		}
	}
	return set
}

// refused returns the check and subject of each error in a report.
func refused(r check.Report) []string {
	var out []string
	for _, f := range r.Findings {
		if f.Severity == check.Error {
			out = append(out, f.Check.ID+" "+f.Subject)
		}
	}
	return out
}

// gpuop must report errors for a resource if, and only if, the API server rejects it.
func TestResourcesAsTheAPIServer(t *testing.T) {
	set := apiServer(t)
	const driver = "apiVersion: nvidia.com/v1alpha1\nkind: NVIDIADriver\nmetadata: {name: a}\nspec: "
	const whole = driver + "{driverType: gpu, image: driver, repository: nvcr.io/nvidia, version: 595.91.07"
	const cluster = "apiVersion: nvidia.com/v1alpha1\nkind: GPUCluster\nmetadata: {name: gpu-cluster}\nspec: "
	for _, text := range []string{
		driver + "{driverType: gpu, image: driver, default: yes}", driver + "{driverType: gpu, image: driver, default: \"true\"}",
		driver + "{image: driver}", driver + "{driverType: gpu}", driver + "{driverType: vgpu, image: driver, kernelModuleType: opn}",
		driver + "{driverType: gpu, image: driver, tolerations: {key: a}}", driver + "{driverType: gpu, image: driver, env: [{name: A, value: true}]}",
		driver + "{driverType: gpu, image: driver, env: [{name: A, value: \"true\"}]}", driver + "{driverType: gpu, image: driver, nodeAffinty: {}}",
		whole + "}", whole + ", default: true}", whole + ", default: true, nodeSelector: {a: b}}", whole + ", default: true, nodeSelector: {}}",
		whole + ", default: false, nodeSelector: {a: b}}", whole + ", nodeSelector: {a: 1}}",
		cluster + "{}", cluster + "{draDriver: {}}", cluster + "{draDriver: {gpus: {enabled: true}}}", cluster + "{draDriver: {gpus: {enabled: 1}}}",
		cluster + "{draDriver: {gpus: {enabeld: true}}}", cluster + "{draDriver: {computeDomains: {enabled: true}}, hostPaths: {rootFS: /}}",
	} {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(text), &object); err != nil {
			t.Fatal(err)
		}
		problems, known := set.Validate(fmt.Sprint(object["apiVersion"]), fmt.Sprint(object["kind"]), object)
		if !known {
			t.Fatalf("no definition for %s", text)
		}
		got := refused(findings(t, "v26.7.0", text))
		if len(problems) > 0 != (len(got) > 0) {
			t.Errorf("%s\nerrors of the API server: %v\nerrors of gpuop: %v; want errors of both or neither", text, problems, got)
		}
	}
}

// rendered returns the chart's ClusterPolicy with a value at a path.
func rendered(t *testing.T, data []byte, path string, value any) map[string]any {
	t.Helper()
	for document := range strings.SplitSeq(string(data), "\n---\n") {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(document), &object); err != nil || object["kind"] != "ClusterPolicy" {
			continue
		}
		if err := unstructured.SetNestedField(object, value, strings.Split("spec."+path, ".")...); err != nil {
			t.Fatal(err)
		}
		return object
	}
	t.Fatal("rendered manifests contain no ClusterPolicy")
	return nil
}

// gpuop must report an error for a copied value if, and only if, the API server rejects the ClusterPolicy with that
// value.
func TestCopiedValuesAsTheAPIServer(t *testing.T) {
	set := apiServer(t)
	data := read(t, charts.Data(t), "v26.7.0", "rendered-defaults.yaml")
	if clean, _ := set.Validate("nvidia.com/v1", "ClusterPolicy", rendered(t, data, "mig.strategy", "single")); len(clean) > 0 {
		t.Fatalf("rendered ClusterPolicy is invalid: %v", clean)
	}
	for _, tt := range []struct{ path, json string }{
		{"toolkit.env", `[{"name": "A", "value": true}]`}, {"toolkit.env", `[{"name": "A", "value": 1}]`}, {"toolkit.env", `[{"name": "A", "value": "true"}]`},
		{"toolkit.env", `[{"name": "A"}]`}, {"toolkit.env", `[{"nmae": "A"}]`}, {"toolkit.env", `{"name": "A"}`},
		{"daemonsets.tolerations", `{"key": "a", "operator": "Exists"}`}, {"daemonsets.tolerations", `[{"key": "a", "operator": "Exists"}]`},
		{"daemonsets.tolerations", `[{"key": 1, "operator": "Exists"}]`}, {"daemonsets.tolerations", `[{"kye": "a", "operator": "Exists"}]`},
		{"driver.resources", `{"limits": {"cpu": "1"}}`}, {"driver.resources", `{"limit": {"cpu": "1"}}`}, {"driver.resources", `[]`},
		{"driver.upgradePolicy.drain", `{"enable": true, "force": "yes"}`}, {"driver.upgradePolicy.drain", `{"enable": true, "timeoutSeconds": 300}`},
		{"driver.upgradePolicy.drain", `{"enable": true, "timeoutSeconds": -1}`}, {"mig.strategy", `"mixd"`}, {"mig.strategy", `"mixed"`},
		{"devicePlugin.imagePullSecrets", `"a"`}, {"devicePlugin.imagePullSecrets", `["a"]`}, {"devicePlugin.args", `[1]`},
	} {
		var value any
		if err := json.Unmarshal([]byte(tt.json), &value); err != nil {
			t.Fatal(err)
		}
		problems, _ := set.Validate("nvidia.com/v1", "ClusterPolicy", rendered(t, data, tt.path, value))
		values := map[string]any{}
		if err := strvals.ParseJSON(tt.path+"="+tt.json, values); err != nil {
			t.Fatal(err)
		}
		text, err := yaml.Marshal(values)
		if err != nil {
			t.Fatal(err)
		}
		got := refused(findings(t, "v26.7.0", string(text)))
		if len(problems) > 0 != (len(got) > 0) {
			t.Errorf("%s=%s\nerrors of the API server: %v\nerrors of gpuop: %v; want errors of both or neither", tt.path, tt.json, problems, got)
		}
	}
}

// gpuop must report nfd.enabled if Helm does not do what the value says. A subchart stays enabled if its condition is a
// string, even "false". Unquoted yes and no are booleans in YAML 1.1.
func TestSwitchesAsHelm(t *testing.T) {
	for _, value := range []string{`"false"`, "false", `"true"`, "true", "no", "yes", "off"} {
		var values map[string]any
		if err := yaml.Unmarshal([]byte("nfd: {enabled: "+value+"}\n"), &values); err != nil {
			t.Fatal(err)
		}
		sub := &helmchart.Chart{Metadata: &helmchart.Metadata{Name: "node-feature-discovery", Version: "1.0.0", APIVersion: "v2"}}
		parent := &helmchart.Chart{Metadata: &helmchart.Metadata{Name: "gpu-operator", Version: "1.0.0", APIVersion: "v2",
			Dependencies: []*helmchart.Dependency{{Name: "node-feature-discovery", Version: "1.0.0", Condition: "nfd.enabled"}}}}
		parent.SetDependencies(sub)
		if err := chartutil.ProcessDependencies(parent, values); err != nil {
			t.Fatal(err)
		}
		on := len(parent.Dependencies()) == 1
		meant := !slices.Contains([]string{"false", "no", "off"}, strings.Trim(value, `"`))
		got := refused(findings(t, "", "nfd: {enabled: "+value+"}\n"))
		if (on != meant) != (len(got) > 0) {
			t.Errorf("nfd.enabled: %s: enabled in Helm = %t, meant = %t, errors of gpuop = %v; want errors only if the two differ", value, on, meant, got)
		}
	}
}

var setFlags = []string{
	"a=b", "a.b.c=1,a.b.d=true", `a\.b=c`, `a=b\,c`, "a={x,y}", "a={}", "a=", "a=null", "a=012", "a=0", "a=-1", "a=1e3", "a=9223372036854775808", "a=TRUE",
	"a={1, b}", "a=b=c", `a="b"`, "a= b ", "a={x,{y}}", "a={1,2},b=c", "a.b=1,a.c.d=2", "a=\\{b}", "a=x{y}", "a={x}y", "a={x", `a\=b=c`, "a={true,null}", "a=+1", "a=1_000", "a= true",
}

// setAsHelm compares the assignments in a --set flag with Helm's result.
func setAsHelm(t *testing.T, text string) {
	t.Helper()
	want, wantErr := strvals.Parse(text)
	settings, err := model.Assignments(text, true)
	if (err != nil) != (wantErr != nil) {
		t.Errorf("%q: error = %v, want that of Helm: %v", text, err, wantErr)
	}
	if err != nil || wantErr != nil {
		return
	}
	got := map[string]any{}
	for _, s := range settings {
		if err := unstructured.SetNestedField(got, canonical(t, s.Value), s.Path...); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	if a, b := canonical(t, got), canonical(t, want); !reflect.DeepEqual(a, b) {
		t.Errorf("%q: values = %#v, want those of Helm: %#v", text, a, b)
	}
}

// TestSetAsHelm compares gpuop's parser of --set with Helm's, for example for commas, escapes, lists and types.
func TestSetAsHelm(t *testing.T) {
	for _, text := range setFlags {
		setAsHelm(t, text)
	}
	// both flags set keys of one toleration, so nothing is set twice
	const flags = "daemonsets.tolerations[0].key=a,daemonsets.tolerations[0].operator=Exists"
	values, err := strvals.Parse(flags)
	if err != nil || len(values["daemonsets"].(map[string]any)["tolerations"].([]any)) != 1 {
		t.Fatalf("Helm: values = %v, error = %v; want one toleration", values, err)
	}
	if got := judge(t, lint.Options{Command: "helm template g nvidia/gpu-operator --set '" + flags + "'"}); len(got.Report.Findings) > 0 {
		t.Errorf("findings = %v, want none", brief(got.Report))
	}
}

func canonical(t *testing.T, v any) any {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var out any
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestScriptsAsBash runs each script in bash with a fake helm that records its arguments. gpuop must report the same
// findings for the script as for the recorded command. Text in comments and echo must not be read as helm flags. If
// gpuop reports a broken continuation or a brace expansion, bash must not have passed driver.enabled=false.
func TestScriptsAsBash(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		material.Skip(t, "bash-absent", err)
	}
	named := func(r *lint.Result) (out []string) {
		for _, f := range r.Report.Findings {
			out = append(out, f.Check.ID+" "+f.Subject)
		}
		slices.Sort(out)
		return out
	}
	const install = "helm install gpu-operator nvidia/gpu-operator -n gpu-operator"
	for _, script := range []string{
		install + " --set driver.enabled=false\n",
		"# “quoted” – by an editor\n" + install + "\necho “done” – now\n",
		install + " \\\n  --set a.b=c\n",
		install + "\n  --set driver.enabled=false\n",                // the backslash is missing
		install + " \\\n  # a comment\n  --set mig.strategy=mixd\n", // the comment ends the continued command
		"X=mixd\n" + install + " --set mig.strategy=$X\n",
		"A=(--set driver.enabled=false --set mig.strategy=mixd)\n" + install + ` "${A[@]}"` + "\n",
		"f() { " + install + " --set mig.strategy=mixd; }\nf\n",
		"for i in 1; do " + install + " --set drivr.enabled=false; done\n",
		install + " --set driver.imagePullSecrets={a,b}\n",
		"if true; then time " + install + " --set 'mig.strategy=mixd' | cat; fi\n",
	} {
		out, _ := exec.Command("bash", "-c", "helm() { printf '%s\\0' \"$@\" >&3; }\nexec 3>&1 >/dev/null 2>&1\n"+script).Output()
		args := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
		alone := "helm"
		for _, a := range args {
			alone += " '" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		whole, rest := named(judge(t, lint.Options{Command: alone})), named(judge(t, lint.Options{Command: script}))
		reported := len(rest)
		rest = slices.DeleteFunc(rest, func(f string) bool {
			return strings.HasPrefix(f, "broken-continuation ") || strings.HasPrefix(f, "brace-expansion ")
		})
		shell := len(rest) < reported
		if !shell && !slices.Equal(rest, whole) {
			t.Errorf("%s\nbash passes %q\nfindings of the script = %v, want those of the command that bash runs: %v", script, args, rest, whole)
		}
		if shell && strings.Contains(strings.Join(args, " "), "driver.enabled=false") {
			t.Errorf("%s\nbash passes %q, but gpuop reports that driver.enabled=false is lost", script, args)
		}
	}
}

// gpuop reports no errors in mig-parted's own default config.
func TestFilesOfNVIDIA(t *testing.T) {
	data := read(t, material.Path(t, "data/upstream/mig-parted/config-default.yaml"))
	if got := refused(findings(t, "", string(data))); len(got) > 0 {
		t.Errorf("errors = %v, want none", got)
	}
}
